"""Finds episodes that say and do nearly the same: MinHash names candidates, and only their exact similarity counts.

An episode's text is its task, what the user and the agent said, and the calls with their arguments. Prompts of the system
and results of tools are left out: thousands of episodes share those. It is read as sets of three words in a row. So is
what stands in the episodes of many tasks of a format (few-shot examples, a template around the question): BOILERPLATE.
Two episodes are near-duplicates when the Jaccard similarity of what is left is at least THRESHOLD.

Candidates share one of 25 bands of 5 MinHashes (Broder 1997; banding: Leskovec, Rajaraman, Ullman, Mining of Massive
Datasets, §3.4). Of pairs at the threshold 1 in 20,000 is missed; more similar ones are missed still more rarely.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from logforge.core import SpoolFile
from logforge.schemas import Episode

THRESHOLD = 0.8
"""docs/splits.md shows what lies above and below it in public logs."""
LEAST = 20
"""Fewer distinct word triples say too little: greetings and one-line questions are alike without being copies."""
SHARED_TASKS, SHARED_SHARE = 10, 0.05
"""BOILERPLATE is what more than 10 tasks, and more than one in twenty of a format's tasks, have in their episodes."""

BANDS, ROWS = 25, 5
_DOUBT = 0.15
"""More than four standard errors of a similarity of 0.8 as 125 MinHashes estimate it."""
_CHUNK = 1 << 17
_COUNTED = 1 << 22
_WORDS = 1 << 20
# Scripts without spaces between words are read letter by letter.
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)

Hashes = NDArray[np.uint64]
SCHEMA = pl.Schema(
    {"episode_a": pl.String, "episode_b": pl.String, "similarity": pl.Float64, "shingles": pl.Int64}
)
"""What `near_duplicates` gives: the pair, a < b, its similarity, and how many word triples it has in common."""


class _Words(dict[str, int]):
    """The 64-bit hash of each word, as a rule made once: logs hold no end of ids, so it begins anew when it is full."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _WORDS:
            self.clear()
        found = self[word] = xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
        return found


class _Text(NamedTuple):
    """What is compared of an episode. `task` says which task it is, for counting those that share a triple; `digest` is that of
    its shingles, which lie at a place of `_Sets`."""

    episode_id: str
    format: str
    task: str
    digest: bytes
    place: int


class _Sets(Sequence[Hashes]):
    """Sets of hashes, sorted, on disk: together they may take half of what the texts take."""

    def __init__(self, folder: Path | None) -> None:
        self._file, self._starts, self.lengths = SpoolFile(folder), array("Q"), array("Q")

    def append(self, hashes: Hashes) -> int:
        """Add a set and return its place."""
        self._starts.append(self._file.append(hashes.data.cast("B") if len(hashes) else b""))
        self.lengths.append(len(hashes))
        return len(self.lengths) - 1

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, place: int) -> Hashes: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Hashes]: ...
    def __getitem__(self, place: int | slice) -> Hashes | Sequence[Hashes]:
        if isinstance(place, slice):
            return [self[item] for item in range(*place.indices(len(self)))]
        return self._file.read(self._starts[place], self.lengths[place], np.uint64)


def near_duplicates(episodes: Iterable[Episode], folder: Path | None = None) -> pl.DataFrame:
    """The verified near-duplicates among episodes, whatever their order: columns as in SCHEMA, sorted by pair.

    Each cluster comes as a tree of pairs: a pair that others already connect is not listed again, so that a thousand
    copies are 999 rows. What is compared lies on disk, in `folder`, and memory holds 500 bytes of each episode.
    """
    words, sets = _Words(), _Sets(folder)
    found = (_text(episode, words, sets) for episode in episodes)
    texts = sorted((text for text in found if text is not None), key=lambda text: text.episode_id)
    first, pairs = _identical(texts, sets)
    rest, distinctive = _distinctive(texts, first, sets, _Sets(folder))
    pairs += [(rest[a], rest[b], similarity, shared) for a, b, similarity, shared in _verified(distinctive)]
    return pl.DataFrame(pairs, schema=SCHEMA, orient="row").sort("episode_a", "episode_b")


def text_of(episode: Episode) -> str:
    """What the similarity of episodes goes by: the task, what was said, and what was done."""
    said = [m.content for m in episode.messages if m.content and m.role in ("user", "assistant")]
    done = [f"{step.action} {step.arguments}" for step in episode.steps]
    task = [episode.task] if episode.task and (not said or episode.task not in said[0]) else []
    return "\n".join([*task, *said, *done])


def shingles_of(text: str, words: dict[str, int] | None = None) -> Hashes:
    """The sorted distinct hashes of every three words in a row; letter case and punctuation do not count."""
    known = _Words() if words is None else words
    hashes = np.array([known[word] for word in _WORD.findall(text.lower())], dtype=np.uint64)
    if len(hashes) < len(_MIX):
        return np.zeros(0, np.uint64)
    span = len(hashes) - len(_MIX) + 1
    mixed = np.zeros(span, np.uint64)
    for place, factor in enumerate(_MIX):
        mixed = (mixed ^ (hashes[place : place + span] * np.uint64(factor))) * np.uint64(_MIX[0])
    return np.unique(mixed)


def jaccard(a: Hashes, b: Hashes) -> tuple[float, int]:
    """The Jaccard similarity of two sets of hashes, and how many they share."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    either = len(a) + len(b) - shared
    return (shared / either if either else 0.0), shared


