"""How far the distributions of two datasets lie apart: those of steps and episodes, and every feature of the observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.dataset.diff.side import Side
from logforge.schemas import FeatureSlice, Manifest
from logforge.shards import PCA_FILE, draw


def drifts_between(a: Side, b: Side, sample: int, seed: int) -> tuple[list[Drift], tuple[str, ...]]:
    """The drift of every distribution that both sides have, the largest first, and what was not compared.

    Features are those of logged decisions, at most `sample` of each split, drawn by `seed`.
    """
    first, second = a.samples(), b.samples()
    found = [drift(name, first[name], second[name]) for name in first if name in second]
    notes: tuple[str, ...] = ()
    if a.manifest is not None and b.manifest is not None:
        features, notes = _features(a, b, a.manifest, b.manifest, sample, seed)
        found += features
    known = [item for item in found if item is not None]
    return sorted(known, key=lambda item: (-item.psi, item.of)), notes


def _features(
    a: Side, b: Side, told_a: Manifest, told_b: Manifest, sample: int, seed: int
) -> tuple[list[Drift | None], tuple[str, ...]]:
    """Feature by feature. A column of a text's vector means the same only under the same encoder and PCA."""
    same_texts = told_a.encoder == told_b.encoder and (
        told_a.checksums.get(PCA_FILE) == told_b.checksums.get(PCA_FILE)
    )
    first, second = (
        {name: place for part in told.layout if same_texts or not _is_text(part) for name, place in _columns(part, told)}
        for told in (told_a, told_b)
    )  # fmt: skip
    seen_a, seen_b = (draw(side.folder, tuple(side.shards), sample, seed).observations for side in (a, b))
    found = [
        drift(name, seen_a[:, place], seen_b[:, second[name]])
        for name, place in first.items()
        if name in second
    ]
    note = (
        "features of texts are not compared: encoder or PCA differ, and with them the meaning of each column"
    )
    return found, () if same_texts else (note,)


def _is_text(part: FeatureSlice) -> bool:
    return "text vector" in part.meaning


def _columns(part: FeatureSlice, manifest: Manifest) -> Iterator[tuple[str, int]]:
    """Each column of a block with a name that means the same in another dataset: actions go by theirs, not by their ids."""
    width = part.stop - part.start
    of_actions = width == manifest.vocabulary.size and "action" in part.meaning
    labels = manifest.actions if of_actions else [str(place) for place in range(width)]
    for label, place in zip(labels, range(part.start, part.stop), strict=True):
        yield part.name if width == 1 else f"{part.name}[{label}]", place


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
