"""States that are equal but for the wording of their texts: the level `near` of conflicts.

Two states are near when everything in their observations but the texts is equal (the tools on offer, the last calls with
their statuses, counters, who spoke last), and the cosine of their texts' vectors is at least the threshold. The texts'
vectors are the observation's columns of task, last message, dialogue window and thought, side by side. Time is no part
of a state's key, so it is none here. States are grouped round leaders (near_vectors.py), the most frequent first; a
group goes by its leader's state_key. So every state is within the threshold of the one it is compared under.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from logforge.arrays import SplitArrays
from logforge.near_vectors import F32, Rows, leaders, unit
from logforge.schemas.errors import UsageError
from logforge.schemas.manifest import FeatureSlice

THRESHOLD = 0.98
"""The cosine at which states count as near, unless told otherwise."""
TEXTS: frozenset[str] = frozenset(
    {"task", "last_message", "window.user", "window.assistant", "window.tool", "thought"}
)
"""The parts of an observation that are vectors of texts."""
CLOCKS: frozenset[str] = frozenset(
    {"meta.elapsed", "meta.elapsed_known", "meta.hour_sin", "meta.hour_cos", "meta.hour_known"}
)
"""The parts that tell the time."""

_SCHEMA = {"exact": pl.String, "near": pl.String, "cosine": pl.Float64}


def near_states(
    transitions: pl.DataFrame,
    arrays: Mapping[str, SplitArrays],
    layout: Sequence[FeatureSlice],
    threshold: float,
) -> pl.DataFrame:
    """The states that are near another one: exact (state_key), near (its leader's state_key) and cosine, by state_key.

    `arrays` holds the arrays of each split, in the order of its transitions by episode and step, and `layout` names the
    columns of their observations. Augmented rows are left out. A threshold of 1 leaves nothing near, and neither does an
    observation without texts.
    """
    if not 0 < threshold <= 1:
        raise UsageError(
            f"near threshold {threshold}", "give a cosine above 0 and up to 1; 1 leaves the level out"
        )
    texts = _columns(layout, TEXTS)
    if threshold == 1 or not len(texts):
        return pl.DataFrame(schema=_SCHEMA)
    states = _distinct(transitions)
    observations = _observations(states, arrays)
    vectors = unit(observations[:, texts])
    parts: list[tuple[Rows, Rows, npt.NDArray[np.float64]]] = []
    for part in _alike(observations[:, _others(layout)]):
        taken_by, cosines = leaders(vectors[part], threshold)
        parts.append((part, part[taken_by], cosines))
    if not parts:
        return pl.DataFrame(schema=_SCHEMA)
    members, led_by, cosines = (np.concatenate(column) for column in zip(*parts, strict=True))
    keys = states["exact"]
    found = pl.DataFrame({"exact": keys[members], "near": keys[led_by], "cosine": cosines}, schema=_SCHEMA)
    return found.filter(pl.len().over("near") > 1).sort("exact")


def _distinct(transitions: pl.DataFrame) -> pl.DataFrame:
    """Each logged state once, the most frequent first, with the first place that shows it: split, and row within it."""
    place = pl.int_range(pl.len()).over("split")
    order = transitions.sort("episode_id", "step").select(
        "split", "parent_id", exact="state_key", place=place
    )
    states = (
        order.filter(pl.col("parent_id").is_null())
        .group_by("exact", maintain_order=True)
        .agg(pl.col("split", "place").first(), rows=pl.len())
    )
    return states.sort("rows", "exact", descending=[True, False])


def _observations(states: pl.DataFrame, arrays: Mapping[str, SplitArrays]) -> F32:
    """One row per state."""
    size = max((part.observation_size for part in arrays.values()), default=0)
    found = np.empty((states.height, size), np.float32)
    for split, part in arrays.items():
        here = (states["split"] == split).to_numpy()
        found[here] = part.observations[part.observation_rows[states["place"].to_numpy()[here]]]
    return found


def _alike(rest: F32) -> Iterator[Rows]:
    """The rows with the same values in all columns, in order, one array for each set of at least two."""
    flat = np.ascontiguousarray(rest).view(np.dtype((np.void, max(1, rest.shape[1]) * rest.itemsize)))
    same = np.unique(flat.ravel(), return_inverse=True)[1] if rest.shape[1] else np.zeros(len(rest), np.int64)
    order = np.argsort(same, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(same[order])) + 1):
        if len(part) > 1:
            yield part


def _columns(layout: Sequence[FeatureSlice], names: frozenset[str]) -> Rows:
    chosen = [np.arange(item.start, item.stop) for item in layout if item.name in names]
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _others(layout: Sequence[FeatureSlice]) -> Rows:
    return _columns(layout, frozenset(item.name for item in layout) - TEXTS - CLOCKS)