def _text(episode: Episode, words: _Words, sets: _Sets) -> _Text | None:
    """What is compared of an episode; None where it says too little."""
    shingles = shingles_of(text_of(episode), words)
    if len(shingles) < LEAST:
        return None
    task = episode.task_id or episode.task or episode.episode_id
    digest = xxhash.xxh3_128_digest(shingles.tobytes())
    return _Text(episode.episode_id, episode.format, task, digest, sets.append(shingles))


def _identical(texts: Sequence[_Text], sets: _Sets) -> tuple[list[_Text], list[tuple[str, str, float, int]]]:
    """The first episode of each distinct set, and a pair of it with every other one of that set."""
    holder: dict[bytes, _Text] = {}
    pairs = []
    for text in texts:
        first = holder.setdefault(text.digest, text)
        if first is not text:
            pairs.append((first.episode_id, text.episode_id, 1.0, sets.lengths[text.place]))
    return list(holder.values()), pairs


def _distinctive(
    texts: Sequence[_Text], first: Iterable[_Text], sets: _Sets, left: _Sets
) -> tuple[list[str], _Sets]:
    """The episodes of `first` whose sets, without boilerplate, are large enough, and these sets, put into `left`."""
    common = {
        form: _boilerplate([t for t in texts if t.format == form], sets) for form in {t.format for t in texts}
    }
    names = []
    for text in first:
        hashes = _without(sets[text.place], common[text.format])
        if len(hashes) >= LEAST:
            left.append(hashes)
            names.append(text.episode_id)
    return names, left


