"""An earlier dataset's actions and columns in a later one: what has grown, and what of the earlier still holds.

A later build with `--like EARLIER` keeps the ids of actions, lets new ones follow, and keeps what reduces texts. Blocks of an
observation that have columns for each action, action by action, grow with it, each at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array
from logforge.learning.policies import Layer, Layers, PolicyCard, features_of
from logforge.schemas import FeatureSlice, Manifest, Mismatch

_REMEDY = "build the later dataset with --like EARLIER and the same state settings"


@dataclass(frozen=True, eq=False)
class Growth:
    """`columns` says where each of the earlier columns is now, `actions` how many actions there were; `size` and
    `action_size` are how many columns and actions there are now."""

    columns: NDArray[np.int64]
    size: int
    actions: int
    action_size: int

    @classmethod
    def between(cls, earlier: PolicyCard | Manifest, later: Manifest, what: str) -> Growth:
        """Raises Mismatch where an id or a block changed its meaning; `what` names the earlier thing in the error."""
        known = later.actions[: len(earlier.actions)]
        if known != tuple(earlier.actions):
            raise Mismatch(f"{what}: action vocabulary", list(earlier.actions), list(known), _REMEDY)
        old = features_of(earlier) if isinstance(earlier, Manifest) else earlier.features
        for name, asked, found in zip(old._fields, old, features_of(later), strict=True):
            if asked != found:
                raise Mismatch(f"{what}: {name.replace('_', ' ')}", asked, found, _REMEDY)
        columns = _columns(earlier.layout, later.layout, (len(earlier.actions), len(later.actions)), what)
        return cls(columns, later.observation_size, len(earlier.actions), len(later.actions))

    @property
    def changes(self) -> bool:
        """Whether there is anything new."""
        return len(self.columns) != self.size or self.actions != self.action_size

    def observations(self, rows: Float32Array) -> Float32Array:
        """Earlier observations [..., columns] as they are now: 0 in the new columns."""
        grown = np.zeros((*rows.shape[:-1], self.size), np.float32)
        grown[..., self.columns] = rows
        return grown

    def masks(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Earlier masks [rows, actions] as they are now: nothing new was on offer."""
        grown = np.zeros((len(rows), self.action_size), np.bool_)
        grown[:, : self.actions] = rows
        return grown

    def layers(self, earlier: Layers, fresh: Layers) -> Layers:
        """Earlier layers for what there is now: new columns weigh nothing, new actions have `fresh` rows of the last layer."""
        first, last = earlier[0], earlier[-1]
        weight = np.zeros((first.weight.shape[0], self.size), np.float32)
        weight[:, self.columns] = first.weight
        grown = [Layer(weight, first.bias), *earlier[1:]]
        last = grown[-1]
        tail = Layer(fresh[-1].weight[self.actions :], fresh[-1].bias[self.actions :])
        grown[-1] = Layer(*(np.concatenate(pair) for pair in zip(last, tail, strict=True)))
        return tuple(grown)


def _columns(
    earlier: Sequence[FeatureSlice], later: Sequence[FeatureSlice], sizes: tuple[int, int], what: str
) -> NDArray[np.int64]:
    names, now = [part.name for part in earlier], [part.name for part in later]
    if names != now:
        raise Mismatch(f"{what}: blocks of an observation", names, now, _REMEDY)
    found = []
    for old, new in zip(earlier, later, strict=True):
        size, now_size = old.stop - old.start, new.stop - new.start
        each, rest = divmod(size, sizes[0])
        if now_size != size and (rest or now_size != each * sizes[1]):
            raise Mismatch(f"{what}: columns of the block {old.name!r}", size, now_size, _REMEDY)
        if old.meaning != new.meaning:
            raise Mismatch(f"{what}: meaning of the block {old.name!r}", old.meaning, new.meaning, _REMEDY)
        found.append(np.arange(new.start, new.start + size))
    return np.concatenate(found).astype(np.int64)
