"""The step of a build that finds conflicts and treats them as its policy says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.dataset.build.report import LeftOut
from logforge.dataset.conflicts.groups import find_conflicts
from logforge.dataset.conflicts.near import THRESHOLD, near_states
from logforge.dataset.conflicts.policy import FLAG_ALL, Policy, contradicted, factors, set_aside
from logforge.dataset.conflicts.rows import Decisions, comparable
from logforge.schemas.errors import CheckFailed
from logforge.schemas.manifest import FeatureSlice
from logforge.schemas.rules import remedy_of
from logforge.shards.arrays import SplitArrays

RULE = "conflict"
"""The rule in `quarantine` of an episode that a policy sets aside."""


@dataclass(frozen=True)
class Settings:
    """What counts as a conflict and what is done about it."""

    epsilon: float = 0.5
    near_threshold: float = THRESHOLD
    policy: Policy = field(default_factory=lambda: FLAG_ALL)


class Treated(NamedTuple):
    """A dataset's rows and arrays without the episodes that were set aside, and the conflicts among what is left.

    `factors` (episode_id, step, factor) is what weights of train rows are to be multiplied by; no row bears them yet. They follow
    from conflicts among train rows: a weight must not tell what held-out episodes say.
    """

    rows: pl.DataFrame
    arrays: dict[str, SplitArrays]
    conflicts: pl.DataFrame
    factors: pl.DataFrame
    left_out: dict[str, LeftOut]


def treat(
    rows: pl.DataFrame,
    arrays: Mapping[str, SplitArrays],
    layout: Sequence[FeatureSlice],
    decisions: Decisions,
    settings: Settings,
) -> Treated:
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
    return Treated(rows, dict(arrays), conflicts, factors(train, found, settings.policy), left_out)


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
