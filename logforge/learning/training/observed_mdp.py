"""The small MDP that a log shows where its observations repeat, and where conservative Q-learning comes to rest in it.

There the fixed point of CQL can be computed (logforge/rewards/lint/cloning.py) instead of waiting for a run to show it: with too large an α for
the difference that the reward makes, it takes the log's favourite and not what is best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.rewards.lint import fixed_point
from logforge.shards import SplitArrays

MOST_STATES = 300
"""A log with more distinct observations is taken to be one whose states do not repeat."""
MIN_COUNT = 5
"""An action taken fewer times in a state is left out there."""
_FIRST_LOOK = 2000
_TINY = 1e-9

F64 = NDArray[np.float64]


class ObservedMdp(NamedTuple):
    """S states, A actions. `counts`, `rewards` (means) and `follow` [S, A, S], the share of each next state; an end has none."""

    counts: F64
    rewards: F64
    follow: F64
    gamma: float

    @property
    def taken(self) -> NDArray[np.bool_]:
        """Which actions were taken often enough in which states to know them."""
        return np.asarray(self.counts >= MIN_COUNT)

    def targets(self, values: F64) -> F64:
        """The value of each action given that of each state; what is not known is worth less than anything."""
        found = self.rewards + self.gamma * self.follow @ values
        worst = float(self.rewards.min()) / (1 - min(self.gamma, 0.999)) - 1.0
        return np.where(self.taken, found, min(worst, -1.0))


class CloneShare(NamedTuple):
    """Shares of the log's decisions, in states where CQL at rest does not take the best action: all such, and those where it takes
    the log's favourite. `gap` is what the best action is worth more than CQL's, on average there."""

    astray: float
    cloned: float
    gap: float


def observed(arrays: SplitArrays, gamma: float) -> ObservedMdp | None:
    """The MDP of a log; None where its observations do not repeat, or most decisions are too rare to know."""
    if len(np.unique(arrays.observations[:_FIRST_LOOK], axis=0)) > MOST_STATES:
        return None
    distinct, state = np.unique(np.asarray(arrays.observations), axis=0, return_inverse=True)
    if len(distinct) > MOST_STATES:
        return None
    state = state.ravel()
    rows, actions = arrays.observation_rows, np.asarray(arrays.actions)
    shape = (len(distinct), arrays.action_size)
    place = (state[rows], actions)
    counts, rewards, follow = np.zeros(shape), np.zeros(shape), np.zeros((*shape, len(distinct)))
    np.add.at(counts, place, 1)
    np.add.at(rewards, place, arrays.rewards)
    goes_on = ~np.asarray(arrays.terminals)
    np.add.at(follow, (place[0][goes_on], actions[goes_on], state[rows + 1][goes_on]), 1)
    divisor = np.maximum(counts, 1)
    found = ObservedMdp(counts, rewards / divisor, follow / divisor[:, :, None], gamma)
    return found if 2 * counts[found.taken].sum() >= arrays.size else None


def clone_share(mdp: ObservedMdp, alpha: float) -> CloneShare:
    """Where CQL with this α comes to rest beside what is best."""
    visited = mdp.taken.any(axis=1)
    shares = np.where(mdp.taken, mdp.counts, 0)[visited]
    shares = np.maximum(shares / shares.sum(axis=1, keepdims=True), 1e-6)
    whole = ObservedMdp(
        mdp.counts[visited], mdp.rewards[visited], mdp.follow[visited][:, :, visited], mdp.gamma
    )
    best = fixed_point(whole.targets, shares, 0.0)
    rest = fixed_point(whole.targets, shares / shares.sum(axis=1, keepdims=True), alpha)
    chosen = np.where(whole.taken, rest, -np.inf).argmax(axis=1)
    lost = best.max(axis=1) - best[np.arange(len(best)), chosen]
    astray = lost > _TINY * max(1.0, float(np.abs(best[whole.taken]).max()))
    cloned = astray & (chosen == whole.counts.argmax(axis=1))
    weight = whole.counts.sum(axis=1) / whole.counts.sum()
    gap = float((weight * lost)[astray].sum() / weight[astray].sum()) if astray.any() else 0.0
    return CloneShare(float(weight[astray].sum()), float(weight[cloned].sum()), gap)
