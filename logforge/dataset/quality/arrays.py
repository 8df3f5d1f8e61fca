"""Checks that the arrays of a split are what its rows say: same values, same order, each next state the state of the next step.

What must hold in the arrays alone (dtypes, shapes, offsets, ends, values) is in logforge/shards/array_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.dataset.quality.transitions import FAILURES, reported
from logforge.schemas import PROPENSITY_KINDS
from logforge.shards import SplitArrays, not_finite


def validate_arrays(transitions: pl.DataFrame, arrays: SplitArrays) -> pl.DataFrame:
    """Every way in which the arrays of a split are not those of its rows; columns as in FAILURES.

    `transitions` are the split's rows. The reader's rule (docs/shards.md: the state of step k in episode e is row k + e, the
    next one k + e + 1) is held against `observation_offsets`, and masks against those of the rows.
    """
    rows = transitions.sort("episode_id", "step")
    lengths = rows.group_by("episode_id", maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if not np.array_equal(offsets, arrays.episode_offsets):
        detail = f"{arrays.episode_count} episodes of {arrays.size} steps for {len(lengths)} of {rows.height}"
        return _array_failures(rows.head(1).with_columns(locator=pl.lit(None, pl.String)), "arrays", detail)
    masks = _masks(rows, arrays.action_size)
    found = [*_differences(rows, arrays, masks), *_observations(rows, arrays, masks)]
    return pl.concat([FAILURES.to_frame(), *found]).sort("episode_id", "step", "rule", "detail")


_AS_ARRAYS = {
    "actions": "action_id",
    "rewards": "reward",
    "terminals": "terminal",
    "timeouts": "timeout",
    "returns": "return_to_go",
    "weights": "weight",
    "propensities": "propensity",
}
"""The column that each array repeats, row by row."""


def _differences(rows: pl.DataFrame, arrays: SplitArrays, masks: NDArray[np.bool_]) -> Iterator[pl.DataFrame]:
    """Cells of the arrays that differ from the rows' as those round to the array's type."""
    for name, column in _AS_ARRAYS.items():
        array = getattr(arrays, name)
        due = rows[column].fill_null(float("nan")) if name == "propensities" else rows[column]
        expected = due.to_numpy().astype(array.dtype)
        if name == "propensities":
            expected = np.maximum(expected, np.finfo(array.dtype).tiny)
        same = (array == expected) | ((array != array) & (expected != expected))
        yield _array_failures(rows.filter(~same), "arrays", f"{name} differs from {column}")
    for name, expected in _sides(rows):
        differs = getattr(arrays, name) != expected
        yield _array_failures(rows.filter(differs), "arrays", f"{name} differs")
    outcome = rows["success"].cast(pl.Int8).fill_null(-1).to_numpy()
    yield _array_failures(
        rows.filter(arrays.success[arrays.episode_index] != outcome), "arrays", "success differs"
    )
    differs = (arrays.masks[arrays.observation_rows] != masks).any(axis=1)
    yield _array_failures(rows.filter(differs), "arrays", "masks differs from mask")


def _sides(rows: pl.DataFrame) -> Iterator[tuple[str, NDArray[Any]]]:
    """Side arrays as the rows tell them; what they say only with the manifest's names is looked at by logforge.shards.array_rules.sides."""
    kinds = rows["propensity_kind"].replace_strict(PROPENSITY_KINDS, list(range(len(PROPENSITY_KINDS))))
    yield "propensity_kinds", kinds.to_numpy()
    yield "argument_templates", rows["argument_template"].fill_null(-1).to_numpy()


def _observations(
    rows: pl.DataFrame, arrays: SplitArrays, masks: NDArray[np.bool_]
) -> Iterator[pl.DataFrame]:
    """Observations that are not finite, and steps whose next state is not the state of the step that follows."""
    here = arrays.observation_rows
    broken = not_finite(arrays.observations)
    yield _array_failures(rows.filter(broken[here]), "finite", "the observation before the step")
    ends = np.zeros(arrays.size, bool)
    ends[arrays.episode_offsets[1:] - 1] = True
    yield _array_failures(rows.filter(broken[here + 1] & ends), "finite", "the observation after the step")
    step = np.arange(arrays.size) - arrays.episode_offsets[arrays.episode_index]
    due = np.minimum(arrays.observation_offsets[arrays.episode_index] + step + 1, len(broken) - 1)
    states = np.zeros(arrays.size, bool)
    apart = np.flatnonzero(due != here + 1)  # elsewhere it is the same row
    states[apart] = (arrays.observations[due[apart]] != arrays.observations[here[apart] + 1]).any(axis=1)
    yield _array_failures(rows.filter(states), "next_state", "the observation is another one")
    later = (arrays.masks[here + 1] != np.roll(masks, -1, axis=0)).any(axis=1) & ~ends
    yield _array_failures(rows.filter(later), "next_state", "the mask is another one")


def _masks(rows: pl.DataFrame, size: int) -> NDArray[np.bool_]:
    """The rows' masks [N, A]; one of another length allows nothing, which is a difference."""
    whole = pl.col("mask").list.len() == size
    nothing = pl.lit([False] * size, pl.List(pl.Boolean))
    mask = rows.select(pl.when(whole).then("mask").otherwise(nothing)).to_series()
    found: NDArray[np.bool_] = mask.explode().fill_null(False).to_numpy().reshape(rows.height, size)
    return found


def _array_failures(rows: pl.DataFrame, rule: str, detail: str) -> pl.DataFrame:
    return rows.with_columns(rule=pl.lit(rule)).select(
        reported(pl.lit(detail), "episode_id", "step", "locator")
    )
