"""Intervals, and what they hold: shares, bootstrapped means, the spread over members and seeds."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core.types import FloatArray, IntArray

F64 = NDArray[np.float64]


def share(wins: F64) -> Estimate:
    """The share of ones in `wins` [policies, episodes], every policy on the same episodes."""
    from scipy.stats import beta, t

    won, episodes = float(wins.mean()), wins.shape[1]
    freedom = max(1, episodes - 1)
    noise = pooled(Noise(float(wins.mean(axis=0).var()) / episodes, freedom), Noise.among(wins.mean(axis=1)))
    count = float(episodes)
    if 0 < won < 1 and noise.variance:
        count = min(count, won * (1 - won) * (float(t.ppf(0.975, freedom)) / noise.half) ** 2)
    low = float(beta.ppf(0.025, won * count, count * (1 - won) + 1)) if won > 0 else 0.0
    high = float(beta.ppf(0.975, won * count + 1, count * (1 - won))) if won < 1 else 1.0
    return Estimate(won, low, high)


def difference(one: F64, other: F64) -> Estimate:
    """The share of ones in `one` less that in `other`, both [policies, episodes]: policy by policy, episode by episode."""
    gaps = one - other
    added = np.concatenate([gaps.mean(axis=0), [1.0, -1.0, 0.0, 0.0]])
    weights = np.r_[np.ones(gaps.shape[1]), np.full(4, 0.5)]
    total = float(weights.sum())
    centre = float(weights @ added) / total
    episodes = Noise(float(weights @ (added - centre) ** 2) / total**2, gaps.shape[1] - 1)
    half = pooled(episodes, Noise.among(gaps.mean(axis=1))).half if episodes.freedom else math.inf
    return Estimate(float(gaps.mean()), max(-1.0, centre - half), min(1.0, centre + half))


MIN_EPISODES: Final = 5
"""With fewer independent held-out episodes (split groups) a bootstrap over them says nothing, so nothing is said."""


class Estimate(NamedTuple):
    """A number with its 95 % interval, or the reason why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def bracketed(estimate: Estimate, shape: str) -> str:
    """A number with its interval where it has one, a dash for none."""
    if estimate.value is None:
        return "—"
    if estimate.low is None:
        return shape.format(estimate.value)
    value, low, high = (shape.format(part) for part in estimate[:3])
    return f"{value} [{low}, {high}]"


class Noise(NamedTuple):
    """The variance of a mean, and the degrees of freedom of its estimate."""

    variance: float
    freedom: float

    @classmethod
    def among(cls, means: FloatArray) -> Noise:
        """What S trained members add to the variance of their mean, by the mean of each [S]; nothing of one alone."""
        return cls(float(means.var(ddof=1)) / len(means) if len(means) > 1 else 0.0, len(means) - 1)

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval by Student's t."""
        from scipy.stats import t

        return float(t.ppf(0.975, self.freedom) * np.sqrt(self.variance))


def pooled(*parts: Noise) -> Noise:
    """Independent sources of noise as one: their sum, with Satterthwaite's (1946) degrees of freedom.

    Of two trained members the spread is a guess from one difference: intervals of shares then hold the truth in 87 to 90 % of
    cases instead of 95 where members differ more than episodes do, of three in 92 to 94 %.
    """
    variance = sum(part.variance for part in parts)
    weights = sum(part.variance**2 / part.freedom for part in parts if part.variance)
    return Noise(variance, variance**2 / weights if weights else 1.0)


class Span(NamedTuple):
    """The range that returns can lie in."""

    low: float
    high: float


def resamples(groups: NDArray[Any], members: int, seed: int) -> IntArray:
    """How often each member draws each episode [members, episodes].

    Whole groups are drawn: trials of one task are no independent episodes. It depends on the grouping and the seed alone.
    """
    owner = np.unique(groups, return_inverse=True)[1]
    count = int(owner.max()) + 1 if len(owner) else 0
    chances = np.full(count, 1 / max(count, 1))
    drawn = np.random.default_rng([seed, 1]).multinomial(count, chances, size=members).astype(np.int64)
    expanded: IntArray = drawn[:, owner]
    return expanded


def interval(values: FloatArray) -> Estimate:
    """Mean of bootstrap members [K] and the 95 % interval by Student's t: percentiles of a few members are far too narrow.

    Values [S, K] are those of S trained members, each on K resamples of its own: the spread among trained members counts as
    well, with Satterthwaite's degrees of freedom for the sum.
    """
    rows = np.atleast_2d(values)
    trained, drawn = rows.shape
    within = float(rows.var(axis=1, ddof=1).mean())
    among = Noise.among(rows.mean(axis=1))
    # less what resampling alone sets the members' means apart
    among = among._replace(variance=max(0.0, among.variance - within / rows.size))
    half = pooled(Noise(within * (1 + 1 / rows.size), trained * (drawn - 1)), among).half
    centre = float(rows.mean())
    return Estimate(centre, centre - half, centre + half)


def within(estimate: Estimate, span: Span) -> Estimate:
    """The estimate with its interval cut to the possible returns; none where it says no more than they do."""
    value, low, high, _ = estimate
    if value is None or low is None or high is None:
        return estimate
    told = f"[{low:.3g}, {high:.3g}]"
    room = 1e-6 * (1 + abs(value))
    if not span.low - room <= value <= span.high + room:
        why = f"{value:.3g} {told} lies outside what a return can be, [{span.low:.3g}, {span.high:.3g}]"
        return Estimate(None, reason=why)
    if low < span.low and high > span.high:
        why = f"the interval {told} holds all that a return can be, [{span.low:.3g}, {span.high:.3g}]"
        return Estimate(None, reason=why)
    return Estimate(value, max(low, span.low), min(high, span.high))


def bootstrap_mean(values: NDArray[Any], groups: NDArray[Any] | None = None, *, seed: int = 0) -> Estimate:
    """The mean of `values`, with the interval of a bootstrap over groups (2,000 resamples of whole groups).

    `groups` says which group each value belongs to; without it each value is one of its own.
    """
    owners = np.arange(len(values)) if groups is None else np.unique(groups, return_inverse=True)[1]
    sizes, sums = np.bincount(owners), np.bincount(owners, values)
    if len(sizes) < MIN_EPISODES:
        return Estimate(None, reason=f"only {len(sizes)} independent episodes, {MIN_EPISODES} are needed")
    counts = resamples(np.arange(len(sizes)), 2000, seed)
    low, high = np.percentile((counts @ sums) / (counts @ sizes), [2.5, 97.5])
    return Estimate(float(sums.sum() / sizes.sum()), float(low), float(high))
