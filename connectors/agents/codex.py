"""Codex rollouts: JSON lines of {timestamp, type, payload}. A record is a line.

The conversation is in the `response_item` lines alone: `event_msg` lines repeat its messages and reasoning, and
`compacted` lines repeat its history. From events come token usage and how a turn ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.agents.codex_code import CodeCalls
from logforge.connectors.agents.codex_items import Usage, read_item
from logforge.connectors.episodes import (
    INJECTED,
    EpisodeBuilder,
    Said,
    Transcript,
    bad_record,
    close,
    episode_id,
    is_uuid,
    micros,
    native_or_content,
    text_or_none,
    with_decision_keys,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, loads, too_deep
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
"""Line types that tell a rollout from other lines with a type and a payload."""

_ABORTED = "<turn_aborted>"
_REPEATS = frozenset({"user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"})
_STARTS = frozenset({"task_started", "turn_started"})
_COMPLETES = frozenset({"task_complete", "turn_complete"})


class CodexRollout:
    """Codex's session files."""

    name = "codex_rollout"
    version = 4
    record = "one line of the rollout file"
    fills = ("thoughts", "tokens", "latency", "times")

    def sniff(self, head: Head) -> float:
        """One of the first lines is a rollout line."""
        if head.container not in ("object", "text"):
            return 0.0
        return 0.95 if any(_is_rollout_line(line) for line in head.data.split(b"\n")[:50]) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session, after what is skipped or set aside."""
        sessions: list[_Session] = []
        cut = False
        for locator, row in source.records():
            cut = isinstance(row, Reject) and row.rule == "malformed_record"
            try:
                reading = row if isinstance(row, Reject) else _add(sessions, row, locator)
            except RecursionError:
                reading = Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")
            if reading is not None:
                yield reading
        for session in sessions:
            yield from session.episode(cut and session is sessions[-1])


_TYPE = re.compile(rb'\s*\{.*"type"\s*:\s*"(?:' + "|".join(sorted(TYPES)).encode() + rb')"')


def _is_rollout_line(line: bytes) -> bool:
    if b'"payload"' not in line or not _TYPE.match(line):
        return False
    try:
        row = loads(line)
    except NotJson:
        return False
    return isinstance(row, dict) and row.get("type") in TYPES and isinstance(row.get("payload"), dict)


@dataclass
class _Session:
    """One session's lines as they are read."""

    first: Any
    locator: str
    meta: dict[str, Any] = field(default_factory=dict)
    records: int = 0
    script: Transcript = field(default_factory=Transcript)
    usage: Usage = field(default_factory=Usage)
    state: tuple[str, str] | None = None
    """How the latest turn stands, and in which words: running, complete, aborted, error."""
    facts: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    code: CodeCalls = field(default_factory=CodeCalls)
    item_ids: dict[str, str] = field(default_factory=dict)
    """The ids of the agent's messages, by the line they stand in."""

    @property
    def root(self) -> str | None:
        """The session at the beginning of this one's history: itself, or the first that its copied headers name."""
        native = text_or_none(self.meta.get("id"))
        copied = [text_or_none(name) for name in self.facts.get("copied_from", [])]
        forked = text_or_none(self.meta.get("forked_from_id"))
        return next((name for name in (*reversed(copied), forked, native) if name is not None), None)

    @property
    def is_new(self) -> bool:
        """Nothing was read of it but its header."""
        return all(isinstance(entry, Said) and entry.role == "system" for entry in self.script.entries)

    def begin(self, meta: dict[str, Any], where: str, time: int | None) -> None:
        """The session's own header: who it is, and the instructions the agent was given."""
        self.meta = meta
        base = meta.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else None
        if isinstance(text, str) and text:
            self.script.say("system", text, at(where, "/base_instructions/text"), time)

    def count(self, fact: str) -> None:
        """Count something for the metadata."""
        self.facts[fact] = self.facts.get(fact, 0) + 1

    def episode(self, cut: bool) -> Iterator[Reading]:
        """The session as an episode; none when every line of it was skipped or set aside."""
        if not self.records:
            return
        try:
            yield from list(self._episode(cut))
        except RecursionError:
            yield too_deep(self.locator, self.records)

    def _episode(self, cut: bool) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        self.script.build(builder)
        ending, reason = _ending(builder, cut, self.state)
        native = text_or_none(self.meta.get("id"))
        parent, forked = _parent(self.meta), text_or_none(self.meta.get("forked_from_id"))
        episode = builder.finish(
            id=native_or_content(CodexRollout.name, native, self.first),
            format=CodexRollout.name,
            locator=self.locator,
            records=self.records,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            session_id=native,
            parent_episode_id=episode_id(CodexRollout.name, parent.lower()) if parent else None,
            continues_episode_id=_linked(forked),
            task=_task(builder),
            model=self.model,
            policy_id=self.model,
            metadata=canonical(
                {k: v for k, v in self.meta.items() if k not in ("base_instructions", "id")} | self.facts
            ),
        )
        root = self.root if is_uuid(self.root) else None
        yield from close(builder, with_decision_keys(episode, root, self._ids(episode)))

    def _ids(self, episode: Episode) -> dict[int, str]:
        """The items' ids, by the position of their messages."""
        found = ((m.position, self.item_ids.get(m.locator.rpartition("#")[0])) for m in episode.messages)
        return {position: own for position, own in found if own is not None}


