"""SWE-agent trajectories (`.traj`): one JSON document with `history` (prompt view) and `trajectory` (step view).

The record is the document. Decisions come from `trajectory`; a document that has only `history` is read from its tool
calls. Few-shot demonstrations (`is_demo`) are part of the prompt, not of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from logforge.connectors.chat import calls_of
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    command_call,
    content_id,
    cost_or_none,
    first_user_text,
    interface,
    place_of,
    read_rows,
    reject,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, loads
from logforge.schemas import Ending, Reading, SourceKind

_HUMAN_NAME = re.compile(r"(?:human|ctf)(?:[_\-.]|$)")


class SweAgentTraj:
    """SWE-agent's `.traj` files."""

    name = "swe_agent_traj"
    version = 4
    record = "one run: the document"
    fills = ("thoughts", "cost", "latency")

    def sniff(self, head: Head) -> float:
        """A document with a step view of actions and observations, or a prompt view written by an agent."""
        steps, history = head.keys.get("trajectory", set()), head.keys.get("history", set())
        if head.container != "object" or "instruction" in head.top:
            return 0.0
        if (
            "trajectory" in head.top
            and {"action", "observation"} <= steps
            and {"response", "thought"} & steps
        ):
            return 0.95
        prompt_view = {"role", "content"} <= history and {"agent", "message_type", "is_demo"} & history
        return 0.9 if "history" in head.top and prompt_view else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode."""
        yield from read_rows(source, lambda row, locator: self._row(row, locator, source.place))

    def _row(self, row: Any, locator: str, path: PurePath) -> Iterator[Reading]:
        history = _dicts(row.get("history")) if isinstance(row, dict) else []
        steps = row.get("trajectory") if isinstance(row, dict) else None
        if not history and not isinstance(steps, list):
            yield reject(locator, "neither `history` nor `trajectory`", "", row)
            return
        builder = EpisodeBuilder()
        run = [(index, message) for index, message in history if message.get("is_demo") is not True]
        if isinstance(steps, list):
            _add_prompt(builder, run, locator)
            _add_steps(builder, steps, _decisions(run, len(steps)), locator)
        else:
            _add_history(builder, run, locator)
        info = row["info"] if isinstance(row.get("info"), dict) else {}
        config = _config(row)
        ending, reason = _ending(builder, info)
        kind, policy = _who(info, config, path)
        task = first_user_text(builder)
        episode = builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            task_id=_task_id(row, config, path),
            task=task,
            group_id=task_group(task),
            source_kind=kind,
            policy_id=policy,
            model=policy if kind == "agent_log" else None,
            temperature=_temperature(config),
            cost_usd=_cost(info),
            metadata=canonical(
                {
                    "environment": row.get("environment"),
                    "info": info,
                    "demo_messages": len(history) - len(run),
                    "history_messages": len(history),
                }
            ),
        )
        yield from close(builder, episode)


def _dicts(value: Any) -> list[tuple[int, dict[str, Any]]]:
    listed = value if isinstance(value, list) else []
    return [(index, item) for index, item in enumerate(listed) if isinstance(item, dict)]


def _add_prompt(builder: EpisodeBuilder, run: list[tuple[int, dict[str, Any]]], locator: str) -> None:
    """The system prompt and the task: what stands in `history` before the first decision."""
    for index, message in run:
        role = message.get("role")
        if role not in ("system", "user"):
            return
        builder.message(role, message.get("content"), at(locator, f"/history/{index}/content"))


def _decisions(run: list[tuple[int, dict[str, Any]]], count: int) -> list[tuple[int, dict[str, Any]] | None]:
    """The history's message for each step, where the two views go side by side."""
    made = [(index, message) for index, message in run if message.get("role") == "assistant"]
    return list(made) if len(made) == count else [None] * count


def _add_steps(
    builder: EpisodeBuilder,
    steps: list[Any],
    decisions: list[tuple[int, dict[str, Any]] | None],
    locator: str,
) -> None:
    for number, (step, decision) in enumerate(zip(steps, decisions, strict=True)):
        where = at(locator, f"/trajectory/{number}")
        if not isinstance(step, dict):
            builder.rejects.append(bad_part(where, "step is no object", "bad_step", step))
            continue
        _add_step(builder, step, decision, where, locator)


def _add_step(
    builder: EpisodeBuilder,
    step: dict[str, Any],
    decision: tuple[int, dict[str, Any]] | None,
    where: str,
    locator: str,
) -> None:
    response, thought = text_of(step.get("response")), text_of(step.get("thought"))
    call = _call_of(builder, step, decision, where, locator)
    source = "response" if response is not None else "thought"
    if response is None:
        response, thought = thought, None
    elif thought is not None and thought.strip() == response.strip():
        thought = None
    builder.turn(response, [call] if call else [], place_of(step, source, where), thought=thought or None)
    if "observation" not in step or step["observation"] is None:
        return
    text, pointer = text_of(step["observation"]), f"{where}/observation"
    if call is None:
        builder.message("user", text, pointer)
    else:
        builder.result(call.call_id, text, pointer, latency_s=_seconds(step.get("execution_time")))


