"""States that are alike: k-means over the train split's observations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.shards import Sample

FEWEST, MOST, LEAST_ROWS = 2, 64, 5
"""Clusters at least and at most; a cluster of fewer decisions says nothing of how varied they are."""


class Cluster(NamedTuple):
    """One cluster: its decisions, how many actions were taken in it, their entropy in bits, and the commonest."""

    decisions: int
    actions: int
    entropy: float
    commonest: int
    share: float
    success_rate: float | None


class Clusters(NamedTuple):
    """The clusters with LEAST_ROWS decisions or more, largest first; `total` says how many there are in all."""

    total: int
    told: tuple[Cluster, ...]

    @property
    def single(self) -> float | None:
        """The share of the clusters in which one action alone was taken."""
        return float(np.mean([item.actions == 1 for item in self.told])) if self.told else None

    @property
    def entropy(self) -> float | None:
        """The mean entropy in bits, by decisions."""
        if not self.told:
            return None
        sizes = [item.decisions for item in self.told]
        return float(np.average([item.entropy for item in self.told], weights=sizes))


def cluster(sample: Sample, seed: int) -> Clusters:
    """√n clusters of n decisions (2 to 64), on observations scaled to unit variance, with k-means from the seed."""
    if sample.size < LEAST_ROWS:
        return Clusters(0, ())
    labels = _labels(sample.observations, seed)
    outcomes = sample.success[sample.episode]
    found = [
        _describe(sample.actions[labels == label], outcomes[labels == label]) for label in np.unique(labels)
    ]
    told = sorted((item for item in found if item.decisions >= LEAST_ROWS), key=lambda c: (-c.decisions, c))
    return Clusters(len(found), tuple(told))


def _labels(observations: NDArray[np.float32], seed: int) -> NDArray[Any]:
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    rows = observations.astype(np.float64)
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    count = int(np.clip(round(len(rows) ** 0.5), FEWEST, MOST))
    distinct = len(np.unique(rows, axis=0)) if rows.shape[1] else 1
    if distinct == 1:
        return np.zeros(len(rows), np.int64)
    with threadpool_limits(1):  # sums in one order on any machine
        model = MiniBatchKMeans(min(count, distinct), random_state=seed, n_init=3, batch_size=2048)
        labels: NDArray[Any] = model.fit_predict(rows)
    return labels


def _describe(actions: NDArray[Any], outcomes: NDArray[Any]) -> Cluster:
    ids, counts = np.unique(actions, return_counts=True)
    shares = counts / counts.sum()
    known = outcomes[outcomes >= 0]
    return Cluster(
        decisions=len(actions),
        actions=len(ids),
        entropy=max(0.0, float(-(shares * np.log2(shares)).sum())),
        commonest=int(ids[counts.argmax()]),
        share=float(shares.max()),
        success_rate=float(known.mean()) if len(known) else None,
    )
