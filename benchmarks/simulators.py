"""Stepping a simulator: many episodes at once against one at a time, and whole episodes with and without text, on one core."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Result, alternating
from logforge.envs.behaviour import behaviour, part
from logforge.envs.catalogue import WORLDS, make
from logforge.envs.episodes import draws
from logforge.envs.rollout import roll, seeing
from logforge.envs.simulation import logged, rows
from logforge.envs.tool_env import ToolEnv, ToolVectorEnv

WIDTH, STEPS, ALONE = 1024, 50, 1500
TARGET, EPISODES = 20, 2000


def run(width: int = WIDTH, episodes: int = EPISODES) -> list[Result]:
    """Both simulators."""
    return [result for name in WORLDS for result in (_stepping(name, width), *_episodes(name, episodes))]


def _stepping(name: str, width: int) -> Result:
    world = make(name)
    many, one, told = ToolVectorEnv(world, width), ToolVectorEnv(world, 1), ToolEnv(world)
    actions = np.random.default_rng(0).integers(len(world.actions), size=(STEPS, width))

    def together() -> None:
        many.reset(seed=0)
        for row in actions:
            many.step(row)

    def alone() -> None:
        one.reset(seed=0)
        for action in actions.ravel()[:ALONE]:
            one.step(np.array([action]))

    def in_words() -> None:
        told.reset(seed=0)
        for action in actions.ravel()[:ALONE]:
            _, _, ended, cut, _ = told.step(action)
            if ended or cut:
                told.reset()

    fast, slow, wordy = alternating(together, alone, in_words)
    per_s, alone_s, wordy_s = STEPS * width / fast, ALONE / slow, ALONE / wordy
    ratio = per_s / alone_s
    return Result(
        f"steps of {name}, {width} episodes at once",
        f"{per_s:,.0f} steps/s",
        f"one at a time {alone_s:,.0f}, with text {wordy_s:,.0f} steps/s",
        ratio,
        f"≥ {TARGET}",
        ratio >= TARGET,
    )


def _episodes(name: str, episodes: int) -> list[Result]:
    world, acting = make(name), behaviour("mix")

    def played() -> None:
        roll(world, seeing(part("rule-10")), draws(episodes, 0))

    def told() -> None:
        run, script, parts = logged(world, acting, episodes, 0)
        for _ in rows(run, script, [acting.names[p] for p in parts], 0):
            pass

    bare, text = (episodes / seconds for seconds in alternating(played, told))
    return [
        Result(
            f"  episodes of {name}, structured", f"{bare:,.0f} episodes/s", "", None, "≥ 1,000", bare >= 1000
        ),
        Result(f"  episodes of {name}, as log rows", f"{text:,.0f} episodes/s", "", None, "stated", None),
    ]
