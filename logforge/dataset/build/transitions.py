"""Turns episodes with their rewards, returns and states into the rows of `transitions` and the arrays of a split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from logforge.core import POLARS_TYPES, batches
from logforge.dataset.actions import NOTHING, ActionSpace
from logforge.dataset.states import State, canonical_key, state_key
from logforge.rewards import returns_to_go
from logforge.schemas import TRANSITIONS, Episode, Step
from logforge.shards import SplitArrays, proposed, side_arrays

SCHEMA = {
    column.name: POLARS_TYPES[column.type] for column in TRANSITIONS.columns if column.name != "dataset"
}
"""The columns of schemas.tables.TRANSITIONS, without `dataset`, as polars types."""
_LOGGED = {k: v for k, v in SCHEMA.items() if k not in ("reward", "reward_terms", "return_to_go")}
_STEP = ["episode_id", "step"]
_NESTED = ("mask", "argument_numbers", "weight_parts")
_MAP = POLARS_TYPES["MAP(VARCHAR, DOUBLE)"]
_TOGETHER = 64


class Origin(NamedTuple):
    """Where an augmented episode comes from: `parents[i]` is the parent's step that step i was made from."""

    parent_episode_id: str
    parents: list[int]
    augmenter: str
    seed: int


class Member(NamedTuple):
    """An episode of the dataset: its split and split group, its states (one more than steps; none where they are
    known already) and, if augmented, its origin."""

    episode: Episode
    split: str
    group: str
    states: list[State]
    origin: Origin | None = None


def transition_rows(
    members: Iterable[Member],
    rewards: pl.DataFrame,
    space: ActionSpace,
    gamma: float,
    keys: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """One row per step, ordered by episode and step. `rewards` is what logforge.rewards.pipeline.score gives. Memory holds the rows, and some
    members at a time. `keys` are state keys by episode and step, of members that come without states."""
    pieces = [_frame(batch, space) for batch in batches(members, _TOGETHER)]
    frame = pl.concat([pl.DataFrame(schema=_LOGGED), *pieces], rechunk=True).sort(_STEP, maintain_order=True)
    if keys is not None:
        frame = frame.join(keys, on=_STEP, how="left", suffix="_known", maintain_order="left").with_columns(
            pl.coalesce(name, f"{name}_known").alias(name) for name in ("state_key", "state_key_canonical")
        )
    frame = frame.join(
        rewards.select("episode_id", pl.col("step").cast(pl.Int32), "reward", "reward_terms"),
        on=_STEP,
        how="left",
        maintain_order="left",
    )
    offsets = _offsets(lengths_of(frame))
    returns = returns_to_go(frame["reward"].to_numpy(), offsets, gamma)
    return frame.with_columns(return_to_go=pl.Series(returns)).select(list(SCHEMA))


def lengths_of(rows: pl.DataFrame) -> list[int]:
    """The steps of each episode of some transitions, in their order."""
    return rows.group_by("episode_id", maintain_order=True).len()["len"].to_list()


def _offsets(lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(list(lengths), dtype=np.int64)]).astype(np.int64)


def _frame(members: Sequence[Member], space: ActionSpace) -> pl.DataFrame:
    """The rows of some episodes, all but rewards and returns."""
    columns: dict[str, list[Any]] = {name: [] for name in _LOGGED if name not in _NESTED}
    masks: list[npt.NDArray[np.bool_]] = []
    numbers: list[Sequence[dict[str, Any]]] = []
    for member in members:
        for name, values in _columns(member, space, masks, numbers).items():
            columns[name] += values
    frame = pl.DataFrame(columns, schema={name: _LOGGED[name] for name in columns})
    allowed = np.array(masks, np.bool_).reshape(-1, space.vocabulary.size)
    return frame.with_columns(
        pl.Series(
            "mask", allowed if len(masks) else [], pl.Array(pl.Boolean, space.vocabulary.size)
        ).arr.to_list(),
        _maps(numbers).alias("argument_numbers"),
        _maps([()] * len(masks)).alias("weight_parts"),
    ).select(list(_LOGGED))


