"""tau-bench results: a JSON array of {task_id, trial, reward, info, traj}. A record is one array element.

`traj` holds OpenAI messages with text arguments, null contents and call ids that repeat within an episode. Task ids
are not unique across files, so an episode's identity is its whole record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.benchmarks.tau_actions import writes_in
from logforge.connectors.chat import add_messages
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    content_id,
    contradicted,
    episode_id,
    failure_in,
    first_user_text,
    read_outcome,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Episode, Reading


class TauBench:
    """tau-bench's `historical_trajectories`."""

    name = "tau_bench"
    version = 4
    record = "one array element: a trial of a task"
    fills = ("outcome", "score")

    def sniff(self, head: Head) -> float:
        """An array whose first object has traj and either task_id or reward."""
        return (
            0.95
            if head.container == "array" and "traj" in head.top and {"task_id", "reward"} & head.top
            else 0.0
        )

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per element."""
        agent = agent_of(source.place.name)
        yield from read_rows(source, lambda row, locator: self._row(row, locator, agent))

    def _row(self, row: Any, locator: str, agent: Agent) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("traj"), list):
            yield reject(locator, "no list `traj` of messages", "", row)
            return
        builder = EpisodeBuilder()
        add_messages(builder, row["traj"], at(locator, "/traj"))
        yield from close(builder, self._episode(builder, row, locator, agent))

    def _episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str, agent: Agent) -> Episode:
        info = row["info"] if isinstance(row.get("info"), dict) else {}
        task = info["task"] if isinstance(info.get("task"), dict) else {}
        stop = failure_in(info, row)
        ending, reason = _ending(row, info, builder, stop)
        told = read_outcome(row, locator, builder.rejects, success=(), score=("reward",)).judged()
        unjudged = "the environment gave no verdict" if _was_stopped(info) else None
        outcome = told.void(stop or unjudged)
        builder.rejects += contradicted(
            locator, outcome, lambda: writes_in(task.get("actions")), builder.calls
        )
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=f"{row.get('task_id')}/{row.get('trial')}",
            task_id=text_or_none(row.get("task_id")),
            task=first_user_text(builder),
            group_id=episode_id(self.name, task.get("instruction", row.get("task_id"))),
            user_id=text_or_none(task.get("user_id")),
            model=agent.model,
            policy_id=agent.policy,
            temperature=agent.temperature,
            **outcome.fields(),
            trial=text_or_none(row.get("trial")),
            reference=canonical(task["actions"]) if "actions" in task else None,
            metadata=canonical({key: value for key, value in row.items() if key != "traj"}),
        )


def _was_stopped(info: dict[str, Any]) -> bool:
    """A run without a verdict never came to its end: the step cap stopped it, and its reward of 0.0 is a placeholder."""
    return "reward_info" in info and info["reward_info"] is None


def _ending(
    row: dict[str, Any], info: dict[str, Any], builder: EpisodeBuilder, stop: str | None
) -> tuple[Ending, str]:
    if row.get("reward") is None:
        return "truncated", "no reward"
    if stop is not None:
        return "truncated", stop
    if _was_stopped(info):
        return "truncated", "step limit: the environment gave no verdict"
    if builder.messages and builder.messages[-1].role == "tool":
        handed_over = builder.last_action.startswith("transfer")
        return "terminal", "handed over to a human" if handed_over else "the environment ended it"
    return "terminal", "the user ended it"


_RUN = re.compile(r"(?P<agent>.+?)-(?P<temperature>\d(?:\.\d+)?)_range_-?\d+-+\d+(?:_.*)?")


_DOMAIN = re.compile(r"(?P<agent>.+?)-(?:airline|retail|telecom)(?:[._-].*)?")


_STRATEGY = re.compile(r"(?:tool-calling|few-shot|react|act)-")


_FAMILY = re.compile(
    r"(?:^|-)(?P<model>(?:chatgpt|gpt|o1|o3|o4|claude|sonnet|haiku|opus|gemini|gemma|llama|meta-llama|mistral|mixtral"
    r"|codestral|qwen|qwq|deepseek|grok|command|phi|nova|kimi|glm|granite|nemotron)(?![a-z])[\w.-]*)$",
    re.IGNORECASE,
)


_NOBODY = "-none"


class Agent(NamedTuple):
    """Who decided, as far as the file's name tells."""

    policy: str | None = None
    model: str | None = None
    temperature: float | None = None


def agent_of(name: str) -> Agent:
    """The agent in the name of a file of results; nothing where the name is of no form that has one.

    The results do not say who played. The harness names a file `STRATEGY-MODEL-TEMPERATURE_range_…`; published ones are named
    `MODEL-DOMAIN`.
    """
    stem = name.removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")
    run = _RUN.fullmatch(stem)
    placed = run or _DOMAIN.fullmatch(stem)
    agent = placed["agent"] if placed else stem
    family = _FAMILY.search(agent)
    if not (placed or family or _STRATEGY.match(agent)):
        return Agent()
    policy = agent.removesuffix(_NOBODY) or None
    model = family["model"] if family else None
    return Agent(policy, model, float(run["temperature"]) if run else None)
