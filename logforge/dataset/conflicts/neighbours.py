"""Vectors near each other, by an index that misses none: a k-d tree over their leading principal components.

A rotation keeps distances and dropping coordinates only shrinks them, so whatever lies within a distance of a point also
lies within it in the tree: the tree proposes, the exact cosine decides, and recall is 1 by construction. Graph and
cluster indexes (HNSW, IVF) promise less: their neighbours are approximate, and the graph that is built depends on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
COMPONENTS = 10
"""Coordinates in the tree. More let fewer candidates through, and make each look-up dearer; see benchmarks/conflicts.py."""
_ALL = 256
"""So few vectors are compared without a tree."""
_SELECTIVE = 0.02
"""The largest share of all rows that a look-up in the tree may let through."""
_BATCH = 1024
_SLACK = 1e-3
"""Added to the tree's radius: far more than what float32 loses, and still only a candidate."""


def unit(vectors: F32) -> F32:
    """The vectors at length 1; zeros stay zeros, which are near nothing."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    scaled: F32 = (vectors / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32)
    return scaled


def leaders(vectors: F32, threshold: float) -> tuple[Rows, npt.NDArray[np.float64]]:
    """Group unit vectors round leaders: for each row its leader's row, and the cosine to it.

    Rows are taken in order; one that no leader has taken yet becomes a leader and takes every free row whose cosine to
    it is at least `threshold` (leader clustering, Hartigan 1975). So no chain of small steps joins what is far apart:
    whatever is in a group is near its leader. Two rows near each other may still fall to two leaders.
    """
    taken_by = np.full(len(vectors), -1, np.int64)
    cosines = np.ones(len(vectors))
    for row, candidates in _candidates(vectors, threshold, taken_by):
        taken_by[row] = row
        free = candidates[taken_by[candidates] < 0]
        cosine = _cosines(vectors, free, row)
        near = cosine >= threshold
        taken_by[free[near]], cosines[free[near]] = row, cosine[near]
    return taken_by, cosines


def _candidates(vectors: F32, threshold: float, taken_by: Rows) -> Iterator[tuple[int, Rows]]:
    """Each row that is free when its turn comes, with at least all rows near it."""
    propose = proposals(vectors, threshold)
    for start in range(0, len(vectors), _BATCH):
        batch = np.arange(start, min(start + _BATCH, len(vectors)))
        batch = batch[taken_by[batch] < 0]
        for row, candidates in zip(batch, propose(batch), strict=True):
            if taken_by[row] < 0:
                yield int(row), candidates


def proposals(vectors: F32, threshold: float) -> Callable[[Rows], Iterable[Rows]]:
    """What proposes, for some rows, at least all rows near each of them (ids, in order).

    It is the tree, unless that would let so much through that plain products are faster (few rows, or a wide radius).
    """

    def products(batch: Rows) -> Iterator[Rows]:
        for row in vectors[batch] @ vectors.T >= threshold - _SLACK:
            yield np.flatnonzero(row)

    if len(vectors) <= _ALL:
        return products
    from scipy.spatial import cKDTree

    points = _components(vectors)
    tree = cKDTree(points)
    radius = np.sqrt(2 - 2 * threshold) + _SLACK
    sample = points[:: max(1, len(points) // _ALL)]
    if tree.query_ball_point(sample, radius, return_length=True).mean() > _SELECTIVE * len(points):
        return products
    return lambda batch: (
        np.array(ball, np.int64)
        for ball in tree.query_ball_point(points[batch], radius, workers=-1, return_sorted=True)
    )


def _components(vectors: F32) -> npt.NDArray[np.float64]:
    """The vectors in their leading principal components. Any orthonormal basis would do; this one tells most apart."""
    centred = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    projected: npt.NDArray[np.float64] = np.ascontiguousarray(
        centred.astype(np.float64) @ axes[:, : -COMPONENTS - 1 : -1].astype(np.float64)
    )
    return projected


def _cosines(vectors: F32, rows: Rows, row: int) -> npt.NDArray[np.float64]:
    """Summed without BLAS, whose order of addition may depend on the number of threads."""
    found: npt.NDArray[np.float64] = np.einsum("ij,j->i", vectors[rows], vectors[row], dtype=np.float64)
    return found
