"""Many episodes of a world side by side, with random numbers that belong to the episode and not to the policy.

Episode i of a seed begins alike, and its k-th step has the same coins, whoever acts: differences between two policies are
paired. More episodes leave the first ones as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.envs.world import COINS, HORIZON, SUCCESS, Bools, Floats, Ints, World

if TYPE_CHECKING:
    pass

NO_ACTION = -1
"""What stands in `Rollout.actions` after an episode's end."""


class Draws(NamedTuple):
    """Numbers in [0, 1) of n episodes: `part` and `start` (n), `coins` (n, HORIZON, COINS), `choice` (n, HORIZON)."""

    part: Floats
    start: Floats
    coins: Floats
    choice: Floats


def draws(episodes: int, seed: int) -> Draws:
    """The random numbers of so many episodes; those of the first ones do not depend on how many there are."""
    rng = np.random.default_rng([seed, 0])
    numbers = rng.random((episodes, 2 + HORIZON * (COINS + 1)))
    steps = numbers[:, 2:].reshape(episodes, HORIZON, COINS + 1)
    return Draws(numbers[:, 0], numbers[:, 1], steps[:, :, :COINS], steps[:, :, COINS])


@dataclass(frozen=True)
class Rollout:
    """n episodes of a world, whole or so far.

    `states` (n, HORIZON + 1, columns) holds the rows before each step and the last one, `actions` (n, HORIZON) NO_ACTION
    after the end, `propensities` (n, HORIZON), `codes` (n, HORIZON, 2), `outcome`, `rewards` (the episode's sum) and
    `lengths` (n).
    """

    world: World
    states: Ints
    actions: Ints
    propensities: Floats
    codes: Ints
    outcome: Ints
    rewards: Floats
    lengths: NDArray[np.int64]

    @classmethod
    def fresh(cls, world: World, begin: Ints) -> Rollout:
        """Episodes that begin in these rows, with no step taken."""
        count = len(begin)
        states = np.zeros((count, HORIZON + 1, len(world.columns)), np.int16)
        states[:, 0] = begin
        return cls(
            world,
            states,
            np.full((count, HORIZON), NO_ACTION, np.int16),
            np.full((count, HORIZON), np.nan),
            np.zeros((count, HORIZON, 2), np.int16),
            np.zeros(count, np.int16),
            np.zeros(count),
            np.zeros(count, np.int64),
        )

    @property
    def successes(self) -> Bools:
        """Which episodes succeeded."""
        won: Bools = self.outcome == SUCCESS
        return won

    def returns(self, gamma: float = 1.0) -> Floats:
        """The return from the first step: the reward comes with the last one."""
        discounted: Floats = self.rewards * gamma ** np.maximum(self.lengths - 1, 0)
        return discounted

    @property
    def taken(self) -> Bools:
        """Which steps were taken, shape (n, HORIZON)."""
        taken: Bools = self.actions != NO_ACTION
        return taken
