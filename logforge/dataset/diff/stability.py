"""How far two distributions lie apart, by the population stability index (PSI).

PSI = Σ (b − a) · ln(b / a) over the bins, a and b being the shares of the first and the second sample: Kullback and Leibler's
symmetric divergence (1951). The usual reading, from credit scoring (Lewis 1992; Siddiqi, Credit Risk Scorecards, 2006): below 0.1
nothing changed, from 0.25 on something did.

Numbers are binned at the deciles of the first sample; what lies beyond goes into the outer bins, and a value that fills two deciles
or more (0 among rewards) gets a bin of its own. Words are their own bins. Every bin counts half an observation more than it holds,
as an empty one would make the index infinite.

Small samples differ by chance: under equal distributions PSI / (1/n + 1/m) is about χ² with (bins − 1) degrees of freedom
(Yurdakul 2018, Statistical Properties of the Population Stability Index). NOISE is the quantile of it that a drift must exceed.
The steps of one episode hang together, so of steps the true noise is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MODERATE, LARGE = 0.1, 0.25
"""From these on the index is called moderate and large."""
BINS = 10
NOISE = 0.99

Floats = NDArray[np.float64]


class Drift(NamedTuple):
    """What became of one distribution: `psi`, what chance alone would not exceed, in words, and the sizes of the samples."""

    of: str
    psi: float
    noise: float
    level: str
    count_a: int
    count_b: int


def drift(of: str, a: Sequence[Any] | NDArray[Any], b: Sequence[Any] | NDArray[Any]) -> Drift | None:
    """The drift from sample `a` to sample `b`, of numbers (NaN is a bin of its own) or of words. None where one is empty."""
    first, second = np.asarray(a), np.asarray(b)
    if not len(first) or not len(second):
        return None
    numeric = all(side.dtype.kind in "fiub" for side in (first, second))
    counts = np.array((_of_numbers if numeric else _of_words)(first, second))
    counts_a, counts_b = counts[:, counts.any(axis=0)]
    psi = index(counts_a, counts_b)
    noise = _noise(len(counts_a), len(first), len(second))
    return Drift(of, psi, noise, level(psi, noise), len(first), len(second))


def index(a: Floats, b: Floats) -> float:
    """PSI of two histograms over the same bins, given as counts; 0 for equal shares of samples of one size."""
    first, second = (side + 0.5 for side in (a, b))
    p, q = first / first.sum(), second / second.sum()
    return float(((q - p) * np.log(q / p)).sum())


def level(psi: float, noise: float) -> str:
    """The index in a word: `stable`, `noise` (not more than chance would give), `moderate` or `large`."""
    if psi < MODERATE:
        return "stable"
    if psi <= noise:
        return "noise"
    return "large" if psi >= LARGE else "moderate"


def _noise(bins: int, n: int, m: int) -> float:
    if bins < 2:
        return 0.0
    from scipy.stats import chi2

    return float(chi2.ppf(NOISE, bins - 1) * (1 / n + 1 / m))


def _of_numbers(a: NDArray[Any], b: NDArray[Any]) -> tuple[Floats, Floats]:
    first, second = a.astype(np.float64), b.astype(np.float64)
    known = first[~np.isnan(first)]
    tenths = np.arange(1, BINS) / BINS
    deciles = np.quantile(known, tenths, method="inverted_cdf") if len(known) else known
    edges, filled = np.unique(deciles, return_counts=True)
    edges = np.union1d(edges, np.nextafter(edges[filled > 1], -np.inf))
    return _counts(first, edges), _counts(second, edges)


def _counts(values: Floats, edges: Floats) -> Floats:
    """How many lie in each bin (a bin holds its upper edge), and how many are NaN."""
    missing = np.isnan(values)
    places = np.searchsorted(edges, values[~missing], side="left")
    counts = np.bincount(places, minlength=len(edges) + 1).astype(np.float64)
    return np.append(counts, float(missing.sum()))


def _of_words(a: NDArray[Any], b: NDArray[Any]) -> tuple[Floats, Floats]:
    both = np.concatenate([a.astype(str), b.astype(str)])
    names, places = np.unique(both, return_inverse=True)
    counts = (np.bincount(side, minlength=len(names)) for side in (places[: len(a)], places[len(a) :]))
    first, second = (side.astype(np.float64) for side in counts)
    return first, second
