"""`logforge simulate`: episodes of a behaviour policy in a world, written as the raw log of a chat agent.

The log is one file of the format `openai_messages` with what a careful team logs: the tools on offer, who decided with which
probability, the outcome, times. What is hidden stays hidden. The same call gives the same bytes, and more episodes only add
lines. Every later stage reads it as it reads any log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from logforge.core import BaseReport, Lines, Tick, replaced_file, silent
from logforge.envs.behaviour import Behaviour, behaviour, part
from logforge.envs.episodes import Rollout, draws
from logforge.envs.rollout import Policy, View, roll
from logforge.envs.wording import SCENARIOS, Message, Script, script, transcript
from logforge.envs.world import RUNNING, SUCCESS, World
from logforge.schemas import UsageError


@dataclass(frozen=True)
class SimulationReport(BaseReport):
    """What was written: counts, and the share of successes (exact for the episodes, an estimate for the policy)."""

    world: str
    policy: str
    seed: int
    episodes: int
    steps: int
    successes: int
    truncated: int
    file: str

    def lines(self) -> Lines:
        """Two lines for a terminal."""
        share = self.successes / self.episodes
        yield (
            f"{self.world}: {self.episodes:,} episodes of {self.policy}, {self.steps:,} steps, {share:.1%} successful, "
            f"{self.truncated:,} cut off at the horizon"
        )
        yield self.file


def simulate(
    world: World, policy: str, episodes: int, seed: int, out: str | Path, progress: Tick = silent
) -> SimulationReport:
    """Write `episodes` of a policy (see `behaviour`) to OUT/NAME.jsonl. Raises UsageError for a wrong policy or count."""
    if episodes < 1 or seed < 0:
        raise UsageError("no episodes to simulate", "give at least 1 episode and a seed of at least 0")
    acting = behaviour(policy)
    run, told, parts = logged(world, acting, episodes, seed)
    target = Path(out) / f"{world.name}.jsonl"
    with replaced_file(target) as fresh, fresh.open("wb") as file:
        for number, row in enumerate(rows(run, told, [acting.names[p] for p in parts], seed)):
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            progress(number + 1, episodes, "")
    truncated = int((run.outcome == RUNNING).sum())
    won, steps = int(run.successes.sum()), int(run.lengths.sum())
    return SimulationReport(world.name, policy, seed, episodes, steps, won, truncated, str(target))


def logged(
    world: World, acting: Behaviour, episodes: int, seed: int
) -> tuple[Rollout, Script, np.ndarray[Any, Any]]:
    """The episodes of a behaviour, what words them, and which part of the behaviour acted in each."""
    numbers, told = draws(episodes, seed), script(world.name, episodes, seed)
    problems = np.random.default_rng([seed, 2]).random(SCENARIOS)
    parts = acting.parts(numbers.part)
    numbers = numbers._replace(start=problems[told.scenarios])
    return roll(world, _mixed(world, acting, parts), numbers), told, parts


def _mixed(world: World, acting: Behaviour, parts: np.ndarray[Any, Any]) -> Policy:
    policies = [part(name) for name in acting.names]

    def policy(view: View) -> np.ndarray[Any, Any]:
        states, acts = view.visible, parts[view.rows]
        chances = np.zeros((len(states), len(world.actions)))
        for number, one in enumerate(policies):
            mine = acts == number
            if mine.any():
                chances[mine] = one(world, states[mine])
        return chances

    return policy


def rows(run: Rollout, told: Script, policies: list[str], seed: int) -> Iterator[dict[str, Any]]:
    """The log's rows, one for each episode."""
    world = run.world
    tools = [{"type": "function", "function": {"name": name}} for name in world.tools]
    for episode, policy in enumerate(policies):
        cut = run.outcome[episode] == RUNNING
        yield {
            "id": f"{world.name}-{seed}-{episode:06d}",
            "task_id": f"{world.name}-{seed}-scenario-{told.scenarios[episode]:04d}",
            "policy_id": policy,
            "source_kind": "random_exploration" if policy == "random" else "agent_log",
            "success": bool(run.outcome[episode] == SUCCESS),
            "truncated" if cut else "terminated": True,
            "tools": tools,
            "messages": _messages(run, told, episode),
        }


def _messages(run: Rollout, told: Script, episode: int) -> list[Message]:
    """The messages, each decision with its probability."""
    messages = transcript(run, told, episode)
    decisions = (message for message in messages if message["role"] == "assistant")
    for decision, propensity in zip(decisions, run.propensities[episode], strict=False):
        decision["propensity"] = float(propensity)
    return messages
