"""What a step was really worth: go back to its very state, take each action, and follow the policy to the end.

All branches of a state share their random numbers, so the differences between actions are paired (common random numbers). This
is the counterfactual credit that estimators are held against: Q(s, a) less the mean of Q under the policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.envs.episodes import Draws, Rollout, draws
from logforge.envs.rollout import Policy, View, roll
from logforge.envs.world import Floats, Ints, World

_ROWS = 100_000


class Branches(NamedTuple):
    """For m states: `q` (m, actions) of the ±1 reward, its standard error, and `advantage`, Q less its mean under the policy."""

    q: Floats
    error: Floats
    advantage: Floats


def branches(world: World, policy: Policy, states: Ints, rollouts: int = 200, seed: int = 0) -> Branches:
    """The values of every action in each of `states` (m, columns), hidden columns and time included. γ is 1."""
    actions = len(world.actions)
    q, error = np.empty((len(states), actions)), np.empty((len(states), actions))
    size = max(1, _ROWS // (rollouts * actions))
    numbers = draws(rollouts, seed)
    for begin in range(0, len(states), size):
        part = states[begin : begin + size]
        found = _played(world, policy, part, numbers).reshape(len(part), actions, rollouts)
        q[begin : begin + size] = found.mean(2)
        error[begin : begin + size] = found.std(2, ddof=1) / np.sqrt(rollouts)
    chances = policy(_view(world, states))
    return Branches(q, error, q - (chances * q).sum(1, keepdims=True))


def credit(world: World, policy: Policy, run: Rollout, rollouts: int = 200, seed: int = 0) -> Floats:
    """The advantage of each action taken in the episodes, shape (n, HORIZON); NaN after an episode's end."""
    taken = run.taken
    found = branches(world, policy, run.states[:, :-1][taken], rollouts, seed)
    credits = np.full(taken.shape, np.nan)
    credits[taken] = found.advantage[np.arange(taken.sum()), run.actions[taken]]
    return credits


def _played(world: World, policy: Policy, states: Ints, numbers: Draws) -> Floats:
    """The reward of each state (outermost), first action and rollout: the first step is forced, the rest is the policy's."""
    actions, rollouts = len(world.actions), len(numbers.start)
    many = np.repeat(states, actions * rollouts, axis=0)
    forced = np.tile(np.repeat(np.arange(actions), rollouts), len(states))
    repeated = Draws(*(np.tile(n, (len(states) * actions, *[1] * (n.ndim - 1))) for n in numbers))

    def first(view: View) -> NDArray[np.floating]:
        return np.eye(actions)[forced[view.rows]] if view.time == 0 else policy(view)

    return roll(world, first, repeated, many).rewards


def _view(world: World, states: Ints) -> View:
    return View(Rollout.fresh(world, states), np.arange(len(states)), 0)
