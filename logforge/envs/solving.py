"""Exact values without sampling: every state that can be reached, every coin, backward over the horizon.

`optimum` is that of the belief state. The visible columns say all that the history tells of the hidden ones, so the belief in
a step is the distribution of hidden states given the visible columns, whoever acted; it is taken from the random policy, which
goes everywhere. Backward induction over visible columns then gives the best policy of the history, exactly. `bound` is the
value for somebody who sees the hidden cause: what no policy can beat, and none need reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.envs.behaviour import Visible, uniform
from logforge.envs.episodes import Rollout
from logforge.envs.world import (
    CHANGE,
    COINS,
    FAILED,
    HORIZON,
    LEFT,
    LUCK,
    RUNNING,
    STEPS,
    Floats,
    Ints,
    World,
)

_TRIED = [FAILED, CHANGE, LUCK]
"""The coins that decide the next row. Whether the user leaves only decides that there is none."""


@dataclass(frozen=True)
class Solved:
    """The states of a world apart from their time, and what each action leads to.

    `moves` is a sparse matrix (states × actions, states): the chance that the episode goes on in a state. `ends` (states,
    actions) is the expected reward of ending right here. `start` (states) is where episodes begin.
    """

    world: World
    states: Ints
    moves: Any
    ends: Floats
    start: Floats

    def value(self, policy: Visible) -> float:
        """The expected reward of an episode (γ = 1): twice the probability of success, less one."""
        return float(self.start @ self._backward(lambda q, time: (self._chances(policy, time) * q).sum(1))[0])

    def q(self, policy: Visible) -> Floats:
        """Q of each state and action in each step, shape (HORIZON, states, actions)."""
        values = self._backward(lambda q, time: (self._chances(policy, time) * q).sum(1))
        return np.stack([self._q(values[time + 1]) for time in range(HORIZON)])

    def credit(self, policy: Visible, run: Rollout, believed: bool = False) -> Floats:
        """The advantage of each action taken in some episodes, shape (n, HORIZON), NaN after an episode's end: Q of the very
        state, or, `believed`, of what was visible then, less its mean under the policy."""
        q, taken = self.q(policy), run.taken
        if believed:
            q = self._believed(q)
        for time in range(HORIZON):
            q[time] -= (self._chances(policy, time) * q[time]).sum(1, keepdims=True)
        states = run.states[:, :-1][taken]
        keys = _keys(self.world, self.states)
        order = np.argsort(keys)
        rows = order[np.searchsorted(keys, _keys(self.world, states), sorter=order)]
        credits = np.full(taken.shape, np.nan)
        credits[taken] = q[states[:, STEPS], rows, run.actions[taken]]
        return credits

    def _believed(self, q: Floats) -> Floats:
        """Q with the hidden columns averaged out, for each state."""
        weights, means = self.belief(uniform), np.zeros_like(q)
        for time in range(HORIZON):
            totals = np.bincount(self.groups, weights[time])
            sums = self._sums(q[time] * weights[time][:, None])
            means[time] = (sums / np.where(totals > 0, totals, 1)[:, None])[self.groups]
        return means

    def _sums(self, values: Floats) -> Floats:
        """Values of states (states, actions), added up for each look."""
        return np.stack([np.bincount(self.groups, column) for column in values.T], axis=1)

    @cached_property
    def bound(self) -> float:
        """The value for who sees what is hidden."""
        return float(self.start @ self._backward(lambda q, time: q.max(1))[0])

    @cached_property
    def optimum(self) -> float:
        """The value of the best policy of the history."""
        return float(self.start @ self._best[0][0])

    def best(self) -> Visible:
        """The best policy of the history."""
        looks, table, actions = self._looks[0], self._best[1], len(self.world.actions)

        def policy(world: World, states: Ints) -> Floats:
            found = np.searchsorted(looks, _keys(world, states, world.visible))
            return np.eye(actions)[table[states[:, STEPS], found]]

        return policy

    @property
    def groups(self) -> NDArray[np.intp]:
        """Which states look alike: a number for each state."""
        return self._looks[1]

    @cached_property
    def _looks(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The keys of all that can be seen, sorted, and which of them each state shows."""
        seen = _keys(self.world, self.states, self.world.visible)
        found: tuple[NDArray[np.int64], NDArray[np.intp]] = np.unique(seen, return_inverse=True)
        return found

    def belief(self, policy: Visible) -> Floats:
        """How probable each state is in each step under a policy, shape (HORIZON, states); not normalised."""
        rows, reached = len(self.states), [self.start]
        for time in range(HORIZON - 1):
            flow = reached[-1][:, None] * self._chances(policy, time)
            reached.append(self.moves.T @ flow.reshape(rows * flow.shape[1]))
        return np.stack(reached)

    @cached_property
    def _best(self) -> tuple[Floats, NDArray[np.intp]]:
        """The values (HORIZON + 1, states) and the actions (HORIZON, groups) of the best policy."""
        groups, weights = self.groups, self.belief(uniform)
        chosen = np.zeros((HORIZON, groups.max() + 1), np.intp)

        def choose(q: Floats, time: int) -> Floats:
            chosen[time] = self._sums(q * weights[time][:, None]).argmax(1)
            picked: Floats = np.take_along_axis(q, chosen[time][groups][:, None], axis=1)[:, 0]
            return picked

        return self._backward(choose), chosen

    def _backward(self, choose: Any) -> Floats:
        values = np.empty((HORIZON + 1, len(self.states)))
        values[HORIZON] = -1.0
        for time in range(HORIZON - 1, -1, -1):
            values[time] = choose(self._q(values[time + 1]), time)
        return values

    def _q(self, after: Floats) -> Floats:
        q: Floats = self.ends + (self.moves @ after).reshape(self.ends.shape)
        return q

    def _chances(self, policy: Visible, time: int) -> Floats:
        states = self.states.copy()
        states[:, STEPS] = time
        return policy(self.world, states)


