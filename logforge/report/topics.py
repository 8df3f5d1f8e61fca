"""Tasks that are alike, by k-means over their text vectors, and the words that tell one topic from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logforge.texts import TextVectors, mask_volatile, tokens

COUNTS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""How many topics there may be."""
SAMPLE: Final = 1000
"""So many texts, drawn with the seed, decide how many topics there are."""
WORDS: Final = 5
_SHORTEST = 3


def topics(texts: Sequence[str], vectors: TextVectors, seed: int) -> NDArray[np.int64]:
    """The topic of each text. `vectors` holds theirs; only directions count.

    Texts that differ in numbers, dates, ids and names alone (logforge/texts/placeholders.py) share a topic and count once: else every task that
    was tried often would be a topic of its own. The number of topics is the one of COUNTS with the best silhouette (Rousseeuw
    1987; by cosine). With fewer than four distinct texts each is a topic of its own.
    """
    masked = [mask_volatile(text) for text in texts]
    first = dict(sorted(zip(masked, texts, strict=True), reverse=True))  # the smallest text of each
    number = {mask: place for place, mask in enumerate(sorted(first))}
    rows = vectors.matrix[[vectors.index(first[mask]) for mask in number]].astype(np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    of_distinct = _grouped(rows / np.where(length > 0, length, 1.0), seed)
    return of_distinct[[number[mask] for mask in masked]]


def _grouped(rows: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """The group of each row, all of length 1."""
    distinct = len(np.unique(rows, axis=0))
    if distinct < 4:
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:SAMPLE])
    found = {count: _clustered(rows, count, seed) for count in COUNTS if count < distinct}
    return max(found.items(), key=lambda item: (_silhouette(rows[chosen], item[1][chosen]), -item[0]))[1]


def _clustered(rows: NDArray[Any], count: int, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums in one order on any machine
        labels: NDArray[Any] = KMeans(count, random_state=seed, n_init=4).fit_predict(rows)
    return labels.astype(np.int64)


def _silhouette(rows: NDArray[Any], labels: NDArray[np.int64]) -> float:
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(labels)) < len(rows):
        return -1.0
    return round(float(silhouette_score(rows, labels, metric="cosine")), 9)


def words_of(texts: Sequence[str], topic: NDArray[np.int64]) -> dict[int, tuple[str, ...]]:
    """The words of each topic with the largest TF-IDF (a topic is a document), the strongest first; equal ones by name.

    A word counts once for each text. Words with digits and those of fewer than three letters are left out.
    """
    counts: dict[int, Counter[str]] = {int(name): Counter() for name in np.unique(topic)}
    for text, name in zip(texts, topic, strict=True):
        counts[int(name)].update({word for word in tokens(text) if _names_something(word)})
    holding = Counter(word for count in counts.values() for word in count)
    sizes = Counter(topic.tolist())
    return {
        name: tuple(
            sorted(
                count,
                key=lambda word: (-count[word] / sizes[name] * log(1 + len(counts) / holding[word]), word),
            )[:WORDS]
        )
        for name, count in counts.items()
    }


def _names_something(word: str) -> bool:
    return (len(word) >= _SHORTEST or not word.isascii()) and not any(map(str.isdigit, word))
