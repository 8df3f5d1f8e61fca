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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from logforge.schemas.episode import Episode

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
    """What is compared of an episode. `task` says which task it is, for counting those that share a triple."""

    episode_id: str
    format: str
    task: str
    shingles: Hashes


def near_duplicates(episodes: Iterable[Episode]) -> pl.DataFrame:
    """The verified near-duplicates among episodes, whatever their order: columns as in SCHEMA, sorted by pair.

    Each cluster comes as a tree of pairs: a pair that others already connect is not listed again, so that a thousand
    copies are 999 rows.
    """
    words = _Words()
    texts = sorted((_text(episode, words) for episode in episodes), key=lambda text: text.episode_id)
    texts = [text for text in texts if len(text.shingles) >= LEAST]
    first, pairs = _identical(texts)
    rest = _distinctive(texts, first)
    pairs += [
        (rest[a].episode_id, rest[b].episode_id, similarity, shared)
        for a, b, similarity, shared in _verified([text.shingles for text in rest])
    ]
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


def _text(episode: Episode, words: _Words) -> _Text:
    task = episode.task_id or episode.task or episode.episode_id
    return _Text(episode.episode_id, episode.format, task, shingles_of(text_of(episode), words))


def _identical(texts: Sequence[_Text]) -> tuple[list[int], list[tuple[str, str, float, int]]]:
    """The places of the first episode of each distinct set, and a pair of it with every other one of that set."""
    holder: dict[bytes, int] = {}
    pairs = []
    for place, text in enumerate(texts):
        first = holder.setdefault(xxhash.xxh3_128_digest(text.shingles.tobytes()), place)
        if first != place:
            pairs.append((texts[first].episode_id, text.episode_id, 1.0, len(text.shingles)))
    return list(holder.values()), pairs


def _distinctive(texts: Sequence[_Text], places: Iterable[int]) -> list[_Text]:
    """The texts at these places without boilerplate, as far as enough of them is left."""
    common = {
        form: _boilerplate([t for t in texts if t.format == form]) for form in {t.format for t in texts}
    }
    left = [
        texts[place]._replace(shingles=_without(texts[place].shingles, common[texts[place].format]))
        for place in places
    ]
    return [text for text in left if len(text.shingles) >= LEAST]


def _boilerplate(texts: Sequence[_Text]) -> Hashes:
    """What the episodes of many tasks have in common. Trials of one task count once: they are alike by nature."""
    by_task: dict[str, list[Hashes]] = {}
    for text in texts:
        by_task.setdefault(text.task, []).append(text.shingles)
    limit = max(SHARED_TASKS, SHARED_SHARE * len(by_task))
    if len(by_task) <= limit:
        return np.zeros(0, np.uint64)
    found, counts = np.unique(
        np.concatenate(
            [sets[0] if len(sets) == 1 else np.unique(np.concatenate(sets)) for sets in by_task.values()]
        ),
        return_counts=True,
    )
    common: Hashes = found[counts > limit]
    return common


def _without(hashes: Hashes, common: Hashes) -> Hashes:
    if not len(common):
        return hashes
    places = np.minimum(np.searchsorted(common, hashes), len(common) - 1)
    left: Hashes = hashes[common[places] != hashes]
    return left


def _verified(sets: Sequence[Hashes]) -> Iterator[tuple[int, int, float, int]]:
    """The pairs of places whose exact similarity suffices, but for those that earlier pairs connect."""
    root = list(range(len(sets)))

    def find(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    refused: set[tuple[int, int]] = set()
    for a, b in _candidates(_signatures(sets)):
        if (a, b) in refused or find(a) == find(b):
            continue
        similarity, shared = jaccard(sets[a], sets[b])
        if similarity >= THRESHOLD:
            root[max(find(a), find(b))] = min(find(a), find(b))
            yield a, b, similarity, shared
        else:
            refused.add((a, b))


def _signatures(sets: Sequence[Hashes]) -> NDArray[np.uint32]:
    """The MinHashes of each set [sets, BANDS · ROWS]: the smallest of its members under each of the hash functions."""
    drawn = np.random.Generator(np.random.PCG64(0)).integers(1, 2**64, (2, BANDS * ROWS), dtype=np.uint64)
    factors, shifts = drawn[0] | np.uint64(1), drawn[1]
    signatures = np.empty((len(sets), BANDS * ROWS), np.uint32)
    for chosen in _chunks([len(item) for item in sets]):
        together = np.concatenate([sets[place] for place in chosen])
        starts = np.cumsum([0, *(len(sets[place]) for place in chosen[:-1])])
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


def _candidates(signatures: NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """Pairs of places, the smaller first, that share a band and whose MinHashes do not rule the threshold out."""
    for band in range(BANDS):
        key = np.zeros(len(signatures), np.uint64)
        for column in range(band * ROWS, (band + 1) * ROWS):
            key = (key ^ signatures[:, column]) * np.uint64(_MIX[0])
        order = np.argsort(key, kind="stable")
        edges = np.flatnonzero(np.diff(key[order])) + 1
        for members in np.split(order, edges):
            for place, a in enumerate(members[:-1]):
                others = members[place + 1 :]
                alike = (signatures[others] == signatures[a]).mean(axis=1)
                for b in others[alike >= THRESHOLD - _DOUBT]:
                    yield int(a), int(b)
