"""Worlds whose truth is known: simulators, exact values and credit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.envs.behaviour import rule
    from logforge.envs.branching import branches, credit
    from logforge.envs.catalogue import make
    from logforge.envs.evaluating import Evaluation, checked_restarts, evaluate_policy
    from logforge.envs.learnt import feature_arrays, served
    from logforge.envs.online import EPISODES, play_online
    from logforge.envs.rollout import Policy, View, on_features, seeing
    from logforge.envs.simulation import simulate
    from logforge.envs.solving import solve
    from logforge.envs.tool_env import gym_env, vector_env
    from logforge.envs.wording import as_episode, script, transcript
    from logforge.envs.world import Difficulty, World

__all__ = [
    "EPISODES", "Difficulty", "Evaluation", "Policy", "View", "World", "as_episode", "branches",
    "checked_restarts", "credit", "evaluate_policy", "feature_arrays", "gym_env", "make", "on_features",
    "play_online", "rule", "script", "seeing", "served", "simulate", "solve", "transcript", "vector_env",
]  # fmt: skip

face(
    __name__,
    behaviour="rule",
    branching="branches credit",
    catalogue="make",
    evaluating="Evaluation checked_restarts evaluate_policy",
    learnt="feature_arrays served",
    online="EPISODES play_online",
    rollout="Policy View on_features seeing",
    simulation="simulate",
    solving="solve",
    tool_env="gym_env vector_env",
    wording="as_episode script transcript",
    world="Difficulty World",
)
