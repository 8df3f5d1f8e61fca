"""Which episodes of the store a dataset is made of, and why the others are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from logforge.core.spool import Episodes, EpisodeSpool
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.exclusion import excluded, read_conditions
from logforge.dataset.build.report import LeftOut
from logforge.schemas.episode import Episode
from logforge.schemas.errors import CheckFailed, Problem, UnknownName
from logforge.schemas.rules import remedy_of
from logforge.shards.card import read_licences
from logforge.store.store import Store


def chosen(
    store: Store, config: BuildConfig, folder: Path | None = None
) -> tuple[Episodes, dict[str, LeftOut]]:
    """The store's episodes, ordered by id, without those that flags and conditions leave out; and these.

    They are spooled in `folder`: the store is read once. Raises UnknownName for a retryable tool or a licence's format that no
    episode has.
    """
    meeting = excluded(store, read_conditions(config.exclude_where))
    spool, ids = EpisodeSpool(folder), []
    flagged, used, formats = dict[str, LeftOut](), set[str](), set[str]()
    for episode in store.episodes():
        formats.add(episode.format)
        flag = _flagged(episode, config.exclude_flags)
        if flag is not None:
            flagged[episode.episode_id] = flag
        elif episode.episode_id not in meeting:
            used.update(step.action for step in episode.steps if step.kind == "tool")
            spool.add(episode)
            ids.append(episode.episode_id)
    for tool in config.retryable:
        if tool not in used:
            raise UnknownName("tool", tool, sorted(used))
    read_licences(config.licences, formats)
    return Episodes(spool, ids), flagged | meeting


def unlearnable(episodes: Episodes, rewards: pl.DataFrame) -> dict[str, LeftOut]:
    """Episodes that cannot be learnt from, with the reason: no decision, or a reward that is null."""
    nulls = (
        rewards.filter(pl.col("reward").is_null())
        .group_by("episode_id")
        .agg(pl.col("null_reason").first(), pl.col("step").min())
    )
    missing = {row[0]: (row[1], row[2]) for row in nulls.iter_rows()}
    scored = set(rewards["episode_id"].unique()) - missing.keys()
    found = {}
    for episode in episodes.without(scored):
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


def _flagged(episode: Episode, wanted: Sequence[str]) -> LeftOut | None:
    """Why an episode with a message that bears one of the flags is left out; `injection` stands for every `injection:KIND`."""
    for message in episode.messages:
        for flag in message.flags or ():
            named = next((name for name in wanted if flag == name or flag.startswith(f"{name}:")), None)
            if named is not None:
                return LeftOut("flagged", f"a message is flagged {named}", None, message.locator)
    return None
