"""How often each of many keys was seen, in a few bytes a key: hashes of words and of texts, of which logs hold no end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Keys = NDArray[Any]
_PENDING = 1 << 16


class Tally:
    """Counts by key; keys are numbers or bytes of one length, and lie sorted in an array."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._keys, self._counts = np.zeros(0, dtype), np.zeros(0, np.int64)
        self._pending: Counter[Any] = Counter()

    def add(self, seen: Mapping[Any, int] | Iterable[Any]) -> None:
        """Count some more keys: once each, or as often as a mapping says."""
        self._pending.update(seen)
        if len(self._pending) >= _PENDING:
            self._merge()

    def keys(self) -> Keys:
        """All keys, sorted."""
        self._merge()
        return self._keys

    def above(self, count: float) -> Keys:
        """The keys that were counted more often."""
        self._merge()
        found: Keys = self._keys[self._counts > count]
        return found

    def of(self, keys: Keys) -> NDArray[np.int64]:
        """The counts of these keys; 0 for one that was not seen."""
        self._merge()
        places = places_in(self._keys, keys)
        found = np.zeros(len(keys), np.int64)
        found[places >= 0] = self._counts[places[places >= 0]]
        return found

    def lacks(self, keys: list[Any]) -> list[Any]:
        """Those of some keys that were not seen, in their order."""
        left = [key for key in keys if key not in self._pending]
        places = places_in(self._keys, np.array(left, self._keys.dtype))
        return [key for key, place in zip(left, places, strict=True) if place < 0]

    def _merge(self) -> None:
        if not self._pending:
            return
        fresh = np.array(list(self._pending), self._keys.dtype)
        both = np.concatenate([self._keys, fresh])
        counts = np.concatenate([self._counts, np.fromiter(self._pending.values(), np.int64, len(fresh))])
        order = np.argsort(both, kind="stable")
        self._keys, starts = np.unique(both[order], return_index=True)
        self._counts = np.add.reduceat(counts[order], starts)
        self._pending = Counter()


def places_in(known: Keys, wanted: Keys) -> NDArray[np.int64]:
    """Where each of the wanted keys stands among the sorted ones; -1 where it does not."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[places] == wanted, places, -1)
