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

from logforge.core import (
    MIN_EPISODES,
    Estimate,
    FloatArray,
    IntArray,
    Span,
    Tick,
    interval,
    need,
    one_thread,
    resamples,
)
from logforge.learning.ope.fqe_fit import ByMember, Decisions, Fit, OutOfBag
from logforge.rewards import possible_returns
from logforge.schemas import Mismatch, UsageError
from logforge.shards import SplitArrays

MEMBERS: Final = 20
UPDATES: Final = 300
"""Of one round. Rounds follow each other until the value stays; a policy that goes round in circles takes the most."""
ROUNDS: Final = 6
SETTLED: Final = 0.1
"""A value that moves by no more than this share of the returns' spread from one round to the next has settled."""


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


def reachable(train: SplitArrays, held: SplitArrays, gamma: float, seen: tuple[float, float] | None) -> Span:
    """The range of returns that the transitions of both splits leave open."""
    rewards, terminals, timeouts = (
        np.concatenate([getattr(train, name), getattr(held, name)])
        for name in ("rewards", "terminals", "timeouts")
    )
    return possible_returns(rewards, terminals, timeouts, gamma, seen)


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