def _boilerplate(texts: Sequence[_Text], sets: _Sets) -> Hashes:
    """What the episodes of many tasks have in common. Trials of one task count once: they are alike by nature."""
    by_task: dict[str, list[int]] = {}
    for text in texts:
        by_task.setdefault(text.task, []).append(text.place)
    limit = max(SHARED_TASKS, SHARED_SHARE * len(by_task))
    if len(by_task) <= limit:
        return np.zeros(0, np.uint64)
    total = sum(sets.lengths[text.place] for text in texts)
    common = [_in_many(by_task.values(), sets, limit, *edges) for edges in _ranges(total // _COUNTED + 1)]
    found: Hashes = np.concatenate(common)
    return found


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    """The 64-bit numbers in so many ranges, from the first to the last number of each."""
    edges = [place * 2**64 // count for place in range(count + 1)]
    return ((low, high - 1) for low, high in pairwise(edges))


def _in_many(tasks: Iterable[list[int]], sets: _Sets, limit: float, low: int, high: int) -> Hashes:
    """The hashes from `low` to `high` that stand in the sets of more tasks than `limit`, sorted."""
    parts = []
    for places in tasks:
        here = [_between(sets[place], low, high) for place in places]
        parts.append(here[0] if len(here) == 1 else np.unique(np.concatenate(here)))
    found, counts = np.unique(np.concatenate(parts), return_counts=True)
    many: Hashes = found[counts > limit]
    return many


def _between(hashes: Hashes, low: int, high: int) -> Hashes:
    start = np.searchsorted(hashes, np.uint64(low))
    return hashes[start : np.searchsorted(hashes, np.uint64(high), side="right")]


def _without(hashes: Hashes, common: Hashes) -> Hashes:
    if not len(common):
        return hashes
    places = np.minimum(np.searchsorted(common, hashes), len(common) - 1)
    left: Hashes = hashes[common[places] != hashes]
    return left


def _verified(sets: _Sets) -> Iterator[tuple[int, int, float, int]]:
    """The pairs of places whose exact similarity suffices, but for those that earlier pairs connect."""
    clusters = _Clusters(len(sets))
    refused: set[tuple[int, int]] = set()
    for a, b in _candidates(_signatures(sets), clusters):
        if (a, b) in refused or clusters.of[a] == clusters.of[b]:
            continue
        similarity, shared = jaccard(sets[a], sets[b])
        if similarity >= THRESHOLD:
            clusters.join(a, b)
            yield a, b, similarity, shared
        else:
            refused.add((a, b))


class _Clusters:
    """Places that pairs connect: `of` is the number of each one's cluster. The smaller of two takes the larger one's."""

    def __init__(self, count: int) -> None:
        self.of = np.arange(count)
        self._members = {place: [place] for place in range(count)}

    def join(self, a: int, b: int) -> None:
        """Make one cluster of those of two places."""
        small, large = sorted(
            (int(self.of[a]), int(self.of[b])), key=lambda number: len(self._members[number])
        )
        moved = self._members.pop(small)
        self.of[moved] = large
        self._members[large] += moved


def _signatures(sets: _Sets) -> NDArray[np.uint32]:
    """The MinHashes of each set [sets, BANDS · ROWS]: the smallest of its members under each of the hash functions."""
    drawn = np.random.Generator(np.random.PCG64(0)).integers(1, 2**64, (2, BANDS * ROWS), dtype=np.uint64)
    factors, shifts = drawn[0] | np.uint64(1), drawn[1]
    signatures = np.empty((len(sets), BANDS * ROWS), np.uint32)
    for chosen in _chunks(sets.lengths):
        together = np.concatenate([sets[place] for place in chosen])
        starts = np.cumsum([0, *(sets.lengths[place] for place in chosen[:-1])])
        for column, (factor, shift) in enumerate(zip(factors, shifts, strict=True)):
            hashed = (together * factor + shift) >> np.uint64(32)
            signatures[chosen.start : chosen.stop, column] = np.minimum.reduceat(hashed, starts)
    return signatures


def _chunks(lengths: Sequence[int]) -> Iterator[range]:
    """Runs of places whose sets together fit the cache."""
    start, total = 0, 0
    for place, length in enumerate(lengths):
        if total and total + length > _CHUNK:
            yield range(start, place)
            start, total = place, 0
        total += length
    if start < len(lengths):
        yield range(start, len(lengths))


def _candidates(signatures: NDArray[np.uint32], clusters: _Clusters) -> Iterator[tuple[int, int]]:
    """Pairs of places, the smaller first, that share a band, that nothing connects yet, and whose MinHashes do not rule the
    threshold out."""
    for band in range(BANDS):
        key = np.zeros(len(signatures), np.uint64)
        for column in range(band * ROWS, (band + 1) * ROWS):
            key = (key ^ signatures[:, column]) * np.uint64(_MIX[0])
        order = np.argsort(key, kind="stable")
        edges = np.flatnonzero(np.diff(key[order])) + 1
        for members in np.split(order, edges):
            for place, a in enumerate(members[:-1]):
                others = members[place + 1 :]
                others = others[clusters.of[others] != clusters.of[a]]
                if len(others):
                    alike = (signatures[others] == signatures[a]).mean(axis=1)
                    yield from ((int(a), int(b)) for b in others[alike >= THRESHOLD - _DOUBT])
