"""Which of a policy's decisions the log supports: was the action ever taken in a similar state of the train split?

Similar to a state are its 20 nearest train decisions by Euclidean distance between observations, as far as they lie within
a radius: the 95th percentile of the distance from a train decision to the nearest one of another split group, for held-out
episodes have no sibling in train either. A state with no train decision within the radius has no similar state, and nothing
is known about any action there. Augmented copies are left out: they repeat their parents' decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.shards import SplitArrays

NEIGHBOURS: Final = 20
RADIUS_PERCENTILE: Final = 95
_RADIUS_SAMPLE = 2000
_CHUNK = 256
_ROUNDING = 1e-6
"""Equal observations come out this far apart, relative to their length, when distances are made of products."""


class Similar(NamedTuple):
    """For each held-out decision, the actions logged in similar states [decisions, up to 20]; −1 where there is none."""

    actions: NDArray[np.int64]
    radius: float

    def shares(self, choices: NDArray[Any]) -> Support:
        """How many of these choices, one per decision, the log supports."""
        alone = (self.actions < 0).all(axis=1)
        taken = (self.actions == choices[:, None]).any(axis=1)
        return Support(float((~taken & ~alone).mean()), float(alone.mean()))

    def counts(self, choices: NDArray[Any]) -> NDArray[np.int64]:
        """In how many of the similar states the log took the decision's choice [decisions]; 0 is no evidence."""
        found: NDArray[np.int64] = (self.actions == choices[:, None]).sum(axis=1)
        return found


class Support(NamedTuple):
    """Shares of decisions: on actions never logged in similar states, and in states with no similar one."""

    never_logged: float
    no_similar_state: float


def similar_actions(train: SplitArrays, held: SplitArrays, *, same: bool = False) -> Similar:
    """Look up the train decisions that resemble each held-out decision. `same`: `held` is the train split itself, and what lies
    in a decision's own split group is no evidence for it."""
    logged = ~train.augmented[train.episode_index]
    taken, groups = train.actions[logged], train.groups[train.episode_index][logged]
    known = train.observations[train.observation_rows[logged]].astype(np.float64)
    asked = held.observations[held.observation_rows].astype(np.float64)
    centre = known.mean(axis=0)
    known, asked = known - centre, asked - centre
    length = float(np.sqrt((known**2).sum(axis=1).mean()))
    radius = _radius(known, groups)
    count = min(NEIGHBOURS, len(known))
    found = np.full((len(asked), count), -1, dtype=np.int64)
    for rows, distances in _distances(asked, known):
        if same:
            distances[held.groups[held.episode_index[rows], None] == groups[None, :]] = np.inf
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        near = np.take_along_axis(distances, nearest, axis=1) <= radius + _ROUNDING * length
        found[rows] = np.where(near, taken[nearest], -1)
    return Similar(found, radius)


def _radius(known: NDArray[np.float64], groups: NDArray[Any]) -> float:
    """Evenly spaced decisions stand for all where there are many."""
    sample = np.unique(np.linspace(0, len(known) - 1, min(len(known), _RADIUS_SAMPLE)).astype(int))
    nearest = np.empty(len(sample))
    for rows, distances in _distances(known[sample], known):
        distances[groups[sample[rows], None] == groups[None, :]] = np.inf
        nearest[rows] = distances.min(axis=1)
    finite = nearest[np.isfinite(nearest)]
    return float(np.percentile(finite, RADIUS_PERCENTILE)) if len(finite) else 0.0


def _distances(
    asked: NDArray[np.float64], known: NDArray[np.float64]
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    squares = (known**2).sum(axis=1)
    for start in range(0, len(asked), _CHUNK):
        part = asked[start : start + _CHUNK]
        squared = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ known.T
        yield slice(start, start + len(part)), np.sqrt(np.maximum(squared, 0))
