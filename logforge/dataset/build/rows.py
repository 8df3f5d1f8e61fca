"""Fits the action space of a build: its vocabulary, what the masks show, the second level of actions, and who chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import duckdb
import polars as pl

from logforge.core.spool import Episodes
from logforge.dataset.actions.argument_fit import NO_CANDIDATES, fit_arguments
from logforge.dataset.actions.arguments import ArgumentSpace
from logforge.dataset.actions.vocabulary import ActionSpace, seen_in
from logforge.dataset.build.config import BuildConfig
from logforge.schemas.episode import CLARIFY, RESPOND, Episode
from logforge.schemas.manifest import INVALID, OTHER, Vocabulary


class FittedActions(NamedTuple):
    """The action space, and rows of `argument_candidates` (none without a second level)."""

    space: ActionSpace
    candidates: pl.DataFrame


def fit_actions(
    con: duckdb.DuckDBPyConnection,
    config: BuildConfig,
    episodes: Episodes,
    train: Episodes,
    splits: pl.DataFrame,
    aliases: Mapping[str, str],
    earlier: Vocabulary | None = None,
    arguments: ArgumentSpace | None = None,
) -> FittedActions:
    """The action space of these episodes, of which `train` lie in the train split. `earlier` is a vocabulary whose ids stay, and
    `arguments` its second level, whose places stay.

    The episodes bear the names of today, `aliases` lead to them from earlier ones. `splits` names the split group of each
    logged episode; augmented copies are not in it, and add nothing to a second level.
    """
    learnt = train.only(set(splits["episode_id"]))
    kept = {aliases.get(name, name) for name in (earlier.actions if earlier else ())}
    rare = _rare(config.min_action_count, episodes, learnt, kept)
    space = ActionSpace.build(map(seen_in, episodes), earlier, map(seen_in, train), aliases, rare)
    space = replace(space, policies=policies_of(episodes))
    if config.action_level == "tool":
        return FittedActions(space, NO_CANDIDATES)
    groups = splits.filter(pl.col("episode_id").is_in(list(learnt.ids)))
    fitted = fit_arguments(con, groups, space.vocabulary, aliases, arguments)
    return FittedActions(replace(space, arguments=fitted.space), fitted.candidates)


def _rare(
    least: int, episodes: Iterable[Episode], learnt: Iterable[Episode], kept: set[str]
) -> Callable[[set[str]], dict[str, int]]:
    """Which of some tools the episodes to learn from call less often than `least` times, with how often all episodes call
    them; those `kept` have an id of their own already."""

    def rare(tools: set[str]) -> dict[str, int]:
        if not least:
            return {}
        counts, all_counts = _calls(learnt), _calls(episodes)
        candidates = sorted(tools - kept - {RESPOND, CLARIFY, INVALID, OTHER})
        return {tool: all_counts[tool] for tool in candidates if counts[tool] < least}

    return rare


def _calls(episodes: Iterable[Episode]) -> Counter[str]:
    return Counter(
        step.action for e in episodes for step in e.steps if step.kind == "tool" and step.action_valid
    )


def policies_of(episodes: Iterable[Episode]) -> tuple[str, ...]:
    """Who chose in these episodes, by name."""
    found = {step.policy_id or episode.policy_id for episode in episodes for step in episode.steps}
    return tuple(sorted(name for name in found if name is not None))
