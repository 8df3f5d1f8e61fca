"""Turns episodes with their rewards, returns and states into the rows of `transitions` and the arrays of a split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from logforge.actions import ActionSpace
from logforge.frames import POLARS_TYPES
from logforge.returns import returns_to_go
from logforge.schemas.episode import Episode, Step
from logforge.schemas.tables import TRANSITIONS
from logforge.shards import SplitArrays
from logforge.states import State, canonical_key, state_key

SCHEMA = {
    column.name: POLARS_TYPES[column.type] for column in TRANSITIONS.columns if column.name != "dataset"
}
"""The columns of schemas.tables.TRANSITIONS, without `dataset`, as polars types."""


class Origin(NamedTuple):
    """Where an augmented episode comes from: `parents[i]` is the parent's step that step i was made from."""

    parent_episode_id: str
    parents: list[int]
    augmenter: str
    seed: int


class Member(NamedTuple):
    """An episode of the dataset: its split and split group, its states (one more than steps) and, if augmented, its origin."""

    episode: Episode
    split: str
    group: str
    states: list[State]
    origin: Origin | None = None


def transition_rows(
    members: Iterable[Member], rewards: pl.DataFrame, space: ActionSpace, gamma: float
) -> pl.DataFrame:
    """One row per step, ordered by episode and step. `rewards` is what rewards.score gives."""
    members = sorted(members, key=lambda member: member.episode.episode_id)
    rows = [row for member in members for row in _rows(member, space)]
    frame = pl.DataFrame(
        rows, schema={k: v for k, v in SCHEMA.items() if k not in ("reward", "reward_terms", "return_to_go")}
    )
    frame = frame.join(
        rewards.select("episode_id", pl.col("step").cast(pl.Int32), "reward", "reward_terms"),
        on=["episode_id", "step"],
        how="left",
        maintain_order="left",
    )
    lengths = [len(member.episode.steps) for member in members]
    returns = returns_to_go(frame["reward"].to_numpy(), _offsets(lengths), gamma)
    return frame.with_columns(return_to_go=pl.Series(returns)).select(list(SCHEMA))


def _offsets(lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(list(lengths), dtype=np.int64)]).astype(np.int64)


def _rows(member: Member, space: ActionSpace) -> Iterator[dict[str, Any]]:
    episode, origin = member.episode, member.origin
    masks = space.masks(episode)
    shown = {id(mask.allowed): mask.allowed.tolist() for mask in masks}
    for step, state, (mask, mask_kind) in zip(episode.steps, member.states, masks, strict=False):
        action_id, valid = _action(step, mask, space)
        last = step.step == len(episode.steps) - 1
        yield {
            "episode_id": episode.episode_id,
            "step": step.step,
            "split": member.split,
            "state_key": state_key(state),
            "state_key_canonical": canonical_key(state),
            "action": step.action,
            "action_id": action_id,
            "action_valid": valid,
            "return_is_partial": episode.ending == "truncated",
            "terminal": last and episode.ending == "terminal",
            "timeout": last and episode.ending == "truncated",
            "weight": 1.0,
            "weight_parts": [],
            "success": episode.success,
            "source_kind": episode.source_kind,
            "policy_id": step.policy_id or episode.policy_id,
            "propensity": step.propensity,
            "propensity_kind": step.propensity_kind,
            "mask": shown[id(mask)],
            "mask_kind": mask_kind,
            "locator": step.locator,
            "parent_id": f"{origin.parent_episode_id}/{origin.parents[step.step]}" if origin else None,
            "augmenter": origin.augmenter if origin else None,
            "augment_seed": origin.seed if origin else None,
        }


def _action(step: Step, mask: npt.NDArray[np.bool_], space: ActionSpace) -> tuple[int, bool]:
    """The action's id; one that was not on offer keeps its name and gets the id `<invalid>`."""
    vocabulary = space.vocabulary
    if step.action_valid and step.action in vocabulary and mask[vocabulary.id(step.action)]:
        return vocabulary.id(step.action), True
    return vocabulary.invalid, False


def split_arrays(
    rows: pl.DataFrame,
    lengths: list[int],
    groups: list[str],
    observations: npt.NDArray[np.float32],
    space: ActionSpace,
) -> SplitArrays:
    """The arrays of one split. `rows` are its transitions in order, `lengths` the steps and `groups` the split group of
    each of its episodes, and `observations` n + 1 rows for each episode."""
    offsets = _offsets(lengths)
    masks = np.array(rows["mask"].to_list(), dtype=np.bool_).reshape(-1, space.vocabulary.size)
    lasts = np.maximum(offsets[1:] - 1, 0)
    success = rows["success"].cast(pl.Int8).fill_null(-1).to_numpy()
    final = [np.vstack([masks[a:b], masks[b - 1 : b]]) for a, b in pairwise(offsets)]
    return SplitArrays(
        actions=rows["action_id"].to_numpy().astype(np.int32),
        rewards=rows["reward"].to_numpy().astype(np.float32),
        terminals=rows["terminal"].to_numpy().astype(np.bool_),
        timeouts=rows["timeout"].to_numpy().astype(np.bool_),
        returns=rows["return_to_go"].to_numpy().astype(np.float32),
        # A probability too small for float32 is small, not zero.
        propensities=np.maximum(
            rows["propensity"].fill_null(float("nan")).to_numpy().astype(np.float32),
            np.finfo(np.float32).tiny,
        ),
        weights=rows["weight"].to_numpy().astype(np.float32),
        success=success[lasts].astype(np.int8) if len(lengths) else np.zeros(0, np.int8),
        groups=np.unique(np.array(groups, dtype=str), return_inverse=True)[1].astype(np.int32),
        augmented=rows["parent_id"].is_not_null().to_numpy()[lasts].astype(np.bool_)
        if len(lengths)
        else np.zeros(0, np.bool_),
        episode_offsets=offsets,
        observations=observations,
        masks=np.vstack(final) if final else np.zeros((0, space.vocabulary.size), np.bool_),
        observation_offsets=_offsets(length + 1 for length in lengths),
    )
