"""A scan for the slice with too many failures: over windows of hours, over stretches of time, over named slices.

The statistic of a window is its excess of failures in standard deviations of the hypergeometric law; the p-value is the share
of random placings of the same failures whose largest excess is as large (Kulldorff 1997, with a permutation null), so that
looking at many windows costs nothing. Named slices are tested one by one with Fisher's exact test and Holm's correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PLACINGS = 2000
F64 = NDArray[np.float64]


class Window(NamedTuple):
    """The window of the largest excess: its bins, episodes and failures in and outside it, and the p-value of the scan."""

    bins: tuple[int, ...]
    episodes: int
    failures: int
    rate: float
    rate_elsewhere: float
    p: float


def around_the_clock(longest: int = 12) -> F64:
    """Every window of 1 to `longest` hours, past midnight too: [windows, 24]."""
    rows = np.zeros((longest * 24, 24))
    for length in range(1, longest + 1):
        for start in range(24):
            rows[(length - 1) * 24 + start, (start + np.arange(length)) % 24] = 1
    return rows


def before_and_after(bins: int) -> F64:
    """Every beginning and every end of a row of bins: where a change parts it in two. [2 · (bins − 1), bins]"""
    before = np.tril(np.ones((bins, bins)))[:-1]
    return np.vstack([before, 1 - before])


def scan(windows: F64, episodes: Sequence[int], failures: Sequence[int], seed: int = 0) -> Window | None:
    """The window with the largest excess of failures; None where all outcomes are alike or no window holds a part alone."""
    sizes, failed = np.asarray(episodes, np.int64), np.asarray(failures, np.int64)
    total, lost = int(sizes.sum()), int(failed.sum())
    within = windows @ sizes
    windows = windows[(within > 0) & (within < total)]
    if not len(windows) or lost in (0, total) or total < 2:
        return None
    within = windows @ sizes
    share = lost / total
    spread = np.sqrt(within * share * (1 - share) * (total - within) / (total - 1))
    excess = (windows @ failed - within * share) / spread
    best = int(np.argmax(np.round(excess, 9)))
    placed = np.random.default_rng([seed, 17]).multivariate_hypergeometric(
        sizes, lost, PLACINGS, method="marginals"
    )
    largest = ((placed @ windows.T - within * share) / spread).max(axis=1)
    inside, bad = int(within[best]), int(windows[best] @ failed)
    return Window(
        bins=tuple(int(place) for place in np.flatnonzero(windows[best])),
        episodes=inside,
        failures=bad,
        rate=bad / inside,
        rate_elsewhere=(lost - bad) / (total - inside),
        p=float((1 + (largest >= excess[best] - 1e-9).sum()) / (1 + PLACINGS)),
    )


def excess_p(episodes: Sequence[int], failures: Sequence[int], total: int, lost: int) -> list[float]:
    """For each slice the p-value that it fails no more than the rest (Fisher, one-sided), corrected by Holm.

    `total` episodes of which `lost` failed are those of the slices and all others.
    """
    from scipy.stats import hypergeom

    raw = [float(hypergeom.sf(f - 1, total, lost, n)) for n, f in zip(episodes, failures, strict=True)]
    corrected, highest = [1.0] * len(raw), 0.0
    for rank, place in enumerate(sorted(range(len(raw)), key=lambda i: (raw[i], i))):
        highest = max(highest, min(1.0, raw[place] * (len(raw) - rank)))
        corrected[place] = highest
    return corrected
