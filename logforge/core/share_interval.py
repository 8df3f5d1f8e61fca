"""95 % intervals of shares that say something at 0 and 1 too, where the spread of what was seen is no measure of what was not.

A share: Clopper and Pearson (1934), which covers at least 95 % of the time: 0 of 20 is [0, 0.168]. Where several policies played the same
episodes, the episodes count and not the plays: at most as many, fewer where policies differ more than chance (the effective number of
Korn and Graubard 1998, with their correction for degrees of freedom). The difference of two shares of the same episodes: Agresti and Min (2005), Wald's interval after half an episode
was added to each of the four outcomes of a pair; 0 differences in 20 are [-0.10, 0.10] and not a point.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from logforge.learning.ope.fqe import Estimate, Noise, pooled

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
