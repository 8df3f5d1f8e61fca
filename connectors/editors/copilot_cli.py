"""Copilot CLI's `events.jsonl`: JSON lines of {type, data, id, timestamp, parentId}. A record is a line.

What the agent said, thought and asked for stands in `assistant.message`, results in `tool.execution_complete`; other events
repeat these or tell of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    bad_record,
    close,
    count_or_none,
    first_text,
    first_user_text,
    from_millis,
    native_or_content,
    object_or_empty,
    read_rows,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, loads
from logforge.schemas import Ending, Episode, Reading, Reject, ResultStatus, Skip

_TALK = frozenset({"user.message", "system.message", "assistant.message", "tool.execution_complete"})
_REFUSED = ("rejected", "denied", "declined")


class CopilotCli:
    """Sessions of GitHub Copilot CLI."""

    name = "copilot_cli"
    version = 1
    record = "one event"
    fills = ("thoughts", "tokens", "latency", "times")

    def sniff(self, head: Head) -> float:
        """One of the first lines is an event with a type of Copilot's and its data."""
        if head.container != "object":
            return 0.0
        return 0.95 if any(_is_event(line) for line in head.data.split(b"\n")[:20]) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session, after what is skipped or set aside."""
        sessions: list[_Session] = []
        cut = False

        def row(value: Any, locator: str) -> Iterator[Reading]:
            if not isinstance(value, dict) or not isinstance(value.get("type"), str):
                yield bad_record(locator, "line is no object with a type", "no_type", value)
                return
            data = object_or_empty(value.get("data"))
            if value["type"] == "session.start" or not sessions:
                sessions.append(_Session(value, locator))
            reading = sessions[-1].add(
                value["type"], data, at(locator, "/data"), from_millis(value.get("timestamp"))
            )
            sessions[-1].records += reading is None
            if reading is not None:
                yield reading

        for reading in read_rows(source, row):
            cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
            yield reading
        for session in sessions:
            if session.records:
                yield from close(session.builder, session.episode(cut and session is sessions[-1]))


def _is_event(line: bytes) -> bool:
    if b'"data"' not in line:
        return False
    try:
        row = loads(line)
    except NotJson:
        return False
    kind = row.get("type") if isinstance(row, dict) else None
    return (
        isinstance(kind, str)
        and isinstance(row.get("data"), dict)
        and (kind in _TALK or kind == "session.start")
    )


@dataclass
class _Session:
    """One session's events as they are read."""

    first: dict[str, Any]
    locator: str
    records: int = 0
    builder: EpisodeBuilder = field(default_factory=EpisodeBuilder)
    meta: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    begun: str | None = None
    """The model of the first response."""
    state: tuple[Ending, str] | None = None
    _asked: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, data: dict[str, Any], where: str, time: int | None) -> Reading | None:
        """Take an event, or say why not."""
        if kind in ("session.start", "session.resume"):
            self.meta = self.meta or data
            self.model = first_text(data, "selectedModel", "model") or self.model
        elif kind == "session.model_change":
            self.model = first_text(data, "newModel") or self.model
        elif kind in ("user.message", "system.message"):
            self._said(kind.partition(".")[0], data, where, time)
        elif kind == "assistant.message":
            self._response(data, where, time)
        elif kind == "tool.execution_complete":
            self._result(data, where, time)
        elif kind in ("abort", "session.error"):
            why = first_text(data, "reason", "errorType", "message") or "no reason"
            self.state = ("truncated", f"{'aborted' if kind == 'abort' else 'error'}: {why[:80]}")
        else:
            return Skip(reason="other_event")
        return None

    def _said(self, role: str, data: dict[str, Any], where: str, time: int | None) -> None:
        """The user's own words; what the program made of them for the model repeats them."""
        self.state = None
        content = data.get("content")
        if isinstance(content, str):
            self.builder.message(role, content, f"{where}/content", created_at=time)
        else:
            self.builder.unknown(where, data, decides=False)

    def _response(self, data: dict[str, Any], where: str, time: int | None) -> None:
        self.state = None
        content, thought = data.get("content"), text_or_none(data.get("reasoningText"))
        listed = data.get("toolRequests")
        calls = []
        for index, request in enumerate(listed if isinstance(listed, list) else ()):
            call = self._call(request, f"{where}/toolRequests/{index}", time)
            calls += [call] if call else []
        odd = listed is not None and not isinstance(listed, list)
        if odd or not (content is None or isinstance(content, str)):
            self.builder.unknown(where, data, decides=True)
            return
        self.begun = self.begun or self.model
        more: dict[str, Any] = {"thought": thought, "created_at": time, "model": self.model}
        more["tokens_out"] = count_or_none(data.get("outputTokens"))
        place = f"{where}/content" if content else where
        if calls or (content and not listed):
            self.builder.turn(content or None, calls, place, **more)
        elif content or thought:
            # A call that cannot be read, or thinking alone: no decision is made up.
            self.builder.message("assistant", content or None, place, **more)

    def _call(self, request: Any, where: str, time: int | None) -> Call | None:
        name = text_or_none(request.get("name")) if isinstance(request, dict) else None
        if name is None:
            self.builder.rejects.append(bad_part(where, "tool call without a name", "nameless_call", request))
            return None
        call_id = text_or_none(request.get("toolCallId"))
        if call_id is not None and time is not None:
            self._asked[call_id] = time
        return Call(name, request.get("arguments"), call_id, where)

    def _result(self, data: dict[str, Any], where: str, time: int | None) -> None:
        call_id, result, error = text_or_none(data.get("toolCallId")), data.get("result"), data.get("error")
        key = "error" if result is None and error is not None else "result"
        text, place = _told(data.get(key), f"{where}/{key}" if data.get(key) is not None else where)
        failed = None if not isinstance(data.get("success"), bool) else not data["success"]
        code = text_or_none(object_or_empty(error).get("code")) or ""
        refused: ResultStatus | None = "refused" if failed and code in _REFUSED else None
        begun = self._asked.get(call_id or "")
        latency = (time - begun) / 1e6 if begun is not None and time is not None and time >= begun else None
        self.builder.result(
            call_id,
            text,
            place,
            failed=None if refused else failed,
            status=refused,
            latency_s=latency,
            created_at=time,
        )

    def episode(self, cut: bool) -> Episode:
        """The session."""
        native = text_or_none(self.meta.get("sessionId"))
        ending, reason = self._ending(cut)
        return self.builder.finish(
            id=native_or_content(CopilotCli.name, native, self.first),
            format=CopilotCli.name,
            locator=self.locator,
            records=self.records,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            session_id=native,
            task=first_user_text(self.builder),
            model=self.begun,
            policy_id=self.begun,
            metadata=canonical({key: value for key, value in self.meta.items() if key != "sessionId"}),
        )

    def _ending(self, cut: bool) -> tuple[Ending, str]:
        if cut:
            return "truncated", "the log is cut off"
        if self.state is not None:
            return self.state
        if self.builder.ends_unanswered:
            return "truncated", "last call is unanswered"
        if self.builder.messages and self.builder.messages[-1].role == "assistant":
            return "terminal", "end of conversation"
        return "truncated", "the log stops before the agent's answer"


def _told(value: Any, place: str) -> tuple[str, str]:
    """The text of a result: itself, or what the model was given of it (`content`), or an error's message."""
    if isinstance(value, str):
        return value, place
    if isinstance(value, dict):
        for key in ("content", "message"):
            if isinstance(value.get(key), str):
                return value[key], f"{place}/{key}"
    return ("" if value is None else canonical(value)), place
