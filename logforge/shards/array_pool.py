"""Arrays that are given out again once nobody holds them: fresh memory is paid for page by page, at each batch."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_KINDS = 32
_KEPT = 8
"""Arrays kept of one kind; who holds on to more gets new ones."""


def _references(arrays: list[NDArray[Any]]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


_UNHELD = _references([np.empty(0)])[0]
"""References to an array that nothing but such a list holds: how many it takes to ask differs between Pythons."""


class Spare(threading.local):
    """Gives out uninitialised arrays. One that a caller holds (itself, or by a view or a tensor) is never given again.

    Each thread has its own: between the count and the giving another might take the same.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[tuple[int, ...], np.dtype[Any]], list[NDArray[Any]]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array of this shape and dtype, holding anything."""
        if len(self._arrays) > _KINDS:
            self._arrays.clear()
        arrays = self._arrays[shape, np.dtype(dtype)]
        for place, count in enumerate(_references(arrays)):
            if count <= _UNHELD:
                return arrays[place]
        made: NDArray[Any] = np.empty(shape, dtype)
        if len(arrays) < _KEPT:
            arrays.append(made)
        return made
