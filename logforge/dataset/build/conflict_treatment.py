"""Stage `treat_conflicts`: finds conflicts and treats them as the policy says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.core import from_all, from_summary, stage
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.encoding import Encoded
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.propensity import Estimated, PropensityModel
from logforge.dataset.build.report import LeftOut
from logforge.dataset.build.splitting import Cohort
from logforge.dataset.conflicts import (
    FLAG_ALL,
    Decisions,
    Policy,
    comparable,
    contradicted,
    decisions_in,
    factors,
    find_conflicts,
    near_states,
    set_aside,
)
from logforge.schemas import CheckFailed, FeatureSlice, remedy_of
from logforge.shards import SplitArrays

RULE = "conflict"
"""The rule in `quarantine` of an episode that a policy sets aside."""


@dataclass(frozen=True)
class Settings:
    """What counts as a conflict and what is done about it."""

    epsilon: float = BuildConfig.epsilon
    near_threshold: float = BuildConfig.near_threshold
    policy: Policy = field(default_factory=lambda: FLAG_ALL)


@dataclass(frozen=True, slots=True)
class Treated:
    """Transitions and arrays of the episodes that the policy leaves, the conflicts among them, and the factors of weights that
    follow from these (see Treatment)."""

    encoded: Encoded
    propensity: PropensityModel
    conflicts: pl.DataFrame
    factors: pl.DataFrame
    cohort: Cohort
    transitions: pl.DataFrame
    arrays: Mapping[str, SplitArrays]


@stage(
    from_all(
        "states that are near each other",
        "the texts' columns of states that are equal in all others, in memory a set at a time; 16 bytes a state",
    ),
    from_summary(
        "conflicts",
        "state keys, actions, outcomes: a row a decision, no vectors; what was said in episodes with the same states and actions, some at a time",
    ),
    from_summary("what the policy sets aside or halves", "a row for each contradicted decision"),
)
def treat_conflicts(estimated: Estimated, plan: Plan) -> Treated:
    """Find the conflicts, and set aside what the policy filters. Raises CheckFailed when it leaves nothing to train on."""
    encoded, config = estimated.encoded, plan.config
    found = treatment_of(
        estimated.transitions,
        estimated.arrays,
        encoded.builder.layout(),
        decisions_in(plan.store.con, encoded.cohort.kept.spool),
        Settings(config.epsilon, config.near_threshold, plan.policy),
    )
    cohort = encoded.cohort.without(found.left_out)
    told = encoded, estimated.propensity, found.conflicts, found.factors
    return Treated(*told, cohort, found.rows, found.arrays)


class Treatment(NamedTuple):
    """A dataset's rows and arrays without the episodes that were set aside, and the conflicts among what is left.

    `factors` (episode_id, step, factor) is what weights of train rows are to be multiplied by; no row bears them yet. They follow
    from conflicts among train rows: a weight must not tell what held-out episodes say.
    """

    rows: pl.DataFrame
    arrays: dict[str, SplitArrays]
    conflicts: pl.DataFrame
    factors: pl.DataFrame
    left_out: dict[str, LeftOut]


def treatment_of(
    rows: pl.DataFrame,
    arrays: Mapping[str, SplitArrays],
    layout: Sequence[FeatureSlice],
    decisions: Decisions,
    settings: Settings,
) -> Treatment:
    """Find the conflicts among a dataset's transitions, set episodes aside, and say how to weigh the others.

    `rows` are the transitions by episode and step, `arrays` those of each split, whose observations have the columns of
    `layout`; `decisions` are those of the episodes. Raises CheckFailed when no episode would be left.
    """
    near = near_states(rows, arrays, layout, settings.near_threshold)
    compared = comparable(rows, decisions, near)
    conflicts = find_conflicts(compared, settings.epsilon)
    found = contradicted(compared, conflicts, settings.epsilon)
    left_out = _left_out(rows, set_aside(found, settings.policy))
    if left_out:
        gone = list(left_out)
        kept = {split: part.only(_kept(rows, split, gone)) for split, part in arrays.items()}
        rows = rows.filter(~pl.col("episode_id").is_in(gone))
        if not kept["train"].size:
            remedy = remedy_of(RULE)
            raise CheckFailed("the policy on conflicts leaves no episode to train on", (), remedy)
        arrays = kept
        conflicts = find_conflicts(compared.filter(~pl.col("episode_id").is_in(gone)), settings.epsilon)
    train = rows.filter(pl.col("split") == "train")
    if "weight" in settings.policy.values():
        own = compared.filter(pl.col("episode_id").is_in(train["episode_id"].unique().to_list()))
        found = contradicted(own, find_conflicts(own, settings.epsilon), settings.epsilon)
    return Treatment(rows, dict(arrays), conflicts, factors(train, found, settings.policy), left_out)


def _kept(rows: pl.DataFrame, split: str, gone: list[str]) -> NDArray[np.bool_]:
    ids = rows.filter(pl.col("split") == split)["episode_id"].unique(maintain_order=True)
    return (~ids.is_in(gone)).to_numpy()


def _left_out(rows: pl.DataFrame, aside: pl.DataFrame) -> dict[str, LeftOut]:
    """The episodes set aside, and the copies that were made of them."""
    named = aside.join(rows.select("episode_id", "step", "locator"), on=["episode_id", "step"])
    found = {
        row["episode_id"]: LeftOut(
            RULE, f"contradicted by a conflict of kind {row['kind']}", row["step"], row["locator"]
        )
        for row in named.sort("episode_id").to_dicts()
    }
    parent = pl.col("parent_id").str.split("/").list.first()
    copies = rows.filter(parent.is_in(list(found))).unique("episode_id", keep="first", maintain_order=True)
    for row in copies.to_dicts():
        found[row["episode_id"]] = LeftOut(RULE, "what it was made from is set aside", None, row["locator"])
    return found
