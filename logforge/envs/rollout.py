"""What a policy sees of a rollout, and rollouts under a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.envs.episodes import Draws, Rollout
from logforge.envs.world import HORIZON, STEPS, Features, Floats, Ints, World
from logforge.schemas import Episode, UsageError

if TYPE_CHECKING:
    from logforge.envs.wording import Script


class View(NamedTuple):
    """What a policy sees of the m episodes that are not over: `rows` are their numbers in `rollout`, `time` the steps that
    they took. `script` words them (None: this evaluation has no text)."""

    rollout: Rollout
    rows: NDArray[np.intp]
    time: int
    script: Script | None = None

    @property
    def world(self) -> World:
        """The world that they are in."""
        return self.rollout.world

    @property
    def visible(self) -> Ints:
        """The rows with everything hidden set to 0, shape (m, columns)."""
        states = self.rollout.states[self.rows, self.time]
        shown: Ints = states * np.array([column.visible for column in self.world.columns], np.int16)
        return shown

    @property
    def features(self) -> Features:
        """The structured observation, shape (m, features)."""
        return self.world.features(self.visible)

    def messages(self) -> list[list[dict[str, Any]]]:
        """The dialogue of each episode so far, as OpenAI-style messages."""
        from logforge.envs.wording import transcript

        if self.script is None:
            raise UsageError("these episodes have no words", "give `roll` a script, or use evaluate_policy")
        return [transcript(self.rollout, self.script, row, self.time) for row in self.rows]

    def episodes(self) -> list[Episode]:
        """The same as ingest reads them from a log, for StateBuilder."""
        from logforge.envs.wording import as_episode

        return [as_episode(self.world, messages) for messages in self.messages()]


Policy = Callable[[View], NDArray[np.floating]]
"""What evaluation takes: a view of m episodes to the probabilities of their actions, shape (m, actions)."""


OnStates = Callable[[World, Ints], Floats]


def seeing(policy: OnStates) -> Policy:
    """A policy of the visible columns as one of views."""
    return lambda view: policy(view.world, view.visible)


def on_features(policy: Callable[[Features], NDArray[np.floating]]) -> Policy:
    """A policy of the structured observation as one of views."""
    return lambda view: policy(view.features)


def roll(
    world: World, policy: Policy, numbers: Draws, states: Ints | None = None, script: Script | None = None
) -> Rollout:
    """Episodes from their start, or from `states` (at the step that each row says), to their end."""
    begin = world.reset(numbers.start) if states is None else states
    run = Rollout.fresh(world, begin)
    offsets = begin[:, STEPS].astype(np.int64)
    rows = np.flatnonzero(offsets < HORIZON)
    for time in range(HORIZON):
        if not len(rows):
            break
        view = View(run, rows, time, script)
        chances = np.asarray(policy(view), np.float64)
        when = offsets[rows] + time
        actions = _chosen(chances, numbers.choice[rows, when])
        moved = world.step(run.states[rows, time], actions, numbers.coins[rows, when])
        run.states[rows, time + 1] = moved.states
        run.actions[rows, time], run.codes[rows, time] = actions, moved.codes
        run.propensities[rows, time] = chances[np.arange(len(rows)), actions]
        run.outcome[rows], run.lengths[rows] = moved.outcome, time + 1
        run.rewards[rows] += moved.rewards
        rows = rows[~moved.done]
    return run


def _chosen(chances: Floats, uniforms: Floats) -> NDArray[np.intp]:
    """The action whose part of [0, 1) holds the number; one of probability 0 never."""
    limits = np.cumsum(chances, axis=1)
    found = (limits <= uniforms[:, None] * limits[:, -1:]).sum(axis=1)
    chosen: NDArray[np.intp] = np.minimum(found, chances.shape[1] - 1)
    return chosen
