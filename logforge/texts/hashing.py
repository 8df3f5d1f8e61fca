"""Texts to vectors without a model: hashed character n-grams and words (Weinberger et al. 2009), of many texts at once.

Half of the columns count character n-grams within words and their borders, half count words. Every feature falls by its
hash on one column with one sign, so that collisions cancel out on average; each half has length 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from logforge.texts.similarity import tokens

F32 = npt.NDArray[np.float32]
U64 = npt.NDArray[np.uint64]
Features = Iterator[tuple[npt.NDArray[np.intp], U64]]
"""Where features begin in some texts, and their hashes."""
COLUMNS = 256
"""Of each half."""
LONGEST = 5
"""N-grams of 3 characters up to this."""
DENSE = 0x2E80
"""From here on lie the scripts that put no spaces between words: two characters are as telling there."""
SHORTEST_WORD = 2
_SETTINGS = {"version": 2, "chars": [3, LONGEST], "dense": DENSE, "words": SHORTEST_WORD, "columns": COLUMNS}
_PIECE = 1 << 15
"""Characters hashed together, about: more no longer fit into a core's cache."""
_SPACE = 32
_PRIME = np.uint64(0x100000001B3)
_POINTS = 0x110000


class _Text(NamedTuple):
    """Some texts as one array of code points: lower case, one space between words and at both ends of each text."""

    points: U64
    owner: npt.NDArray[np.int64]
    rows: int


class HashingEncoder:
    """Learns nothing, needs no model, and gives a text the same bytes whatever texts stand beside it."""

    name = "hashing"
    batch = 2048
    revision = xxhash.xxh3_64_hexdigest(msgspec.json.encode(_SETTINGS, order="sorted"))
    dim = 2 * COLUMNS

    def __init__(self) -> None:
        self.truncated = 0

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text, of length 1 (zeros for a text without a letter or digit)."""
        return np.concatenate([np.zeros((0, self.dim), np.float32), *map(self._rows, _pieces(texts))])

    def encode_tokens(self, text: str) -> F32:
        """One row per word, of length 1: its hashed character n-grams."""
        words = tokens(text)
        parts = [_unit(_counted(piece, _ngrams(piece))) for piece in _pieces(words)]
        return np.concatenate([np.zeros((0, COLUMNS), np.float32), *parts])

    def _rows(self, text: _Text) -> F32:
        halves = [_unit(_counted(text, _ngrams(text))), _unit(_counted(text, self._words(text)))]
        filled = sum(half.any(axis=1).astype(np.float32) for half in halves)
        scale = np.sqrt(np.maximum(filled, 1)).astype(np.float32)
        rows: F32 = np.concatenate(halves, axis=1) / scale[:, None]
        return rows

    def _words(self, text: _Text) -> Features:
        """Where each word of at least two letters or digits begins, and its hash."""
        inside = _in_words()[text.points]
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        if not len(starts):
            return
        places = np.arange(len(inside))
        begun = np.zeros(len(inside), np.int64)
        begun[starts] = starts
        places -= np.maximum.accumulate(begun)
        powers = np.multiply.accumulate(np.full(int((ends - starts).max()), _PRIME))
        letters = np.flatnonzero(inside)
        weighed = np.zeros(len(inside), np.uint64)
        weighed[letters] = (text.points[letters] + np.uint64(1)) * powers[places[letters]]
        long = ends - starts >= SHORTEST_WORD
        yield starts[long], np.add.reduceat(weighed, starts)[long]


@cache
def _in_words() -> npt.NDArray[np.bool_]:
    """For each code point whether it belongs to a word."""
    return np.fromiter((chr(point).isalnum() or point == ord("_") for point in range(_POINTS)), bool, _POINTS)


def _pieces(texts: Sequence[str]) -> Iterator[_Text]:
    """The texts in order, so many together that they stay below the bound on memory."""
    plain = [f" {' '.join(text.lower().split())} " for text in texts]
    part = [length // _PIECE for length in accumulate(map(len, plain))]
    for _, group in groupby(zip(plain, part, strict=True), key=itemgetter(1)):
        chosen = [text for text, _ in group]
        points = np.frombuffer("".join(chosen).encode("utf-32-le", "surrogatepass"), "<u4")
        owner = np.repeat(np.arange(len(chosen)), [len(text) for text in chosen])
        yield _Text(points.astype(np.uint64), owner, len(chosen))


def _ngrams(text: _Text) -> Features:
    """For each length, where the n-grams begin, and their hashes. One may begin or end with a space and holds no other: the
    two spaces where texts meet let none reach over."""
    inner = text.points != _SPACE
    hashes, within = text.points, np.ones(len(text.points), bool)
    for size in range(2, LONGEST + 1):
        hashes = hashes[:-1] * _PRIME + text.points[size - 1 :]
        within = within[: len(hashes)]
        if size == 2:
            dense = text.points >= DENSE
            places = np.flatnonzero(dense[:-1] & dense[1:])
        else:
            within = within & inner[size - 2 : size - 2 + len(hashes)]
            places = np.flatnonzero(within)
        yield places, hashes[places] + np.uint64(size)


def _counted(text: _Text, features: Features) -> npt.NDArray[np.float64]:
    """The signed counts of each text's features, by the column on which their hashes fall."""
    total = np.zeros(text.rows * COLUMNS)
    for places, hashes in features:
        mixed = _mixed(hashes)
        column = text.owner[places] * COLUMNS + (mixed % np.uint64(COLUMNS)).astype(np.int64)
        sign = 1.0 - 2.0 * ((mixed >> np.uint64(32)) & np.uint64(1)).astype(np.float64)
        total += np.bincount(column, sign, len(total))
    return total.reshape(text.rows, COLUMNS)


def _mixed(hashes: U64) -> U64:
    """Every bit depends on every bit (the finaliser of splitmix64, Steele et al. 2014)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _unit(rows: npt.NDArray[np.float64]) -> F32:
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return (rows / np.where(length > 0, length, 1)).astype(np.float32)
