"""Online RL in a world, for comparison: Double DQN that gathers its own episodes, which no log can be learnt from like that.

It sees the structured observation, and plays in rounds: ε-greedy, learn from all that was seen, again with less chance.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from logforge.core import Tick, silent
from logforge.envs.episodes import Rollout, draws
from logforge.envs.learnt import feature_arrays
from logforge.envs.rollout import Policy, on_features, roll
from logforge.envs.world import Features, Floats, World

GAMMA: Final = 0.99
EPISODES: Final = 20_000
"""To be played; a log of 2,000 has far fewer."""
UPDATES: Final = 8_000
ROUNDS: Final = 20
HIDDEN: Final = (64, 64)
_EXPLORED = 0.05
"""The share of actions at random that is left in the last round, from all in the first."""


def play_online(
    world: World, episodes: int = EPISODES, updates: int = UPDATES, seed: int = 0, progress: Tick = silent
) -> tuple[Policy, Floats]:
    """A policy that learnt by acting for so many episodes, and the share of successes in each round on the way.

    Rewards are the world's own, ±1 at the end. Equal seeds give equal policies.
    """
    from logforge.core import Span, one_thread
    from logforge.learning.training import LEARNERS, Fit, Replay, Rules

    actions = len(world.actions)
    sizes = (world.features(world.reset(np.zeros(1))).shape[1], *HIDDEN, actions + 1)
    fit = Fit(LEARNERS["dqn"], Rules(GAMMA, Span(-1, 1)), (seed,), sizes, 1e-3, 0.005)
    so_far: Rollout | None = None
    shares = []
    with one_thread():
        for number in range(ROUNDS):
            chance = 1 + (_EXPLORED - 1) * number / (ROUNDS - 1)
            numbers = draws(episodes // ROUNDS, seed * ROUNDS + number)
            run = roll(world, _exploring(fit, actions, chance), numbers)
            shares.append(float(run.successes.mean()))
            so_far = run if so_far is None else _joined(so_far, run)
            batches = Replay(feature_arrays(so_far, GAMMA), actions).batches(((seed, number),), 128)
            for _, batch in zip(range(updates // ROUNDS), batches, strict=False):
                fit.update(batch)
            progress(number + 1, ROUNDS, f"online, {shares[-1]:.0%} solved")
    return _exploring(fit, actions, 0.0), np.array(shares)


def _exploring(fit: object, actions: int, chance: float) -> Policy:
    from logforge.learning.training import Fit

    assert isinstance(fit, Fit)

    def chances(features: Features) -> Floats:
        best = fit.scores(features.astype(np.float32), 0)[:, :actions].argmax(axis=1)
        found: Floats = (1 - chance) * np.eye(actions)[best] + chance / actions
        return found

    return on_features(chances)


def _joined(one: Rollout, other: Rollout) -> Rollout:
    parts: dict[str, Any] = {
        part.name: np.concatenate([getattr(one, part.name), getattr(other, part.name)])
        for part in fields(one)
        if part.name != "world"
    }
    return replace(one, **parts)
