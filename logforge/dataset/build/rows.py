"""Stage `make_rows`: the action space, the states that a dataset of the store has already, and a row for each decision.

The action space is the vocabulary, what the masks show, the second level of actions, and who chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import duckdb
import polars as pl

from logforge.core import Episodes, from_all, from_summary, per_bucket, per_episode, stage
from logforge.dataset.actions import NO_CANDIDATES, ActionSpace, ArgumentSpace, fit_arguments, seen_in
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.known_states import FoundStates, look_for_states
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.scoring import Augmented
from logforge.dataset.build.splitting import Cohort, Split
from logforge.dataset.build.transitions import transition_rows
from logforge.dataset.states import StateBuilder
from logforge.rewards import RewardModel
from logforge.schemas import CLARIFY, INVALID, OTHER, RESPOND, Episode, Vocabulary


class FittedActions(NamedTuple):
    """The action space, and rows of `argument_candidates` (none without a second level)."""

    space: ActionSpace
    candidates: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Rows:
    """The transitions of a dataset, by episode and step, with neither vectors nor weights. `symbols` tells states in symbols."""

    split: Split
    model: RewardModel
    actions: FittedActions
    symbols: StateBuilder
    states: FoundStates
    cohort: Cohort
    transitions: pl.DataFrame


@stage(
    from_summary(
        "vocabulary, tools of each format, who chose",
        "counts of calls: one for each tool; names of tools, formats and policies",
    ),
    from_all(
        "argument templates, with `--action-level tool+template`",
        "distinct calls of train with their arguments, in the store's engine, some at a time, three times",
    ),
    per_episode("digests of states"),
    from_summary("states that a dataset of the store has", "digests: 32 characters an episode"),
    per_bucket("rows of decisions"),
    from_all("one frame, by episode and step", "every row without texts, in memory: a row a decision"),
)
def make_rows(augmented: Augmented, plan: Plan) -> Rows:
    """Actions, states in symbols (or their keys, where they are known), and the transitions."""
    cohort, config, split = augmented.cohort, plan.config, augmented.split
    actions = fit_actions(
        plan.store.con, config, cohort.kept, cohort.train(), split.splits, split.chosen.aliases, plan.earlier.vocabulary,
        plan.earlier.arguments,
    )  # fmt: skip
    space = actions.space
    symbols = StateBuilder(config.state, space, config.text_size)
    states = look_for_states(plan, cohort, space)
    members = cohort.members(cohort.kept, symbols, states.episodes)
    found = transition_rows(members, augmented.rewards, space, plan.spec.gamma, states.keys)
    return Rows(split, augmented.model, actions, symbols, states, cohort, found)


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
