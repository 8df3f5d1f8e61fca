"""Up to which α conservative Q-learning still finds what a spec makes best: the exact fixed point of tabular CQL.

In a state where the log takes action a with share μ(a), CQL's loss is α (log Σ exp Q − Σ μ Q) + ½ Σ μ (Q − T)². It is convex;
where its gradient is zero, Q(a) = T(a) − α (π(a) / μ(a) − 1) with π the softmax of Q. An action's target T is pulled down the
more, the rarer the log takes it: past some α the log's favourite looks best, and CQL clones it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.rewards.lint.trial import Trial
from logforge.rewards.lint.world import FILLERS, STOP, TALK, WORK

F64 = NDArray[np.float64]
ACTIONS = (WORK, *FILLERS, STOP)
VISITS = 1000
"""Even logs are never quite even: the best action is taken one standard error less often than evenly, at so many visits of
each state."""
STEADY = 40
"""How often an agent has idled before its idling is priced: capped pay is spent by then."""
_SMALLEST, _LARGEST = 1e-3, 1e3
_SHARE_FLOOR = 1e-3
_SWEEPS = 1000
_MOST_PATIENT = 0.999
"""An agent that never stops has no value at a discount of 1."""


class CloneRisk(NamedTuple):
    """How much better the best action is than the next, where that matters least, and up to which α CQL finds all best actions
    (None: any): with even logs, and with logs of given shares."""

    gap: float
    even: float | None
    logged: float | None = None


class Chain(NamedTuple):
    """The world as a chain: a state for each number of useful calls made. Working goes on, stopping ends, all else stays."""

    rewards: F64
    """[states, actions]"""
    gamma: float

    @classmethod
    def of(cls, trial: Trial) -> Chain:
        """Priced by the spec: work and stops as in the shortest success, the rest as after having done it for long."""
        states = range(len(trial.world.tools) + 1)
        walks = {(done, action): _walk(done, action) for done in states for action in ACTIONS}
        frame = trial.judged(list(dict.fromkeys(walks.values())))
        prices = {(walk, step): pay for walk, step, pay in frame.select("walk", "step", "reward").iter_rows()}
        rows = [
            [prices["/".join(walks[done, action]), _place(walks[done, action])] for action in ACTIONS]
            for done in states
        ]
        return cls(np.array(rows), min(trial.spec.gamma, _MOST_PATIENT))

    def targets(self, values: F64) -> F64:
        """The value of each action, given that of each state."""
        after = np.repeat(values[:, None], len(ACTIONS), axis=1)
        after[:-1, 0] = values[1:]
        after[:, -1] = 0
        return self.rewards + self.gamma * after


def _walk(done: int, action: str) -> tuple[str, ...]:
    if action == STOP:
        return (*[WORK] * done, STOP)
    idled = [] if action == WORK else [action] * STEADY
    return (*idled, *[WORK] * done, action, TALK)


def _place(walk: tuple[str, ...]) -> int:
    """Which step of the walk is priced: the stop, or the one before the talk that keeps it from being the last."""
    return len(walk) - (1 if walk[-1] == STOP else 2)


def clone_risk(trial: Trial, logged: Mapping[str, float] | None = None) -> CloneRisk | None:
    """For even logs, and for logs that take the actions with the shares `logged`, by habit. None where to work and then to
    stop is not what the spec makes best: there is nothing to find."""
    chain = Chain.of(trial)
    best = fixed_point(chain.targets, np.full(chain.rewards.shape, 1 / len(ACTIONS)), 0.0)
    gap = float(np.min(best.max(axis=1) - np.sort(best, axis=1)[:, -2]))
    if gap < 1e-9 or list(best.argmax(axis=1)) != [0] * (len(best) - 1) + [len(ACTIONS) - 1]:
        return None
    even = _largest(chain, best, _even(best))
    if not logged:
        return CloneRisk(gap, even)
    shares = np.array([max(logged.get(action, 0.0), _SHARE_FLOOR) for action in ACTIONS])
    return CloneRisk(gap, even, _largest(chain, best, np.tile(shares / shares.sum(), (len(best), 1))))


def _even(best: F64) -> F64:
    """Equal shares, the best action's one standard error smaller."""
    count = best.shape[1]
    rare = 1 / count - float(np.sqrt((count - 1) / count**2 / VISITS))
    shares = np.full(best.shape, (1 - rare) / (count - 1))
    shares[np.arange(len(best)), best.argmax(axis=1)] = rare
    return shares


def _largest(chain: Chain, best: F64, shares: F64) -> float | None:
    """The largest α at which every state's best action stays the best, by halving on a logarithmic scale."""

    def survives(alpha: float) -> bool:
        found = fixed_point(chain.targets, shares, alpha)
        return bool((found.argmax(axis=1) == best.argmax(axis=1)).all())

    if survives(_LARGEST):
        return None
    low, high = np.log([_SMALLEST, _LARGEST])
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if survives(float(np.exp(middle))) else (low, middle)
    return float(np.exp(low)) if low > np.log(_SMALLEST) else 0.0


def fixed_point(targets: Callable[[F64], F64], shares: F64, alpha: float) -> F64:
    """Q values [states, actions] of tabular CQL: value iteration with the penalty. `targets` backs state values up."""
    values = np.zeros(len(shares))
    for _ in range(_SWEEPS):
        found = penalised(targets(values), shares, alpha)
        moved = np.abs(found.max(axis=1) - values).max()
        values = found.max(axis=1)
        if moved < 1e-7:
            break
    return found


def penalised(targets: F64, shares: F64, alpha: float) -> F64:
    """The Q values [states, actions] at which tabular CQL comes to rest, given its targets and the log's shares."""
    if alpha == 0:
        return targets
    from scipy.special import wrightomega

    level = np.max(
        targets + alpha - alpha / shares, axis=1
    )  # log Σ exp Q is at least this; Newton's steps rise to it
    shift = np.log(alpha / shares) + targets + alpha
    for _ in range(30):
        omega = wrightomega(shift - level[:, None])
        excess = (shares * omega).sum(axis=1) / alpha - 1
        level = level + excess * alpha / (shares * omega / (1 + omega)).sum(axis=1)
        if np.abs(excess).max() < 1e-12:
            break
    found: F64 = targets + alpha - wrightomega(shift - level[:, None])
    return found
