"""Anthropic managed-agent sessions as an SDK recorded them: JSON lines of [call, value]. A record is a line.

The conversation is what `….events.stream` brought back; `….events.send` lines are echoed there. `….sessions.create` has
the agent: its model, system prompt and tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes import (
    Answered,
    Call,
    EpisodeBuilder,
    Transcript,
    Unknown,
    bad_record,
    close,
    content_id,
    count_or_none,
    episode_id,
    first_user_text,
    micros,
    read_content,
    text_of,
    text_or_none,
    unsaid,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, loads, malformed
from logforge.schemas import Ending, Reading, Reject, Skip

_CALL_LINE = re.compile(rb'\s*\[\s*"client\.(?:beta\.)?sessions\.[\w.]+"\s*,')
_USES = frozenset({"agent.tool_use", "agent.custom_tool_use", "agent.mcp_tool_use"})
_RESULTS = {
    "agent.tool_result": "tool_use_id",
    "agent.mcp_tool_result": "mcp_tool_use_id",
    "user.custom_tool_result": "custom_tool_use_id",
    "user.tool_result": "tool_use_id",
}


class AnthropicManaged:
    """Recorded sessions of Anthropic's managed agents."""

    name = "anthropic_managed"
    version = 4
    record = "one line: an SDK call and one value that it took or gave"
    fills = ("tools", "thoughts", "tokens", "latency", "times")

    def sniff(self, head: Head) -> float:
        """The first line is a call on a session."""
        return 0.95 if head.container == "array" and _CALL_LINE.match(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session, after what is skipped or set aside."""
        sessions: list[_Session] = []
        cut = False
        for number, line in source.lines():
            locator = f"{source.label}:{number}"
            row = _parsed(line, locator)
            cut = isinstance(row, Reject)
            reading = row if isinstance(row, Reject) else _add(sessions, row, locator)
            if reading is not None:
                yield reading
        for session in (session for session in sessions if session.records):
            try:
                yield from list(session.episode(cut and session is sessions[-1]))
            except RecursionError:
                where, records = session.locator, session.records
                yield Reject(locator=where, reason="nested too deep", rule="nested_too_deep", records=records)


def _parsed(line: bytes | Reject, locator: str) -> Any | Reject:
    if isinstance(line, Reject):
        return line
    try:
        return loads(line)
    except NotJson as error:
        return malformed(locator, error, line)


@dataclass
class _Session:
    """One session's lines as they are read."""

    first: Any
    locator: str
    created: dict[str, Any] = field(default_factory=dict)
    records: int = 0
    script: Transcript = field(default_factory=Transcript)
    state: tuple[Ending, str] | None = None
    success: bool | None = None
    seen: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)

    @property
    def agent(self) -> dict[str, Any]:
        """The agent as the session was created with it."""
        agent = self.created.get("agent")
        return agent if isinstance(agent, dict) else {}

    @property
    def model(self) -> str | None:
        """Its model."""
        model = self.agent.get("model")
        return text_or_none(model.get("id") if isinstance(model, dict) else model)

    def episode(self, cut: bool) -> Iterator[Reading]:
        """The session as an episode."""
        builder = EpisodeBuilder()
        self.script.build(builder)
        ending, reason = _ending(builder, self.state, cut)
        native = text_or_none(self.created.get("id"))
        facts = {
            k: v
            for k in ("title", "environment_id", "metadata", "usage")
            if (v := self.created.get(k)) not in (None, {})
        }
        episode = builder.finish(
            id=episode_id(AnthropicManaged.name, native)
            if native
            else content_id(AnthropicManaged.name, self.first),
            format=AnthropicManaged.name,
            locator=self.locator,
            records=self.records,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            session_id=native,
            task=first_user_text(builder),
            model=self.model,
            policy_id=self.model,
            tools=_tools(self.agent.get("tools")),
            success=self.success,
            outcome_from=None if self.success is None else "span.outcome_evaluation_end",
            metadata=canonical(facts | {"agent": {k: v for k, v in self.agent.items() if k != "system"}}),
        )
        yield from close(builder, episode)


def _tools(tools: Any) -> list[str] | None:
    """Names of the tools offered, where they are all named: a toolset does not say what is in it."""
    if not isinstance(tools, list):
        return None
    names = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    return sorted({str(name) for name in names}) if all(names) else None


def _add(sessions: list[_Session], row: Any, locator: str) -> Reading | None:
    """Take a line into its session, or say why not."""
    if not (isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)):
        return _bad(locator, "line is no pair of a call and a value", row)
    call, value = row
    if call.endswith("sessions.create") and isinstance(value, dict):
        _create(sessions, row, value, locator)
        return None
    if call.endswith("events.send"):
        return Skip(reason="sent_event")
    if not call.endswith("events.stream"):
        return Skip(reason="other_call")
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return _bad(locator, "event is no object with a type", row)
    if not sessions:
        sessions.append(_Session(row, locator))
    session = sessions[-1]
    native = text_or_none(value.get("id"))
    if native is not None and native in session.seen:
        return Skip(reason="repeated_event")
    session.seen |= {native} if native else set()
    reading = _add_event(session, value["type"], value, at(locator, "/1"))
    session.records += reading is None
    return reading


