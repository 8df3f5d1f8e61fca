"""States that are equal but for the wording of their texts: the level `near` of conflicts.

Two states are near when everything in their observations but the texts is equal (the tools on offer, the last calls with
their statuses and arguments, counters, who spoke last), and the cosine of their texts' vectors is at least the threshold. The
texts' vectors are the observation's columns of task, last message, dialogue window and thought, and of what is remembered of
answers and of the user, side by side. What texts say word for word has no say here, and time is no part of a state's key. States are grouped round leaders (neighbours.py), the most frequent first; a
group goes by its leader's state_key. So every state is within the threshold of the one it is compared under.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import xxhash

from logforge.dataset.conflicts.neighbours import F32, Rows, leaders, unit
from logforge.schemas import FeatureSlice, UsageError
from logforge.shards import SplitArrays

TEXTS: frozenset[str] = frozenset(
    {
        "task", "last_message", "window.user", "window.assistant", "window.tool", "thought",
        "memory.answer", "memory.said_most", "memory.said_least",
    }
)  # fmt: skip
"""The parts of an observation that are vectors of texts."""
WORDINGS = re.compile(r"memory\.facts|history\.\d+\.result")
"""The parts that hold texts of the others once more: word for word, or as the first numbers of their vectors."""
CLOCKS = re.compile(r"meta\.(elapsed|hour)_?\w*|history\.\d+\.latency(_known)?")
"""The parts that tell the time."""

_TOGETHER = 1 << 13
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
    parts: list[tuple[Rows, Rows, npt.NDArray[np.float64]]] = []
    for part in _alike(states, arrays, _others(layout)):
        vectors = unit(_observations(states[part], arrays, texts))
        taken_by, cosines = leaders(vectors, threshold)
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


def _observations(states: pl.DataFrame, arrays: Mapping[str, SplitArrays], columns: Rows) -> F32:
    """One row per state, with these columns of its observation."""
    found = np.empty((states.height, len(columns)), np.float32)
    splits, places = states["split"], states["place"].to_numpy()
    for split, part in arrays.items():
        here = np.flatnonzero((splits == split).to_numpy())
        for start in range(0, len(here), _TOGETHER):
            rows = here[start : start + _TOGETHER]
            found[rows] = part.observations[part.observation_rows[places[rows]]][:, columns]
    return found


def _alike(states: pl.DataFrame, arrays: Mapping[str, SplitArrays], columns: Rows) -> Iterator[Rows]:
    """The rows with the same values in these columns, in order, one array for each set of at least two. Rows are told apart by
    a hash of 128 bits: together the columns may be more than memory holds."""
    keys = np.empty(states.height, "V16")
    for start in range(0, states.height, _TOGETHER):
        rest = np.ascontiguousarray(_observations(states[start : start + _TOGETHER], arrays, columns))
        keys[start : start + _TOGETHER] = np.frombuffer(
            b"".join(xxhash.xxh3_128_digest(row.data) for row in rest), "V16"
        )
    same = np.unique(keys, return_inverse=True)[1]
    order = np.argsort(same, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(same[order])) + 1):
        if len(part) > 1:
            yield part


def _columns(layout: Sequence[FeatureSlice], names: frozenset[str]) -> Rows:
    chosen = [np.arange(item.start, item.stop) for item in layout if item.name in names]
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _others(layout: Sequence[FeatureSlice]) -> Rows:
    left = (item.name for item in layout if not WORDINGS.fullmatch(item.name))
    return _columns(layout, frozenset(name for name in left if not CLOCKS.fullmatch(name)) - TEXTS)
