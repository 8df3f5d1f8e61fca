"""Off-policy estimates by importance sampling, where the log tells how probable its actions were.

What an episode paid counts by how much more probable the policy makes its decisions than who made the log did. A decision's
weight is the product of these ratios up to it. Intervals come from a bootstrap of whole split groups, as everywhere.

These estimators ask nothing of a model, and little of short logs: the fewer decisions policy and log share, the fewer
episodes carry all the weight (Kish's effective sample size). Where any trained member has fewer than `MIN_ESS`, or weights out of
`BALANCE`, nothing is said of the learner: a member that the log lacks would count as worth 0. A cut-off episode counts
with what was logged of it, so `is`, `wis`, `pdis` and `wpdis` judge the logged horizon; `dr` and `wdr` go on through its
final observation, as FQE does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import MIN_EPISODES, Estimate, FloatArray, Noise, Span, plain, pooled, resamples, within
from logforge.schemas import PROPENSITY_KINDS, Mismatch
from logforge.shards import SplitArrays

ESTIMATORS: Final = {
    "is": "importance sampling: the mean of weight × return (Precup et al. 2000)",
    "wis": "the same, weighted: divided by the sum of the weights; a little biased, far calmer",
    "pdis": "per decision: each reward by the weight of its own step (Precup et al. 2000)",
    "wpdis": "the same, with the weights of each step divided by their sum (Thomas 2015)",
    "dr": "doubly robust: FQE's value, and per decision what it missed (Jiang and Li 2016)",
    "wdr": "the same, with the weights of each step divided by their sum (Thomas and Brunskill 2016)",
}
"""What each estimates by; one weight for an episode (`is`, `wis`) or one for each decision."""
ROBUST: Final = ("dr", "wdr")
NORMALISED: Final = ("wis", "wpdis", "wdr")
MIN_ESS: Final = 10.0
"""With a smaller effective sample size a few episodes carry the value, and their spread says nothing of the others."""
BALANCE: Final = (0.5, 2.0)
"""Whole episodes' weights average 1 but for chance. Where they do not, the log lacks most of what the policy does, and the few large
weights that would make up for it: of 100 random logs of `it-ops` 32 had an effective size above `MIN_ESS` for another policy, and the
interval of `wis` held the truth in 2 of them."""
ESTIMATED_CAP: Final = 20.0
"""Weights made of estimated propensities are cut here: uncut, `dr` erred by up to 1.56 on returns of ±1 in the simulators. Logged and
known ones are exact, and cutting them would bias what is unbiased."""
RESAMPLES: Final = 2000
REMEDY: Final = "`logforge build-dataset --estimate-propensity` estimates them"


class Weighted(NamedTuple):
    """What one estimator says of a policy, and the effective sample size behind it, in episodes: that of the trained member
    with the smallest (None: not weighed)."""

    estimate: Estimate
    ess: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {**plain(self.estimate), "ess": self.ess}


class Importance(NamedTuple):
    """All estimators of a learner. `cut` is the share of decisions whose weight was cut to `cap` (None: none is)."""

    estimates: Mapping[str, Weighted]
    cap: float | None = None
    cut: float = 0.0

    @property
    def known(self) -> dict[str, Estimate]:
        """What could be estimated."""
        return {name: one.estimate for name, one in self.estimates.items() if one.estimate.value is not None}

    @classmethod
    def refused(cls, reason: str) -> Importance:
        """None can be had."""
        return cls({name: Weighted(Estimate(None, reason=reason)) for name in ESTIMATORS})

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {"estimates": plain(self.estimates), "weight_cap": self.cap, "weights_cut": self.cut}


class Payments(NamedTuple):
    """Episodes by step [E, T]: weights, which stay what they were after an episode's end, and discounted payments, 0 there. `base` [E]
    is what an episode is worth without them."""

    weights: FloatArray
    paid: FloatArray
    base: FloatArray

    @property
    def ess(self) -> float:
        """Kish's effective sample size of each step's weights, averaged over steps by how much is paid in them."""
        sums, squares = self.weights.sum(axis=0), (self.weights**2).sum(axis=0)
        sizes = np.divide(sums**2, squares, out=np.zeros_like(sums), where=squares > 0)
        shares = np.abs(self.paid).sum(axis=0)
        return float(np.average(sizes, weights=shares)) if shares.any() else float(sizes[-1])

    def plain(self, counts: FloatArray) -> FloatArray:
        """The mean over episodes, drawn as often as `counts` [R, E] says: one for each of R."""
        found: FloatArray = counts @ (self.base + (self.weights * self.paid).sum(axis=1)) / counts.sum(axis=1)
        return found

    def normalised(self, counts: FloatArray) -> FloatArray:
        """The same with the weights of each step divided by their sum. A step that nothing drawn has weight in pays nothing."""
        sums, drawn = counts @ (self.weights * self.paid), counts @ self.weights
        means = np.divide(sums, drawn, out=np.zeros_like(sums), where=drawn > 0)
        found: FloatArray = counts @ self.base / counts.sum(axis=1) + means.sum(axis=1)
        return found


def refusal(held: SplitArrays) -> str:
    """Why nothing can be weighed by these propensities; empty where it can."""
    groups, chances = len(np.unique(held.groups)), held.propensities
    if groups < MIN_EPISODES:
        return f"only {groups} independent held-out episodes (split groups), {MIN_EPISODES} are needed"
    missing = int(
        (~np.isfinite(chances) | (held.propensity_kinds == PROPENSITY_KINDS.index("missing"))).sum()
    )
    if missing:
        return f"propensities of {missing} of {held.size} decisions are missing; {REMEDY}"
    never = int((chances <= 0).sum())
    if never:
        return f"{never} logged decisions have propensity 0: whoever made the log could not have made them"
    return ""


def weight_cap(held: SplitArrays) -> float | None:
    """Where weights are cut; None where propensities are exact."""
    return ESTIMATED_CAP if (held.propensity_kinds == PROPENSITY_KINDS.index("estimated")).any() else None


def importance(
    held: SplitArrays,
    policies: Sequence[NDArray[Any]],
    q: FloatArray | None,
    *,
    gamma: float,
    span: Span,
    seed: int = 0,
    without_q: str = "there is no Q to correct",
) -> Importance:
    """What a learner's members are worth on average, by each of `ESTIMATORS`, with 95 % intervals over members and episodes.

    `policies` are the members' chances of every action at the observations [N + E, A], `q` an estimate of Q there that saw nothing of
    the row's own episode (None: `without_q` says why, and `dr` and `wdr` cannot be had). Raises Mismatch on other shapes.
    """
    for chances in policies:
        if chances.shape != held.masks.shape:
            expected, remedy = list(held.masks.shape), "give chances of every action at every observation"
            raise Mismatch("chances", expected, list(chances.shape), remedy)
    if reason := refusal(held):
        return Importance.refused(reason)
    cap = weight_cap(held)
    ratios = [_ratios(held, chances) for chances in policies]
    weights = [np.asarray(_grid(held, one, 1.0).cumprod(axis=1), np.float64) for one in ratios]
    there = _grid(held, np.ones(held.size), 0.0) > 0
    cut = 0.0 if cap is None else float(np.mean([(one[there] > cap).mean() for one in weights]))
    if cap is not None:
        weights = [np.asarray(np.minimum(one, cap), np.float64) for one in weights]
    if reason := _imbalance([float(one[:, -1].mean()) for one in weights]):
        return Importance.refused(reason)._replace(cap=cap, cut=cut)
    counts = np.vstack([np.ones(held.episode_count), resamples(held.groups, RESAMPLES, seed)])
    found = {}
    for name in ESTIMATORS:
        if name in ROBUST and q is None:
            found[name] = Weighted(Estimate(None, reason=without_q))
            continue
        paid = [
            _payments(name, held, mine, chances, q, gamma)
            for mine, chances in zip(weights, policies, strict=True)
        ]
        found[name] = _judged(name, paid, counts, held, span)
    return Importance(found, cap, cut)


def _imbalance(averages: Sequence[float]) -> str:
    """Why members whose weights average so much cannot be judged, by the one furthest from 1."""
    place = int(np.abs(np.log(np.maximum(averages, np.finfo(np.float64).tiny))).argmax())
    weight, which = averages[place], _member(place, len(averages))
    if not weight:
        return f"no overlap: no logged episode is one that the policy{which} could have made"
    if BALANCE[0] <= weight <= BALANCE[1]:
        return ""
    return (
        f"weights average {weight:.2g} where 1 is expected: the log lacks most of what the policy{which} does"
    )


def _member(place: int, count: int) -> str:
    return f" (member {place + 1} of {count})" if count > 1 else ""


def _ratios(held: SplitArrays, chances: NDArray[Any]) -> FloatArray:
    target = chances[held.observation_rows, held.actions].astype(np.float64)
    return np.asarray(target / held.propensities.astype(np.float64))


def _grid(held: SplitArrays, values: NDArray[Any], fill: float) -> FloatArray:
    """Values of the transitions as [E, T]."""
    owners = held.episode_index
    steps = np.arange(held.size) - held.episode_offsets[owners]
    grid = np.full((held.episode_count, int(steps.max()) + 1), fill)
    grid[owners, steps] = values
    return grid


def _payments(
    name: str,
    held: SplitArrays,
    weights: FloatArray,
    chances: NDArray[Any],
    q: FloatArray | None,
    gamma: float,
) -> Payments:
    rewards, base = held.rewards.astype(np.float64), np.zeros(held.episode_count)
    if name in ROBUST and q is not None:
        rows = held.observation_rows
        states = (chances * q).sum(axis=1)
        rewards = rewards + gamma * ~held.terminals * states[rows + 1] - q[rows, held.actions]
        base = states[held.observation_offsets[:-1]]
    paid = _grid(held, rewards, 0.0) * gamma ** np.arange(weights.shape[1])
    if name in ("is", "wis"):  # the whole return, by the weight of the whole episode
        return Payments(weights[:, -1:], paid.sum(axis=1, keepdims=True), base)
    return Payments(weights, paid, base)


def _judged(
    name: str,
    paid: Sequence[Payments],
    counts: FloatArray,
    held: SplitArrays,
    span: Span,
) -> Weighted:
    sizes = [one.ess for one in paid]
    ess = min(sizes)
    if ess < MIN_ESS:
        size = f"{ess:.1f} of {held.episode_count} episodes{_member(sizes.index(ess), len(sizes))}"
        why = f"an effective sample size of {size}, {MIN_ESS:g} are needed"
        return Weighted(Estimate(None, reason=why), ess)
    drawn = np.stack([one.normalised(counts) if name in NORMALISED else one.plain(counts) for one in paid])
    estimate = _interval(drawn[:, 0], drawn[:, 1:].mean(axis=0), min(ess, len(np.unique(held.groups))))
    return Weighted(within(estimate, span), ess)


def _interval(members: FloatArray, spread: FloatArray, size: float) -> Estimate:
    """The mean of the `members` [S], with percentiles of its bootstrap `spread` [R] over so many episodes, moved out on either
    side by what the spread among members adds to the square of an interval by Student's t."""
    centre = float(members.mean())
    low, high = np.quantile(spread, _tails(size))
    episodes = Noise(float(spread.var(ddof=1)), size - 1)
    added = max(0.0, pooled(episodes, Noise.among(members)).half ** 2 - episodes.half**2)
    below, above = (float(max(0.0, side) ** 2 + added) ** 0.5 for side in (centre - low, high - centre))
    return Estimate(centre, centre - below, centre + above)


def _tails(size: float) -> tuple[float, float]:
    """The quantiles of a bootstrap that hold 95 %: of so few, further out by what Student's t says (Hesterberg 2015)."""
    from scipy.stats import norm, t

    below = float(norm.cdf(float(t.ppf(0.025, size - 1)) * (size / (size - 1)) ** 0.5))
    return below, 1 - below