def _call_of(
    builder: EpisodeBuilder,
    step: dict[str, Any],
    decision: tuple[int, dict[str, Any]] | None,
    where: str,
    locator: str,
) -> Call | None:
    """The step's call: the function the model called, where the history has it; else the command that was run."""
    action = text_of(step.get("action")) or ""
    if decision is not None and decision[1].get("action") == step.get("action"):
        index, message = decision
        calls = calls_of(message, at(locator, f"/history/{index}"), builder.rejects)
        if len(calls) == 1:
            return calls[0]
    return next(iter(_command(builder, action, f"{where}/action")), None)


def _command(builder: EpisodeBuilder, text: str, where: str) -> list[Call]:
    return command_call(text.removesuffix("\n"), where, interface(builder))


def _add_history(builder: EpisodeBuilder, run: list[tuple[int, dict[str, Any]]], locator: str) -> None:
    """Read the prompt view: in it a decision's tool calls, or the command under `action`, and then the observation."""
    commands_open = False
    for index, message in run:
        where = at(locator, f"/history/{index}")
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "assistant":
            calls = calls_of(message, where, builder.rejects)
            action = message.get("action")
            commands_open = not calls and isinstance(action, str) and bool(action.strip())
            if commands_open:
                calls = _command(builder, str(action), f"{where}/action")
            thought = text_of(message.get("thought"))
            repeated = thought is None or thought.strip() == (text or "").strip()
            builder.turn(
                text, calls, place_of(message, "content", where), thought=None if repeated else thought
            )
        elif role == "tool" or (role == "user" and commands_open):
            ids = message.get("tool_call_ids")
            call_id = message.get("tool_call_id") or (ids[0] if isinstance(ids, list) and ids else None)
            builder.result(text_or_none(call_id), text, place_of(message, "content", where))
            commands_open = False
        elif role in ("system", "user"):
            builder.message(role, text, f"{where}/content")
        else:
            reason = "message whose role is none of system, user, assistant, tool"
            builder.rejects.append(bad_part(where, reason, "unknown_role", message))


def _ending(builder: EpisodeBuilder, info: dict[str, Any]) -> tuple[Ending, str]:
    """`submitted` is the agent's own end. Everything else stopped it, `submitted (exit_cost)` too: the harness submitted."""
    status = info.get("exit_status")
    if status == "submitted":
        return "terminal", "exit status: submitted"
    if isinstance(status, str) and status:
        return "truncated", f"exit status: {status[:60]}"
    if builder.last_action == "submit":
        return "terminal", "no exit status, but the last action is submit"
    return "truncated", "no exit status"


def _config(row: dict[str, Any]) -> dict[str, Any]:
    """The run's configuration, an object or its JSON text."""
    config = row.get("replay_config")
    if isinstance(config, str):
        try:
            config = loads(config)
        except NotJson:
            config = None
    return config if isinstance(config, dict) else {}


def _inside(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _task_id(row: dict[str, Any], config: dict[str, Any], path: PurePath) -> str | None:
    """The instance: the document says it, or the run's configuration, or the file's name (SWE-agent names it so)."""
    for value in (
        row.get("instance_id"),
        _inside(config, "problem_statement", "id"),
        _inside(config, "agent", "name"),
    ):
        if isinstance(value, str) and value:
            return value
    return path.stem or None


def _who(info: dict[str, Any], config: dict[str, Any], path: PurePath) -> tuple[SourceKind, str | None]:
    """Who decided. A person did where no model was called and the file or its folder is named so.

    No calls and no cost alone are no proof: a replay of a model's actions has none either.
    """
    stats = info.get("model_stats")
    uncalled = isinstance(stats, dict) and not stats.get("api_calls") and not stats.get("instance_cost")
    if uncalled and any(_HUMAN_NAME.match(part.lower()) for part in path.parts[-4:]):
        return "human_demo", "human"
    model = _inside(config, "agent", "model", "name")
    return "agent_log", model if isinstance(model, str) and model else None


def _cost(info: dict[str, Any]) -> float | None:
    """What the model calls cost. Without any (a person, a replay) there was nothing to pay."""
    stats = _inside(info, "model_stats")
    stats = stats if isinstance(stats, dict) else {}
    return cost_or_none(stats.get("instance_cost")) if stats.get("api_calls") else None


def _temperature(config: dict[str, Any]) -> float | None:
    return _seconds(_inside(config, "agent", "model", "temperature"))


def _seconds(value: Any) -> float | None:
    """A finite number that is not negative."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < 1e12 else None