def _add(sessions: list[_Session], row: Any, locator: str) -> Reading | None:
    """Take a line into its session, or say why not."""
    kind = row.get("type") if isinstance(row, dict) else None
    payload = row.get("payload") if isinstance(row, dict) else None
    if not isinstance(kind, str) or not isinstance(payload, dict):
        reason = "line is no object with a type and a payload"
        return bad_record(locator, reason, "not_a_rollout_line", row)
    time = micros(row.get("timestamp"))
    if kind == "session_meta":
        _add_meta(sessions, row, payload, locator, time)
        return None
    if not sessions:
        sessions.append(_Session(row, locator))
    session, where = sessions[-1], at(locator, "/payload")
    reading = _add_line(session, kind, payload, where, time)
    session.records += reading is None
    return reading


def _add_meta(
    sessions: list[_Session], row: dict[str, Any], payload: dict[str, Any], locator: str, time: int | None
) -> None:
    """A header begins a session. Right after a header it is that of the session which this one was copied from."""
    latest = sessions[-1] if sessions else None
    known = latest is not None and (
        payload.get("id") == latest.meta.get("id") or (bool(latest.meta) and latest.is_new)
    )
    if latest is None or not known:
        latest = _Session(row, locator)
        sessions.append(latest)
        latest.begin(payload, at(locator, "/payload"), time)
    elif payload.get("id") != latest.meta.get("id"):
        latest.facts.setdefault("copied_from", []).append(payload.get("id"))
        latest.meta.setdefault("forked_from_id", payload.get("id"))
    latest.records += 1


def _add_line(
    session: _Session, kind: str, payload: dict[str, Any], where: str, time: int | None
) -> Reading | None:
    if kind == "response_item":
        if payload.get("role") == "assistant" and (own := text_or_none(payload.get("id"))):
            session.item_ids[where.rpartition("#")[0]] = own
        if session.state is not None and session.state[0] != "running" and _goes_on(payload):
            session.state = None
        return read_item(session.script, payload, where, time, session.code)
    if kind == "turn_context":
        session.script.model = text_or_none(payload.get("model")) or session.script.model
        session.model = session.model or session.script.model
        session.facts |= {k: v for k in ("effort", "approval_policy") if (v := payload.get(k)) is not None}
        return None
    if kind == "event_msg":
        return _add_event(session, payload)
    if kind == "compacted":
        session.count("compactions")
        return Skip(reason="compacted_line")
    return Skip(reason="other_line")


def _goes_on(item: dict[str, Any]) -> bool:
    """True when an item begins something new after a turn's end; outputs and notes may still belong to that turn."""
    if item.get("role") == "developer" or str(item.get("type")).endswith("_output"):
        return False
    return item.get("role") != "user" or _ABORTED not in canonical(item.get("content"))


def _add_event(session: _Session, payload: dict[str, Any]) -> Reading | None:
    kind = text_or_none(payload.get("type"))
    if kind == "token_count":
        session.usage.count(payload.get("info"), session.script)
    elif kind in _STARTS:
        session.state = ("running", "the log ends while the agent is at work")
        session.script.end_turn()
    elif kind in _COMPLETES:
        session.script.end_turn()
        if session.state is None or session.state[0] != "error":  # a failed turn is completed as well
            session.state = ("complete", "the agent completed its task")
    elif kind == "turn_aborted":
        session.count("aborted_turns")
        session.state = ("aborted", f"turn aborted: {text_or_none(payload.get('reason')) or 'no reason'}")
    elif kind == "error":
        session.state = ("error", _error(payload))
    elif kind == "thread_rolled_back":
        session.count("rollbacks")
    elif kind == "item_completed" and session.code.completed(payload.get("item")):
        pass
    elif kind in _REPEATS:
        return Skip(reason="event_repeats_item")
    else:
        return Skip(reason="other_event")
    return None


def _error(payload: dict[str, Any]) -> str:
    info, message = canonical(payload.get("codex_error_info")), text_or_none(payload.get("message")) or ""
    if "context_window" in info or "context window" in message.lower():
        return "context overflow"
    return f"error: {message[:80]}"


def _ending(builder: EpisodeBuilder, cut: bool, state: tuple[str, str] | None) -> tuple[Ending, str]:
    """The latest event about the turn decides; where there is none, the agent's reply is the end."""
    last = builder.messages[-1] if builder.messages else None
    if cut:
        return "truncated", "the log is cut off"
    if state is not None:
        return ("terminal" if state[0] == "complete" else "truncated"), state[1]
    if last is not None and last.role == "user" and (last.content or "").startswith(_ABORTED):
        return "truncated", "turn aborted"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if last is None or last.role != "assistant" or last.content is None:
        return "truncated", "the log stops before the agent's reply"
    return "terminal", "the agent gave its reply"


def _task(builder: EpisodeBuilder) -> str | None:
    """The first user message before any decision that Codex did not write itself."""
    for message in builder.messages:
        if message.role == "assistant":
            return None
        if message.role == "user" and not (message.content or "").lstrip().startswith(INJECTED):
            return message.content
    return None


def _parent(meta: dict[str, Any]) -> str | None:
    """The session that started this one as a sub-agent."""
    source = meta.get("source")
    spawned: Any = source.get("subagent") if isinstance(source, dict) else None
    spawned = spawned.get("thread_spawn") if isinstance(spawned, dict) else None
    parent = spawned.get("parent_thread_id") if isinstance(spawned, dict) else None
    return parent if isinstance(parent, str) and is_uuid(parent) else None


def _linked(native_id: str | None) -> str | None:
    """The episode id of another session, which can be told from a UUID only."""
    return episode_id(CodexRollout.name, native_id.lower()) if native_id and is_uuid(native_id) else None