def _create(sessions: list[_Session], row: Any, value: dict[str, Any], locator: str) -> None:
    session = _Session(row, locator, value, records=1)
    session.script.model = session.model
    system = session.agent.get("system")
    if isinstance(system, str) and system:
        session.script.say("system", system, at(locator, "/1/agent/system"), micros(value.get("created_at")))
    sessions.append(session)


def _add_event(session: _Session, kind: str, event: dict[str, Any], where: str) -> Reading | None:
    script, time = session.script, micros(event.get("processed_at"))
    if kind in ("user.message", "system.message", "agent.message", "agent.thinking"):
        session.state = None
        return _add_text(script, kind, event, where, time)
    if kind in _USES:
        session.state = None
        name = text_or_none(event.get("name"))
        if name is None:
            return _bad(where, "tool call without a name", event, "nameless_call")
        script.call(Call(name, event.get("input"), text_or_none(event.get("id")), where), where, time)
    elif kind in _RESULTS:
        call_id = text_or_none(event.get(_RESULTS[kind]))
        failed = event["is_error"] if isinstance(event.get("is_error"), bool) else None
        text, pointer = _result(event, where)
        script.answer(
            Answered(call_id, text, pointer, time, failed, "refused" if call_id in session.denied else None)
        )
    elif kind == "user.tool_confirmation":
        if event.get("result") == "deny":
            session.denied.add(text_or_none(event.get("tool_use_id")) or "")
    else:
        return _add_state(session, kind, event)
    return None


def _result(event: dict[str, Any], where: str) -> tuple[str | None, str]:
    """A result's text, and where it stands: its content, or the one part of it."""
    content = event.get("content")
    if isinstance(content, list) and len(content) == 1:
        return text_of(content), at(where, "/content/0")
    return text_of(content), where if isinstance(content, list) else at(where, "/content")


_TOLD = frozenset({"id", "type", "processed_at", "content"})
"""The keys of an event that is a text."""


def _add_text(
    script: Transcript, kind: str, event: dict[str, Any], where: str, time: int | None
) -> Reading | None:
    parts = read_content(event.get("content"), at(where, "/content"))
    script.note(parts, decides=kind.startswith("agent.") or parts.decides)
    if event.get("content") is None and kind != "agent.thinking" and (found := unsaid(event, _TOLD)):
        script.unknown.append((Unknown(where, found), True))
    if kind == "agent.thinking":
        if not parts.texts and not parts.thoughts:
            return Skip(reason="hidden_thinking")
        script.thought(parts.thoughts + parts.texts, where, time)
    elif kind == "agent.message":
        script.text(parts.texts, where, time)
    elif parts.texts:
        script.say(kind.partition(".")[0], parts.text, parts.texts[0].locator, time)
    return None


def _add_state(session: _Session, kind: str, event: dict[str, Any]) -> Reading | None:
    """Events that tell where a response ends, what it used, and how the session stands."""
    if kind == "span.model_request_end":
        _add_usage(session.script, event)
    elif kind == "span.model_request_start":
        session.script.end_turn()
    elif kind == "user.interrupt":
        session.state = ("truncated", "interrupted by the user")
    elif kind == "session.error":
        session.state = ("truncated", f"error: {canonical(event.get('error'))[:80]}")
    elif kind == "session.status_terminated":
        session.state = session.state or ("truncated", "the session was terminated")
    elif kind == "session.status_running":
        session.state = ("truncated", "still running")
    elif kind == "session.status_idle":
        session.state = _idle(event, session.state)
    elif kind == "span.outcome_evaluation_end":
        session.success = {"satisfied": True, "failed": False}.get(str(event.get("result")))
    else:
        return Skip(reason="span_or_thread_event" if "thread" in kind or "span" in kind else "other_event")
    return None


def _idle(event: dict[str, Any], state: tuple[Ending, str] | None) -> tuple[Ending, str] | None:
    """Why the session waits. An interruption or an error before it says more."""
    stop = event.get("stop_reason")
    reason = text_or_none(stop.get("type")) if isinstance(stop, dict) else None
    if state is not None and state[1] != "still running":
        return state
    if reason == "end_turn":
        return "terminal", "the agent ended its turn"
    return ("truncated", f"the session stopped: {reason[:60]}") if reason else None


def _add_usage(script: Transcript, event: dict[str, Any]) -> None:
    """The usage of the response that just ended. What the model read is fresh, or written to or read from the cache."""
    usage = event.get("model_usage")
    turn = script.turns[-1] if script.turns else None
    if turn is not None and not turn.closed and isinstance(usage, dict):
        keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        counts = [count for key in keys if (count := count_or_none(usage.get(key))) is not None]
        turn.tokens_in = count_or_none(sum(counts)) if counts else None
        turn.tokens_out = count_or_none(usage.get("output_tokens"))
    script.end_turn()


def _ending(builder: EpisodeBuilder, state: tuple[Ending, str] | None, cut: bool) -> tuple[Ending, str]:
    """What the last status says; without one, the agent's reply is the end."""
    if cut:
        return "truncated", "the log is cut off"
    if state is not None:
        return state
    last = builder.messages[-1] if builder.messages else None
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if last is None or last.role != "assistant" or last.content is None:
        return "truncated", "the log stops before the agent's reply"
    return "terminal", "the agent gave its reply"


def _bad(locator: str, reason: str, found: Any, rule: str = "not_a_session_line") -> Reject:
    return bad_record(locator, reason, rule, found)
