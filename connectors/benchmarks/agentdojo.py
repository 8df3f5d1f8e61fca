"""AgentDojo runs: one JSON document per user task, with or without an injected attack. The record is the document.

Content is a list of `{type, content}`; calls have `function` and `args`, and no ids in scripted runs (results then come in
the calls' order). `utility` is the outcome. `security` tells whether an attack came through, where one was injected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import calls_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    episode_id,
    failure_in,
    first_number,
    first_text,
    first_user_text,
    micros,
    object_or_empty,
    read_outcome,
    read_rows,
    reject,
    text_of,
    text_or_none,
    truth_of,
    unread_calls,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Episode, Reading

_THINKING = ("thinking", "redacted_thinking")
_SCRIPTED = "ground-truth"
"""The pipeline that plays a task's known solution, without a model."""


class AgentDojo:
    """AgentDojo's `runs/PIPELINE/SUITE/USER_TASK/ATTACK/INJECTION.json`."""

    name = "agentdojo"
    version = 5
    record = "one run: the document"
    fills = ("outcome", "thoughts")

    def sniff(self, head: Head) -> float:
        """A suite, a user task and messages."""
        mine = head.has_rows and {"suite_name", "user_task_id", "messages"} <= head.top
        return 0.95 if mine else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
            yield reject(locator, "no list of `messages`", "", row)
            return
        builder = EpisodeBuilder()
        for index, message in enumerate(row["messages"]):
            _add(builder, message, at(locator, f"/messages/{index}"))
        yield from close(builder, self._episode(builder, row, locator))

    def _episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        keys = ("pipeline_name", "suite_name", "user_task_id", "attack_type", "injection_task_id")
        pipeline, suite, task, attack, injection = (text_or_none(row.get(key)) for key in keys)
        scripted = pipeline is not None and pipeline.startswith(_SCRIPTED)
        ending, reason = _ending(builder, row)
        metadata = {key: value for key, value in row.items() if key != "messages"}
        stop = failure_in(row)
        told = read_outcome(row, locator, builder.rejects, success=("utility",), score=())
        # Without an injection `security` is always true and says nothing; nor does it after an error.
        security = truth_of(row.get("security")) if injection and stop is None else None
        metadata["attack_succeeded"] = security
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id="/".join(part or "none" for part in (pipeline, suite, task, attack, injection)),
            task_id="/".join(part for part in (suite, task) if part) or None,
            task=first_user_text(builder),
            group_id=episode_id(self.name, suite, task) if suite and task else None,
            source_kind="synthetic" if scripted else "agent_log",
            policy_id="script:ground-truth" if scripted else pipeline,
            model=None if scripted else pipeline,
            **told.void(stop).fields(),
            attack=attack,
            injection=injection,
            metadata=canonical(metadata),
            **_clock(row),
        )


def _add(builder: EpisodeBuilder, message: Any, where: str) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "assistant":
        _add_turn(builder, message, where)
    elif role == "tool":
        _add_result(builder, message, where)
    elif role in ("system", "user"):
        builder.message(role, message.get("content"), where)
    else:
        reason = "message whose role is none of system, user, assistant, tool"
        builder.rejects.append(bad_part(where, reason, "unknown_role", message))


def _add_turn(builder: EpisodeBuilder, message: dict[str, Any], where: str) -> None:
    content: Any = message.get("content")
    thought = None
    if isinstance(content, list):
        thoughts = [part for part in content if object_or_empty(part).get("type") in _THINKING]
        content = [part for part in content if object_or_empty(part).get("type") not in _THINKING]
        thought = (
            "\n".join(text for part in thoughts if (text := first_text(part, "thinking", "text", "content")))
            or None
        )
    calls = calls_of(message, where, builder.rejects)
    text = content or None
    if lost := unread_calls(message, {"role", "content", "tool_calls"}):
        builder.unknown(where, lost, decides=True)
    if message.get("tool_calls") and not calls:
        builder.message("assistant", text, where, thought=thought)
    else:
        builder.turn(text, calls, where, thought=thought)


def _add_result(builder: EpisodeBuilder, message: dict[str, Any], where: str) -> None:
    """An error is what the model is shown instead of the content."""
    error = text_or_none(message.get("error"))
    own, call = text_or_none(message.get("tool_call_id")), object_or_empty(message.get("tool_call"))
    text = error or text_of(message.get("content"))
    place = f"{where}/error" if error else where
    builder.result(own or first_text(call, "id"), text, place, failed=True if error else None)


def _ending(builder: EpisodeBuilder, row: dict[str, Any]) -> tuple[Ending, str]:
    error = text_or_none(row.get("error"))
    if error:
        return "truncated", f"error: {error[:60]}"
    last = builder.messages[-1].role if builder.messages else ""
    if last == "assistant" and not builder.ends_unanswered:
        return "terminal", "the agent answered without a call"
    return "truncated", "the log stops before the agent's answer (iteration limit of the tool loop)"


def _clock(row: dict[str, Any]) -> dict[str, int]:
    start, seconds = micros(row.get("evaluation_timestamp")), first_number(row, "duration")
    if start is None or seconds is None or not 0 <= seconds < 1e9:
        return {} if start is None else {"started_at": start}
    return {"started_at": start, "ended_at": start + round(seconds * 1e6)}