class _Found(NamedTuple):
    """What can follow some states: for each way on, its row among (state, action), its chance and the next state's key."""

    rows: NDArray[np.int64]
    chances: Floats
    keys: NDArray[np.int64]
    states: Ints
    ends: Floats


def solve(world: World) -> Solved:
    """Find every state that can be reached, and what every action leads to."""
    starts, probabilities = world.starts()
    states, start = starts[probabilities > 0], probabilities[probabilities > 0]
    keys, parts, begin = _keys(world, states), [], 0
    while begin < len(states):
        found = _expand(world, states[begin:], begin)
        parts.append(found._replace(states=states[:0]))
        begin = len(states)
        fresh, first = np.unique(found.keys, return_index=True)
        new = ~np.isin(fresh, keys)
        states = np.concatenate([states, found.states[first[new]]])
        keys = np.concatenate([keys, fresh[new]])
    start = np.concatenate([start, np.zeros(len(states) - len(start))])
    ends = np.concatenate([part.ends for part in parts])
    return Solved(world, states, _matrix(keys, parts, ends.size), ends, start)


def _expand(world: World, states: Ints, begin: int) -> _Found:
    actions = len(world.actions)
    many = np.repeat(states, actions, axis=0)
    acts = np.tile(np.arange(actions), len(states))
    index = begin * actions + np.arange(len(many))
    stays = 1 - world.chances[LEFT]
    ends, found = np.zeros(len(many)), []
    for thrown in product((0, 1), repeat=len(_TRIED)):
        chance = float(np.prod(np.where(thrown, world.chances[_TRIED], 1 - world.chances[_TRIED])))
        if chance > 0:
            coins = np.zeros((len(many), COINS), np.bool_)
            coins[:, _TRIED] = thrown
            moved = world.move(many, acts, coins)
            on = moved.outcome == RUNNING
            ends += chance * np.where(on, stays - 1, moved.outcome)
            after = moved.states[on]
            after[:, STEPS] = 0
            found.append((index[on], np.full(on.sum(), chance * stays), _keys(world, after), after))
    rows, chances, keys, nexts = (np.concatenate([item[i] for item in found]) for i in range(4))
    return _Found(rows, chances, keys, nexts, ends.reshape(len(states), actions))


def _matrix(keys: NDArray[np.int64], parts: list[_Found], rows: int) -> Any:
    from scipy.sparse import coo_array

    order = np.argsort(keys)
    after = np.concatenate([order[np.searchsorted(keys, part.keys, sorter=order)] for part in parts])
    chances, index = (np.concatenate([part[i] for part in parts]) for i in (1, 0))
    return coo_array((chances, (index, after)), shape=(rows, len(keys))).tocsr()


def _keys(world: World, states: Ints, columns: NDArray[np.intp] | None = None) -> NDArray[np.int64]:
    """A number for each row: equal where the columns (default: all) are, but for the time."""
    key = np.zeros(len(states), np.int64)
    for index, column in enumerate(world.columns):
        if index != STEPS and (columns is None or index in columns):
            key = key * column.size + states[:, index]
    return key
