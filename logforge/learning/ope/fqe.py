"""Off-policy evaluation: fitted Q evaluation (FQE) of a policy on held-out episodes, with an episode bootstrap.

Q^π is fitted by regression on r + γ Q'(s', π(s')). The bootstrap is cut where an episode truly ended and goes on through
its final observation where the log was merely cut off. All bootstrap members are trained at once in one batched network,
each from its own start and on its own resample of whole episodes, so the interval covers the noise of the fit as well.
FQE is a guess wherever the policy does what the log never did, and there it tends to be too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core.extras import need
from logforge.core.progress import Tick
from logforge.learning.ope.fqe_fit import ByMember, Decisions, Fit, OutOfBag
from logforge.schemas.errors import Mismatch, UsageError
from logforge.shards.arrays import SplitArrays

MIN_EPISODES: Final = 5
"""With fewer independent held-out episodes (split groups) a bootstrap over them says nothing, so nothing is said."""
MEMBERS: Final = 20
UPDATES: Final = 300
"""Of one round. Rounds follow each other until the value stays; a policy that goes round in circles takes the most."""
ROUNDS: Final = 6
SETTLED: Final = 0.1
"""A value that moves by no more than this share of the returns' spread from one round to the next has settled."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Estimate(NamedTuple):
    """A number with its 95 % interval, or the reason why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


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


class Fitted(NamedTuple):
    """FQE's answer: the policy's value by bootstrap member [K] (of several policies [S, K], see `joined`), how far their mean
    moved in the last round (of several policies that of the one that moved most), and Q by the members that never saw an episode."""

    values: FloatArray
    drift: float
    tolerance: float
    out_of_bag: OutOfBag | None = None

    @property
    def unsettled(self) -> str:
        """Why the values are no estimate; empty when they are."""
        if abs(self.drift) <= self.tolerance:
            return ""
        return f"the fit did not settle (the value still moved by {self.drift:+.2g}); more updates may help"

    def estimate(self) -> Estimate:
        """Mean of the members and its 95 % interval."""
        return Estimate(None, reason=self.unsettled) if self.unsettled else interval(self.values)


def joined(fits: Sequence[Fitted]) -> Fitted:
    """The members of one learner, each judged on resamples of its own, as one: values [S, K]."""
    parts = [fit.out_of_bag for fit in fits if fit.out_of_bag is not None]
    return Fitted(
        np.stack([fit.values for fit in fits]),
        max((fit.drift for fit in fits), key=abs),  # in a mean, opposite drifts would look like rest
        fits[0].tolerance,
        reduce(OutOfBag.plus, parts) if parts else None,
    )


class QValues(NamedTuple):
    """Q of every action for each observation [N + E, A], the mean of the members; `drift` and `tolerance` as in `Fitted`.
    `members` is what each of them says of the decisions that were asked about."""

    q: FloatArray
    drift: float
    tolerance: float
    members: ByMember | None = None

    @property
    def unsettled(self) -> str:
        """Why the values are weak; empty when the fit has settled."""
        return Fitted(self.q, self.drift, self.tolerance).unsettled


def refusal(held: SplitArrays) -> str:
    """Why no value can be estimated from these episodes; empty when it can."""
    groups = len(np.unique(held.groups))
    if groups < MIN_EPISODES:
        return f"only {groups} independent held-out episodes (split groups), {MIN_EPISODES} are needed"
    return "" if held.terminals.any() else "no held-out episode is complete"


def possible_returns(
    rewards: NDArray[Any],
    terminals: NDArray[np.bool_],
    timeouts: NDArray[np.bool_],
    gamma: float,
    seen: tuple[float, float] | None = None,
) -> Span:
    """The range a return can lie in: a step that goes on may be repeated for ever, one that ends is paid once.

    What a cut-off episode's last step pays may hang on its being the last (`at: end`), so it is paid once, and followed by
    anything. Upwards the returns `seen` in the train split bind as well, stretched by their own width: a Q that runs away runs
    up. Downwards they bind only without discounting: a policy that goes round in circles is worse than any log.
    """
    if not len(rewards):
        raise UsageError("there are no transitions to bound returns with", "name a split that holds some")
    cut = timeouts if not timeouts.all() else np.zeros_like(timeouts)  # with nothing else, they stand for all
    going_on = rewards[~(terminals | cut)]
    bounds = [*_extremes(rewards[terminals]), *(_for_ever(one, gamma) for one in _extremes(going_on))]
    low, high = min(bounds), max(bounds)
    if cut.any():
        least, most = _extremes(rewards[cut])
        low, high = min(low, least + gamma * low), max(high, most + gamma * high)
    if seen is not None:
        width = max(seen[1] - seen[0], abs(seen[0]), abs(seen[1]))
        low, high = low if np.isfinite(low) else seen[0] - width, min(high, seen[1] + width)
    return Span(low, high)


def reachable(train: SplitArrays, held: SplitArrays, gamma: float, seen: tuple[float, float] | None) -> Span:
    """The range of returns that the transitions of both splits leave open."""
    rewards, terminals, timeouts = (
        np.concatenate([getattr(train, name), getattr(held, name)])
        for name in ("rewards", "terminals", "timeouts")
    )
    return possible_returns(rewards, terminals, timeouts, gamma, seen)


def _extremes(rewards: NDArray[Any]) -> tuple[float, ...]:
    return (float(rewards.min()), float(rewards.max())) if len(rewards) else ()


def _for_ever(reward: float, gamma: float) -> float:
    if gamma < 1:
        return reward / (1 - gamma)
    return float(np.copysign(np.inf, reward)) if reward else 0.0


def needed_rows(held: SplitArrays) -> IntArray:
    """The observations at which FQE has to know what the policy would do."""
    follow = held.observation_rows[~held.terminals] + 1
    return np.union1d(held.observation_offsets[:-1], follow).astype(np.int64)


def fitted_q(
    held: SplitArrays,
    choices: NDArray[Any],
    *,
    gamma: float,
    span: Span,
    members: int = MEMBERS,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> Fitted:
    """The policy's value by FQE.

    `choices` holds the policy's action for each observation; only those of `needed_rows` are looked at. Equal seeds give
    every policy the same resamples and the same starting weights, so that differences between policies are paired.
    """
    asked = choices[needed_rows(held)]
    _refuse(held)
    if (asked < 0).any() or (asked >= held.action_size).any():
        remedy = "give one valid action id per transition"
        raise UsageError("FQE needs a choice of the policy wherever an episode goes on", remedy)
    with _settled(held, choices, gamma, span, members, updates, seed, progress) as (fit, drift):
        return Fitted(fit.values(), drift, SETTLED * fit.scale, fit.out_of_bag())


def q_values(
    data: SplitArrays,
    chances: NDArray[Any],
    observations: NDArray[np.float32],
    *,
    gamma: float,
    span: Span,
    decisions: Decisions | None = None,
    members: int = MEMBERS,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> QValues:
    """Q^π of all actions at `observations`, fitted by FQE on `data`.

    `chances` [N + E, A] are π's probabilities at the observations of `data`; of `decisions` at `observations` every member is
    asked alone. Raises UsageError where FQE has too little.
    """
    _refuse(data)
    if chances.shape != data.masks.shape:
        expected, remedy = (
            list(data.masks.shape),
            "give the policy's chances at every observation of the data",
        )
        raise Mismatch("chances", expected, list(chances.shape), remedy)
    with _settled(data, chances, gamma, span, members, updates, seed, progress) as (fit, drift):
        alone = None if decisions is None else fit.by_member(observations, decisions)
        return QValues(fit.all_actions(observations), drift, SETTLED * fit.scale, alone)


def _refuse(held: SplitArrays) -> None:
    if reason := refusal(held):
        raise UsageError(f"FQE cannot estimate a value: {reason}", "ingest more episodes and build again")


@contextmanager
def _settled(
    held: SplitArrays,
    choices: NDArray[Any],
    gamma: float,
    span: Span,
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> Iterator[tuple[Fit, float]]:
    """A fit that has gone on until its value stays, or for all its rounds, and how far the last round moved it."""
    need("torch", "train")
    with one_thread():
        fit = Fit(held, choices, resamples(held.groups, members, seed), gamma, span, seed)
        values, drift = fit.values(), np.inf
        for number in range(ROUNDS):
            fit.round(updates, _from(progress, number * updates, ROUNDS * updates))
            values, earlier = fit.values(), values
            drift = float(values.mean() - earlier.mean())
            if number and abs(drift) <= SETTLED * fit.scale:
                break
        yield fit, drift


def _from(progress: Tick | None, start: int, total: int) -> Callable[[int], None]:
    if progress is None:
        return lambda done: None
    return lambda done: progress(start + done, total, "fitting Q")


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


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, so that sums come in one order on any machine; the earlier count comes back after."""
    import torch

    earlier = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(earlier)
