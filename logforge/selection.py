"""Which episodes of the store a dataset is made of, and why the others are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from logforge.build_config import BuildConfig
from logforge.build_report import LeftOut
from logforge.exclusion import excluded, read_conditions
from logforge.schemas.episode import Episode
from logforge.schemas.errors import CheckFailed, Problem, UnknownName
from logforge.schemas.rules import remedy_of
from logforge.shard_card import read_licences
from logforge.store import Store


def chosen(store: Store, config: BuildConfig) -> tuple[list[Episode], dict[str, LeftOut]]:
    """The store's episodes, ordered by id, without those that flags and conditions leave out; and these.

    Raises UnknownName for a retryable tool or a licence's format that no episode has.
    """
    conditions = read_conditions(config.exclude_where)
    stored = list(store.episodes())
    left_out = _flagged(stored, config.exclude_flags) | excluded(store, conditions)
    episodes = [episode for episode in stored if episode.episode_id not in left_out]
    _check_tools(episodes, config.retryable)
    read_licences(config.licences, {episode.format for episode in stored})
    return episodes, left_out


def unlearnable(episodes: Iterable[Episode], rewards: pl.DataFrame) -> dict[str, LeftOut]:
    """Episodes that cannot be learnt from, with the reason: no decision, or a reward that is null."""
    nulls = (
        rewards.filter(pl.col("reward").is_null())
        .group_by("episode_id")
        .agg(pl.col("null_reason").first(), pl.col("step").min())
    )
    missing = {row[0]: (row[1], row[2]) for row in nulls.iter_rows()}
    found = {}
    for episode in episodes:
        if not episode.steps:
            found[episode.episode_id] = LeftOut(
                "no_decision", "the agent decides nothing in it", None, episode.locator
            )
        elif episode.episode_id in missing:
            reason, step = missing[episode.episode_id]
            found[episode.episode_id] = LeftOut("null_reward", reason, step, episode.locator)
    return found


def refuse_all_left_out(left_out: Mapping[str, LeftOut]) -> None:
    """Raise CheckFailed, with the reasons, when no episode is left."""
    reasons = [item.reason for item in left_out.values()]
    why = [Problem(f"{reasons.count(reason)} × {reason}") for reason in sorted(set(reasons))]
    remedy = remedy_of("null_reward") if left_out else "ingest logs first: `logforge ingest LOGS`"
    raise CheckFailed("no episode can be used", why, remedy)


def _flagged(episodes: Iterable[Episode], flags: Iterable[str]) -> dict[str, LeftOut]:
    """Episodes with a message that bears one of the flags; `injection` stands for every `injection:KIND`."""
    wanted = tuple(flags)
    found = {}
    for episode in episodes:
        for message in episode.messages:
            named = next(
                (w for w in wanted for f in message.flags or () if f == w or f.startswith(f"{w}:")), None
            )
            if named is not None:
                reason = f"a message is flagged {named}"
                found[episode.episode_id] = LeftOut("flagged", reason, None, message.locator)
                break
    return found


def _check_tools(episodes: Iterable[Episode], retryable: Iterable[str]) -> None:
    used = {step.action for episode in episodes for step in episode.steps if step.kind == "tool"}
    for tool in retryable:
        if tool not in used:
            raise UnknownName("tool", tool, sorted(used))
