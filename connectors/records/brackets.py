"""Where the brackets and commas of JSON stand, outside its strings: told from bytes, block by block, in damaged text too.

A JSON document is cut into its elements with this and each is parsed on its own, which takes less time than to parse the
whole (a long document does not fit the caches) and hardly any memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 20
"""Bytes read at once."""
_HEAD = 4096
_LONG = 4096
"""From here on counting with numpy pays."""

_QUOTE, _BACKSLASH, _COMMA = ord('"'), ord("\\"), ord(",")
# `[` and `{` differ in one bit, `]` and `}` in the same one.
_SAME, _OPENS, _CLOSES = 0xDF, ord("["), ord("]")


class Marks(NamedTuple):
    """The brackets and commas of a block: where each stands in it, whether it is a comma, and the depth behind it."""

    places: NDArray[np.int64]
    commas: NDArray[np.bool_]
    depths: NDArray[np.int64]


_NO_MARKS = Marks(np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int64))


class Scanner:
    """Takes the blocks of a text in order, none of which ends within an escape. A quote behind a backslash is none."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False

    def marks(self, block: bytes) -> Marks:
        """What stands outside the strings of the next block."""
        data = np.frombuffer(block, np.uint8)
        same = data & _SAME
        places = np.flatnonzero((same == _OPENS) | (same == _CLOSES) | (data == _COMMA) | (data == _QUOTE))
        is_quote = data[places] == _QUOTE
        quotes = is_quote & ~_escaped(data, places, is_quote)
        texts = self._in_text + np.cumsum(quotes, dtype=np.int64)
        self._in_text = bool(texts[-1] % 2) if len(texts) else self._in_text
        places = places[~is_quote & (texts % 2 == 0)]
        kind = same[places]
        depths = self._depth + np.cumsum(
            (kind == _OPENS).view(np.int8) - (kind == _CLOSES).view(np.int8), dtype=np.int64
        )
        self._depth = int(depths[-1]) if len(depths) else self._depth
        return Marks(places, data[places] == _COMMA, depths)


def _escaped(
    data: NDArray[np.uint8], places: NDArray[np.int64], is_quote: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which of the places are quotes behind an odd number of backslashes."""
    found: NDArray[np.bool_] = is_quote & (places > 0) & (data[np.maximum(places - 1, 0)] == _BACKSLASH)
    several = np.flatnonzero(found & (places > 1) & (data[np.maximum(places - 2, 0)] == _BACKSLASH))
    if len(several):
        slashes = np.flatnonzero(data == _BACKSLASH)
        begins = np.concatenate(([True], np.diff(slashes) > 1))
        first = np.maximum.accumulate(np.where(begins, np.arange(len(slashes)), 0))
        last = np.searchsorted(slashes, places[several]) - 1
        found[several] = (last - first[last]) % 2 == 0
    return found


def blocks(file: BinaryIO, size: int = BLOCK) -> Iterator[bytes]:
    """The rest of a file in pieces that do not end within an escape."""
    while block := file.read(size):
        while (len(block) - len(block.rstrip(b"\\"))) % 2 and (more := file.read(1)):
            block += more
        yield block


class Piece(NamedTuple):
    """What stands between two cuts. `data` is None when that is more than the limit; `head` is how it begins."""

    data: bytes | None
    begin: int
    """Where in the file."""
    size: int
    head: bytes
    depth: int
    """It is nested no deeper than this."""
    is_rest: bool = False
    """It follows the bracket that closes the array."""


def pieces(file: BinaryIO, begin: int, limit: int, block: int = BLOCK) -> Iterator[Piece]:
    """The elements of the array (the members of the object) whose bracket stands at `begin`, blank ones too.

    What follows its closing bracket is the last piece, and so is what follows an extra or missing bracket, which cannot be
    told apart. No more than `limit` bytes of a piece are held.
    """
    file.seek(begin + 1)
    scanner, held = Scanner(), _Held(begin + 1, limit)
    scanner.marks(b"[")
    is_open = True
    for data in blocks(file, block):
        start = 0
        marks = scanner.marks(data) if is_open else _NO_MARKS
        held.deepen(int(marks.depths.max(initial=0)))
        for place, is_last in _cuts(marks):
            held.add(data, start, place)
            yield held.take()
            start = place + 1
            is_open = not is_last
        held.add(data, start, len(data))
    yield held.take()._replace(is_rest=not is_open)


def _cuts(marks: Marks) -> Iterator[tuple[int, bool]]:
    """The places in a block where a piece ends, up to the one where its array ends, which is marked."""
    closed = np.flatnonzero(marks.depths == 0)
    end = int(closed[0]) if len(closed) else len(marks.depths)
    places = marks.places[:end][marks.commas[:end] & (marks.depths[:end] == 1)]
    yield from ((place, False) for place in places.tolist())
    if len(closed):
        yield int(marks.places[end]), True


class _Held:
    """A piece as it comes in."""

    def __init__(self, begin: int, limit: int) -> None:
        self._limit = limit
        self._begin = begin
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._depth = self._block_depth = 0

    def deepen(self, depth: int) -> None:
        """The block at hand is so deep, which holds for every piece in it."""
        self._block_depth = depth
        self._depth = max(self._depth, depth)

    def add(self, block: bytes, start: int, end: int) -> None:
        """A part of the piece, all that this block has of it."""
        if len(self._head) < _HEAD:
            self._head += block[start : min(end, start + _HEAD)]
        self._size += end - start
        if self._size <= self._limit:
            self._parts.append(block[start:end])
        else:
            self._parts.clear()

    def take(self) -> Piece:
        """The piece, now that it is whole; the next one begins behind the cut."""
        data = b"".join(self._parts) if self._size <= self._limit else None
        piece = Piece(data, self._begin, self._size, self._head, self._depth - 1)
        self._begin += self._size + 1
        self._parts, self._size, self._head, self._depth = [], 0, b"", self._block_depth
        return piece


def openings(data: bytes | str) -> int:
    """How many `[` and `{` there are, those within strings too: no less than the depth."""
    if isinstance(data, str):
        return data.count("[") + data.count("{")
    if len(data) < _LONG:
        return data.count(b"[") + data.count(b"{")
    return int(np.count_nonzero((np.frombuffer(data, np.uint8) & _SAME) == _OPENS))


def deepest_of_first(data: bytes) -> int:
    """How many levels deep the first of several JSON texts is nested, or what there is of it."""
    depths = Scanner().marks(data.rstrip(b"\\")).depths
    ends = np.flatnonzero(depths <= 0)
    return int(depths[: ends[0] if len(ends) else None].max(initial=0))


def deepest(data: bytes) -> int:
    """How many levels deep the brackets of a JSON text are nested."""
    scanner = Scanner()
    return max(
        (int(scanner.marks(block).depths.max(initial=0)) for block in blocks(BytesIO(data))), default=0
    )
