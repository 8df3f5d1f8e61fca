"""What a build keeps on disk while it works: files without a name, which are gone with the process that made them.

Nothing is left behind by a build that is killed, and two builds never meet in one file.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import xxhash
from msgspec.structs import astuple
from numpy.typing import DTypeLike, NDArray

from logforge.core.platforms import not_on_windows
from logforge.core.stored_rows import StoredRows
from logforge.schemas import Episode, Message, Step, StoreError

Item = TypeVar("Item")
TOGETHER: Final = 512
"""So many episodes are in memory at once at most, and so many bytes of them in their packed form, but for a longer one."""
TOGETHER_BYTES: Final = 32 << 20
_BUFFER = 1 << 20
_ROOM = "look whether the folder may be written and the disk has room"
_SPOOLING = "keeping on disk what a build works on"
_REST = [name for name in Episode.__struct_fields__ if name not in ("messages", "steps")]


def some_at_a_time(episodes: Iterable[Episode]) -> Iterator[list[Episode]]:
    """The episodes in lists that memory holds."""
    return episodes.pieces() if isinstance(episodes, Episodes) else batches(episodes)


def batches(items: Iterable[Item], size: int = TOGETHER) -> Iterator[list[Item]]:
    """The items in lists of so many, one after the other."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


class SpoolFile:
    """Bytes that are appended, and read at any place. The file lies in `folder`, or in the nearest folder above that is there;
    by default where temporary files do."""

    def __init__(self, folder: Path | None = None) -> None:
        self.size, self._folder, self._buffer = 0, folder, bytearray()
        with self._telling(), tempfile.TemporaryFile(dir=folder and _there(folder)) as file:
            self._handle = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._handle)

    def append(self, data: bytes | memoryview) -> int:
        """Add bytes and return where they begin. Raises StoreError when the disk is full."""
        start = self.size
        self._buffer += data
        self.size = start + len(data)
        if len(self._buffer) > _BUFFER:
            self._flush()
        return start

    def put(self, start: int, data: bytes | memoryview) -> None:
        """Write bytes at a place below `size`."""
        if sys.platform == "win32":
            raise not_on_windows(tempfile.gettempdir(), _SPOOLING)
        self._flush()
        with self._telling():
            left = memoryview(data)
            while left:
                done = os.pwrite(self._handle, left, start)
                start, left = start + done, left[done:]

    def extend(self, size: int) -> None:
        """Take room for so many bytes, all zero."""
        self._flush()
        self.size += size
        with self._telling():
            os.ftruncate(self._handle, self.size)
            os.lseek(self._handle, self.size, os.SEEK_SET)

    def read(self, start: int, count: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """So many numbers from a place on, copied: pages of a map would count as memory."""
        found = np.empty(count, dtype)
        self.read_into(found, start)
        return found

    def read_into(self, found: NDArray[Any], start: int) -> None:
        """Fill an array, whose numbers lie one after the other, from a place on."""
        if sys.platform == "win32":
            raise not_on_windows(tempfile.gettempdir(), _SPOOLING)
        self._flush()
        left = found.reshape(-1).view(np.uint8).data
        while left:
            done = os.preadv(self._handle, [left], start)
            start, left = start + done, left[done:]

    def _flush(self) -> None:
        if not self._buffer:
            return
        with self._telling():
            left = memoryview(self._buffer)
            while left:
                left = left[os.write(self._handle, left) :]
        self._buffer = bytearray()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = str(self._folder or tempfile.gettempdir())
            raise StoreError(place, error.strerror or str(error), _ROOM) from error


class SavedFile(SpoolFile):
    """A file that is there already, from a byte on. It is only read, and stays readable when its name is gone."""

    def __init__(self, path: Path, start: int) -> None:
        self._handle, self._start, self._buffer = os.open(path, os.O_RDONLY), start, bytearray()
        weakref.finalize(self, os.close, self._handle)
        self.size = os.fstat(self._handle).st_size - start

    def read_into(self, found: NDArray[Any], start: int) -> None:
        """Fill an array, as SpoolFile does."""
        super().read_into(found, self._start + start)


def _there(folder: Path) -> Path:
    return next(place for place in (folder, *folder.resolve().parents) if place.is_dir())


class EpisodeSpool:
    """Episodes by id; each is read from the disk whenever it is asked for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file, self._places = SpoolFile(folder), dict[str, tuple[int, int]]()
        self._next, self._ahead = 0, (0, memoryview(b""))
        self._told: Callable[[Episode], Episode] | None = None

    def changed(self, change: Callable[[Episode], Episode]) -> EpisodeSpool:
        """The same episodes in the same file, each changed so when it is read."""
        other = copy.copy(self)
        other._told = change
        return other

    def add(self, episode: Episode) -> None:
        """Keep an episode."""
        data = msgspec.msgpack.encode(
            (
                [astuple(message) for message in episode.messages],
                [astuple(step) for step in episode.steps],
                [getattr(episode, name) for name in _REST],
            )
        )
        self._places[episode.episode_id] = self._file.append(data), len(data)

    def size(self, episode_id: str) -> int:
        """The bytes of an episode in its packed form."""
        return self._places[episode_id][1]

    def digest(self, episode_id: str) -> bytes:
        """16 bytes over the packed form of an episode, as it was added."""
        return xxhash.xxh3_128_digest(self._packed(episode_id))

    def _packed(self, episode_id: str) -> memoryview:
        """The packed form of an episode. Where it follows the one before it, those behind it are read along: one call costs more
        than the bytes."""
        start, size = self._places[episode_id]
        first, held = self._ahead
        if not first <= start <= start + size <= first + len(held):
            most = _BUFFER if start == self._next else size
            count = min(max(size, most), self._file.size - start)
            first, held = self._ahead = start, self._file.read(start, count).data
        self._next = start + size
        return held[start - first : start - first + size]

    def __getitem__(self, episode_id: str) -> Episode:
        messages, steps, rest = msgspec.msgpack.decode(self._packed(episode_id))
        episode = Episode(
            messages=[Message(*row) for row in messages],
            steps=[Step(*row) for row in steps],
            **dict(zip(_REST, rest, strict=True)),
        )
        return self._told(episode) if self._told else episode


class Episodes(Collection[Episode]):
    """Some episodes of a spool, in the order of their ids. They may be gone through again and again."""

    def __init__(self, spool: EpisodeSpool, ids: Iterable[str]) -> None:
        self.spool, self.ids = spool, tuple(sorted(ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Episode]:
        return map(self.spool.__getitem__, self.ids)

    def __contains__(self, episode: object) -> bool:
        return isinstance(episode, Episode) and episode.episode_id in self.ids

    def pieces(self) -> Iterator[list[Episode]]:
        """The episodes in lists of at most TOGETHER, and at most TOGETHER_BYTES where it is more than one."""
        piece: list[Episode] = []
        size = 0
        for name in self.ids:
            size += self.spool.size(name)
            if piece and (len(piece) >= TOGETHER or size > TOGETHER_BYTES):
                yield piece
                piece, size = [], self.spool.size(name)
            piece.append(self.spool[name])
        if piece:
            yield piece

    def only(self, kept: Container[str]) -> Episodes:
        """Those whose ids are among these."""
        return Episodes(self.spool, (name for name in self.ids if name in kept))

    def without(self, gone: Container[str]) -> Episodes:
        """Those whose ids are not among these."""
        return Episodes(self.spool, (name for name in self.ids if name not in gone))


class RowSpool:
    """Rows of one shape, appended in pieces and then read as an array that is copied where it is indexed."""

    def __init__(
        self,
        dtype: DTypeLike,
        tail: tuple[int, ...],
        folder: Path | None = None,
        file: SpoolFile | None = None,
    ) -> None:
        self._file, self.dtype, self.tail = file or SpoolFile(folder), np.dtype(dtype), tail

    @classmethod
    def saved(cls, path: Path) -> RowSpool:
        """The rows of an .npy file."""
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        return cls(mapped.dtype, mapped.shape[1:], file=SavedFile(path, mapped.offset))

    @classmethod
    def of(cls, count: int, dtype: DTypeLike, tail: tuple[int, ...], folder: Path | None = None) -> RowSpool:
        """So many rows of zeros, to be put in their places."""
        made = cls(dtype, tail, folder)
        made._file.extend(count * made._row_bytes)
        return made

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows after those there."""
        self._file.append(np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data)

    def put(self, places: NDArray[Any], rows: NDArray[Any]) -> None:
        """Write rows in these places."""
        data = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data
        for number, place in enumerate(places.tolist()):
            start = number * self._row_bytes
            self._file.put(place * self._row_bytes, data[start : start + self._row_bytes])

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self._file.size

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array's."""
        return self._file.size // self._row_bytes, *self.tail

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self.tail, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self))
        count = max(0, stop - start)
        numbers = count * self._row_bytes // self.dtype.itemsize
        found = self._file.read(start * self._row_bytes, numbers, self.dtype)
        return found.reshape(count, *self.tail)

    def take(self, rows: NDArray[Any], axis: int = 0) -> NDArray[Any]:
        """Copies of these rows, read a run of neighbours at a time."""
        found = np.empty((len(rows), *self.tail), self.dtype)
        edges = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
        for first, stop in pairwise(edges) if len(rows) else ():
            self._file.read_into(found[first:stop], int(rows[first]) * self._row_bytes)
        return found

    def as_array(self, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """The rows as an array, read as another type where one is given; what is indexed is copied from the disk, and memory
        holds no more."""
        return StoredRows([self], dtype or self.dtype).as_array()
