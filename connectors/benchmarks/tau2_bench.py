"""τ²-bench results: one JSON document {info, tasks, simulations}. A record is one element of `simulations`.

Arguments are objects, a tool message names its call by `id`. The user may use tools of its own (telecom): the agent sees
neither those calls nor their results, so they are no messages. The greeting is the harness's, not the agent's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from logforge.connectors.benchmarks.tau_actions import writes_in
from logforge.connectors.chat import FINISHED, calls_of, simulation_outcome, termination_of, tool_names
from logforge.connectors.episodes import (
    RULE,
    VOICE,
    EpisodeBuilder,
    InnerList,
    Outcome,
    asks_user,
    bad_part,
    close,
    content_id,
    contradicted,
    cost_or_none,
    count_or_none,
    episode_id,
    first_number,
    micros,
    object_or_empty,
    prompt_version,
    read_inner,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, loads
from logforge.schemas import Ending, Episode, Reading, StepKind

_PLACEHOLDER_DAY = "2025-01-01T00:0"
"""Published results have their clock set to the first minutes of this day."""
_LONG = frozenset({"policy", "global_simulation_guidelines", "tool_defs"})
"""Texts of the run's settings that are the same in every simulation and stay out of each episode's metadata."""


class Tau2Bench:
    """τ²-bench's simulation results."""

    name = "tau2_bench"
    version = 4
    record = "one element of `simulations`: a trial of a task"
    fills = ("outcome", "score", "tools", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """A document with the run's settings, of agent and environment, and tasks or simulations."""
        settings = {"agent_info", "environment_info"} & head.keys.get("info", set())
        return (
            0.95 if head.container == "object" and settings and {"tasks", "simulations"} & head.top else 0.0
        )

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per simulation."""
        yield from read_inner(source, InnerList("simulations", "info"), self._simulation)

    def _simulation(self, row: Any, locator: str, document: dict[str, Any]) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
            voice = isinstance(row, dict) and "ticks" in row
            no_list = reject(locator, VOICE if voice else "no list of `messages`", "", row)
            yield replace(no_list, rule=RULE) if voice else no_list
            return
        talk = _Talk(_has_clock(row))
        for index, message in enumerate(row["messages"]):
            talk.add(message, index, at(locator, f"/messages/{index}"))
        yield from close(talk.builder, self._episode(talk, row, locator, document))

    def _episode(self, talk: _Talk, row: dict[str, Any], locator: str, document: dict[str, Any]) -> Episode:
        info, task = object_or_empty(document.get("info")), _task_of(row, document)
        agent, world = object_or_empty(info.get("agent_info")), object_or_empty(info.get("environment_info"))
        domain, task_id = text_or_none(world.get("domain_name")), text_or_none(row.get("task_id"))
        native, model = text_or_none(row.get("id")), text_or_none(agent.get("llm"))
        outcome = simulation_outcome(row, locator, talk.builder.rejects)
        ending, reason = _ending(row, talk, outcome)
        actions = object_or_empty(task.get("evaluation_criteria")).get("actions")
        clock = {"started_at": micros(row.get("start_time")), "ended_at": micros(row.get("end_time"))}
        policy = world.get("policy")
        prompt = {"prompt_version": prompt_version(str(policy))} if policy else {}
        talk.builder.rejects += contradicted(locator, outcome, lambda: writes_in(actions), talk.builder.calls)
        return talk.builder.finish(
            id=episode_id(self.name, native) if _is_uuid(native) else content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id="/".join(part for part in (domain, task_id) if part) or None,
            task=talk.task or text_or_none(task.get("ticket")),
            group_id=episode_id(self.name, domain, task_id) if task_id else None,
            model=model,
            policy_id=model,
            temperature=first_number(object_or_empty(agent.get("llm_args")), "temperature"),
            tools=tool_names(world.get("tool_defs")),
            **outcome.fields(),
            trial=text_or_none(row.get("trial")),
            cost_usd=cost_or_none(row.get("agent_cost")),
            reference=canonical(actions) if actions is not None else None,
            metadata=canonical(_metadata(row, info, task, talk)),
            **(clock if _has_clock(row) else {}),
            **prompt,
        )


class _Talk:
    """Takes a simulation's messages in order."""

    def __init__(self, has_clock: bool) -> None:
        self.builder = EpisodeBuilder()
        self.user_tools: list[dict[str, Any]] = []
        self.task: str | None = None
        self._has_clock = has_clock

    def add(self, message: Any, index: int, where: str) -> None:
        """Take one message."""
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            self._turn(message, index, where)
        elif role == "user":
            self._user(message, index, where)
        elif role == "tool" and isinstance(message.get("tool_messages"), list):
            for number, answer in enumerate(message["tool_messages"]):
                self._result(object_or_empty(answer), index, f"{where}/tool_messages/{number}")
        elif role == "tool":
            self._result(message, index, where)
        elif role == "system":
            self.builder.message("system", message.get("content"), where)
        else:
            reason = "message whose role is none of system, user, assistant, tool"
            self.builder.rejects.append(bad_part(where, reason, "unknown_role", message))

    def _turn(self, message: dict[str, Any], index: int, where: str) -> None:
        text = text_of(message.get("content"))
        calls = calls_of(message, where, self.builder.rejects)
        usage = object_or_empty(message.get("usage"))
        more = {
            "created_at": self._time(message),
            "tokens_in": count_or_none(usage.get("prompt_tokens")),
            "tokens_out": count_or_none(usage.get("completion_tokens")),
            "cost_usd": cost_or_none(message.get("cost")),
        }
        lost = bool(message.get("tool_calls")) and not calls
        if lost or (index == 0 and not calls):  # a decision that the log lost, or the harness's greeting
            self.builder.message("assistant", text, where, **more)
        else:
            self.builder.turn(text, calls, where, kind=_kind(text), **more)

    def _user(self, message: dict[str, Any], index: int, where: str) -> None:
        text = text_of(message.get("content"))
        if message.get("tool_calls"):
            self.user_tools.append({"index": index, "calls": message["tool_calls"]})
            if not text:
                return
        if self.task is None and not self.builder.last_action:
            self.task = text
        self.builder.message("user", text, where, created_at=self._time(message))

    def _result(self, message: dict[str, Any], index: int, where: str) -> None:
        text = text_of(message.get("content"))
        if message.get("requestor") == "user":
            self.user_tools.append({"index": index, "result": text})
            return
        failed = message["error"] if isinstance(message.get("error"), bool) else None
        call_id = text_or_none(message.get("id")) or text_or_none(message.get("tool_call_id"))
        self.builder.result(call_id, text, where, failed=failed, created_at=self._time(message))

    def _time(self, message: dict[str, Any]) -> int | None:
        return micros(message.get("timestamp")) if self._has_clock else None


def _kind(text: str | None) -> StepKind | None:
    """An answer that is wrapped in JSON asks the user when the `message` in it does."""
    if not text or not text.lstrip().startswith("{"):
        return None
    try:
        said = object_or_empty(loads(text)).get("message")
    except NotJson:
        return None
    return ("clarify" if asks_user(said) else "respond") if _said(said) else None


def _said(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_uuid(value: str | None) -> bool:
    try:
        return bool(UUID(value or ""))
    except ValueError:
        return False


def _has_clock(row: dict[str, Any]) -> bool:
    return not str(row.get("start_time")).startswith(_PLACEHOLDER_DAY)


def _ending(row: dict[str, Any], talk: _Talk, outcome: Outcome) -> tuple[Ending, str]:
    reason = termination_of(row)
    if reason is None and outcome.known:
        return "terminal", "the harness judged it"
    if reason not in FINISHED:
        return "truncated", f"termination reason: {reason}" if reason else "no termination reason"
    last = talk.builder.messages[-1] if talk.builder.messages else None
    if last is not None and last.role == "user" and "###OUT-OF-SCOPE###" in (last.content or ""):
        return "truncated", "the simulated user left: its scenario says no more"
    return "terminal", f"termination reason: {reason}"


def _task_of(row: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    tasks, wanted = document.get("tasks"), row.get("task_id")
    listed = tasks if isinstance(tasks, list) else []
    return next((t for t in listed if isinstance(t, dict) and t.get("id") == wanted), {})


def _metadata(row: dict[str, Any], info: dict[str, Any], task: dict[str, Any], talk: _Talk) -> dict[str, Any]:
    settings = {
        key: {k: v for k, v in value.items() if k not in _LONG} if isinstance(value, dict) else value
        for key, value in info.items()
    }
    own = {key: value for key, value in row.items() if key != "messages"}
    return own | {"info": settings, "task": task or None, "user_tools": talk.user_tools}
