"""Learnt policies in a world: its rollouts as arrays to learn from, and bundles as policies that act in it."""

from __future__ import annotations

import numpy as np

from logforge.envs.episodes import Rollout
from logforge.envs.rollout import Policy, View
from logforge.envs.world import Floats
from logforge.learning.policies import PolicyBundle
from logforge.rewards import returns_to_go
from logforge.serving import StateServer
from logforge.shards import SplitArrays, plain_sides


def feature_arrays(run: Rollout, gamma: float) -> SplitArrays:
    """Whole episodes as a split with the structured observation, as a dataset has them; rewards are the world's own, ±1 at
    the end, and what hits the horizon has failed. The vocabulary is the world's, with `<invalid>` behind it."""
    world, lengths = run.world, run.lengths
    steps, rows = (np.arange(run.states.shape[1]) < n for n in (lengths[:, None], lengths[:, None] + 1))
    taken = steps[:, :-1]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    last = np.zeros(offsets[-1], np.bool_)
    last[offsets[1:] - 1] = True
    rewards = np.zeros(len(last), np.float32)
    rewards[last] = run.rewards
    shown = run.states[rows] * np.array([column.visible for column in world.columns], np.int16)
    masks = np.ones((len(shown), len(world.actions) + 1), np.bool_)
    masks[:, -1] = False
    actions, propensities = run.actions[taken].astype(np.int32), run.propensities[taken].astype(np.float32)
    return SplitArrays(
        **plain_sides(actions, propensities),
        actions=actions,
        rewards=rewards,
        terminals=last,
        timeouts=np.zeros(len(last), np.bool_),
        returns=returns_to_go(rewards.astype(np.float64), offsets, gamma).astype(np.float32),
        propensities=propensities,
        weights=np.ones(len(last), np.float32),
        success=run.successes.astype(np.int8),
        groups=np.arange(len(lengths), dtype=np.int32),
        augmented=np.zeros(len(lengths), np.bool_),
        episode_offsets=offsets,
        observations=world.features(shown).astype(np.float32),
        masks=masks,
        observation_offsets=offsets + np.arange(len(offsets)),
    )


def served(server: StateServer, bundle: PolicyBundle) -> Policy:
    """A bundle that reads the dialogue as its dataset's states and takes its best action."""
    bundle.check(server.manifest)

    def policy(view: View) -> Floats:
        observations, masks = server.observe(view.episodes(), list(view.world.tools))
        return _chances(bundle.choose(observations, masks), view)

    return policy


def _chances(choices: np.ndarray[tuple[int], np.dtype[np.int32]], view: View) -> Floats:
    """All on the chosen action. Dataset and world number actions alike."""
    return np.eye(len(view.world.actions))[choices]
