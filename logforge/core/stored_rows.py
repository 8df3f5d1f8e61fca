"""Rows on disk that are no plain array of their dtype (several files, or float16) as one array-like of it; and `gather`."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Part(Protocol):
    """What StoredRows asks of its parts: arrays, and what reads its rows from elsewhere."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array's."""

    @property
    def nbytes(self) -> int:
        """Bytes of its rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Array: ...

    def take(self, rows: Array, /, axis: int) -> Array:
        """Copies of these rows."""


class StoredRows:
    """Read-only rows in one or more arrays, indexed along the first axis as one array of `dtype`.

    What is indexed is copied, but for slices within one part of that dtype, which are views. Numpy's functions take it,
    and read all of it.
    """

    def __init__(self, parts: Sequence[Part], dtype: np.dtype[Any]) -> None:
        self.parts, self.dtype = tuple(parts), dtype
        self.starts = np.cumsum([0, *(len(part) for part in parts)])
        self.shape: tuple[int, ...] = (int(self.starts[-1]), *parts[0].shape[1:])

    def as_array(self) -> Array:
        """Itself, for who expects an array: it is indexed like one."""
        return cast(Array, self)

    @property
    def ndim(self) -> int:
        """As an array's."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its rows where they lie."""
        return sum(part.nbytes for part in self.parts)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("rows that lie in several files cannot be one array without a copy")
        return np.asarray(self[:], dtype)

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, tuple):
            return self._columns(key[0], key[1:])
        if isinstance(key, slice):
            return self._slice(*key.indices(len(self)))
        rows = np.asarray(key)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise IndexError(f"{rows.shape} truth values for {len(self)} rows")
            return self.take(np.flatnonzero(rows))
        if rows.ndim == 0:
            row = operator.index(key)
            if not -len(self) <= row < len(self):
                raise IndexError(f"row {row} of {len(self)}")
            place = row % len(self)
            one: Array = self._slice(place, place + 1, 1)[0]
            return one
        if rows.size and not (-len(self) <= rows.min() and rows.max() < len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        flat = np.where(rows < 0, rows + len(self), rows).reshape(-1).astype(np.intp)
        return self.take(flat).reshape(*rows.shape, *self.shape[1:])

    def take(self, rows: Array, out: Array | None = None) -> Array:
        """These rows (numbers from 0, one dimension), into `out` where it is given."""
        if len(self.parts) == 1 and out is None:
            return self.parts[0].take(rows, axis=0).astype(self.dtype, copy=False)
        found = np.empty((len(rows), *self.shape[1:]), self.dtype) if out is None else out
        if len(self.parts) == 1:
            found[...] = self.parts[0].take(rows, axis=0)
            return found
        of = np.searchsorted(self.starts, rows, side="right") - 1
        for part in np.unique(of):
            here = np.flatnonzero(of == part)
            found[here] = self.parts[part].take(rows[here] - self.starts[part], axis=0)
        return found

    def _slice(self, start: int, stop: int, step: int) -> Array:
        if step != 1:
            return self.take(np.arange(start, stop, step))
        pieces = [
            part[max(start - first, 0) : max(stop - first, 0)]
            for part, first in zip(self.parts, self.starts[:-1].tolist(), strict=True)
            if first < stop and first + len(part) > start
        ]
        if len(pieces) == 1:
            return pieces[0].astype(self.dtype, copy=False)
        return np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *pieces], dtype=self.dtype)

    def _columns(self, rows: Any, rest: tuple[Any, ...]) -> Array:
        if isinstance(rows, slice):
            picked: Array = self[rows][(slice(None), *rest)]
        elif np.ndim(rows) == 0:
            picked = self[rows][rest]
        else:
            chosen = np.asarray(rows)
            chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
            picked = self[chosen.reshape(-1)][(np.arange(chosen.size).reshape(chosen.shape), *rest)]
        return picked


class ChosenRows:
    """Some rows of others, in this order, as a part of StoredRows: nothing is copied before it is indexed."""

    def __init__(self, rows: StoredRows, chosen: Array) -> None:
        self._rows, self._chosen, self.dtype = rows, chosen, rows.dtype
        self.shape: tuple[int, ...] = (len(chosen), *rows.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of its rows as they are read."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, rows: slice) -> Array:
        return self._rows.take(self._chosen[rows])

    def take(self, rows: Array, axis: int = 0) -> Array:
        """These rows."""
        return self._rows.take(self._chosen[rows])


def kept_rows(array: Array | StoredRows, kept: Array, on_disk: bool = False) -> Array:
    """The rows that are kept (a truth value each): of StoredRows, and of a mapped array `on_disk`, without reading them."""
    if on_disk and not isinstance(array, StoredRows):
        array = StoredRows([array], array.dtype)
    if isinstance(array, StoredRows):
        return StoredRows([ChosenRows(array, np.flatnonzero(kept))], array.dtype).as_array()
    return array[kept]


def gather(array: Array | StoredRows, rows: Array, out: Array) -> Array:
    """Copy these rows, all of them there, into `out`: it need not be new memory, which costs more than the copy."""
    if isinstance(array, StoredRows):
        return array.take(rows, out)
    # With "raise", the default, numpy would fill a buffer of its own first.
    return np.take(array, rows, axis=0, out=out, mode="clip")