def _maps(cells: Sequence[Sequence[dict[str, Any]]]) -> pl.Series:
    """Lists of key and value as a column; polars takes a hundred times as long to make one of each cell."""
    pairs = [pair for cell in cells for pair in cell]
    flat = pa.StructArray.from_arrays(
        [
            pa.array([pair["key"] for pair in pairs], pa.string()),
            pa.array([pair["value"] for pair in pairs], pa.float64()),
        ],
        names=["key", "value"],
    )
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int64)
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends), flat), dtype=_MAP)


def _columns(
    member: Member,
    space: ActionSpace,
    masks: list[npt.NDArray[np.bool_]],
    numbers: list[Sequence[dict[str, Any]]],
) -> dict[str, list[Any]]:
    """The columns of an episode's rows; its masks and its numeric arguments are added to `masks` and `numbers`."""
    episode, origin, steps = member.episode, member.origin, member.episode.steps
    offered = space.masks(episode)[: len(steps)]
    masks += [mask.allowed for mask in offered]
    taken = [_action(step, mask.allowed, space) for step, mask in zip(steps, offered, strict=True)]
    arguments = [
        space.arguments.of(step.action, step.arguments) if valid else NOTHING
        for step, (_, valid) in zip(steps, taken, strict=True)
    ]
    numbers += [argument.numbers for argument in arguments]
    states, every = member.states[: len(steps)], len(steps)
    last = [step.step == every - 1 for step in steps]
    return {
        "episode_id": [episode.episode_id] * every,
        "step": [step.step for step in steps],
        "split": [member.split] * every,
        "state_key": [state_key(state) for state in states] if states else [None] * every,
        "state_key_canonical": [canonical_key(state) for state in states] if states else [None] * every,
        "action": [step.action for step in steps],
        "action_id": [action for action, _ in taken],
        "action_valid": [valid for _, valid in taken],
        "return_is_partial": [episode.ending == "truncated"] * every,
        "terminal": [end and episode.ending == "terminal" for end in last],
        "timeout": [end and episode.ending == "truncated" for end in last],
        "weight": [1.0] * every,
        "success": [episode.success] * every,
        "source_kind": [episode.source_kind] * every,
        "policy_id": [step.policy_id or episode.policy_id for step in steps],
        "proposed_action": [proposed(step) for step in steps],
        "argument_template": [argument.template for argument in arguments],
        "propensity": [step.propensity for step in steps],
        "propensity_kind": [step.propensity_kind for step in steps],
        "mask_kind": [mask.kind for mask in offered],
        "locator": [step.locator for step in steps],
        "parent_id": [f"{origin.parent_episode_id}/{origin.parents[step.step]}" for step in steps]
        if origin
        else [None] * every,
        "augmenter": [origin.augmenter if origin else None] * every,
        "augment_seed": [origin.seed if origin else None] * every,
    }


def _action(step: Step, mask: npt.NDArray[np.bool_], space: ActionSpace) -> tuple[int, bool]:
    """The action's id; one that was not on offer keeps its name and gets the id `<invalid>`, a rare tool `<other>`."""
    vocabulary = space.vocabulary
    if step.action_valid and step.action in vocabulary:
        found = vocabulary.id(step.action)
        if mask[found] or step.action in vocabulary.others:
            return found, True
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
    masks = rows["mask"].explode().to_numpy().astype(np.bool_).reshape(-1, space.vocabulary.size)
    lasts = np.maximum(offsets[1:] - 1, 0)
    success = rows["success"].cast(pl.Int8).fill_null(-1).to_numpy()
    ends = np.repeat(offsets[1:] - 1, np.diff(offsets) + 1)
    shown = np.minimum(np.arange(len(ends)) - np.repeat(np.arange(len(lengths)), np.diff(offsets) + 1), ends)
    return SplitArrays(
        **side_arrays(rows, space.vocabulary, space.side_names),
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
        masks=masks[shown],
        observation_offsets=_offsets(length + 1 for length in lengths),
    )
