"""Gemini CLI chat recordings: one document {sessionId, projectHash, messages}, or JSON lines that are appended to.

In the second shape a header line is followed by a line per message; a message whose calls or tokens changed is written
again under its id, `$set` changes the header, and `$rewindTo` takes back everything from a message on. A record is the
document, or one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.agents.gemini_turns import NOTICES, add_message
from logforge.connectors.chat import CallOrder, read_parts, value_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_record,
    close,
    episode_id,
    first_user_text,
    is_uuid,
    keyed,
    native_or_content,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical, too_deep
from logforge.schemas import Duplicate, Ending, Reading, Reject, Skip

_OPEN = frozenset({"executing", "awaiting_approval", "validating", "scheduled"})
"""States of a call that has not come to its end."""


class GeminiCli:
    """Gemini CLI's session files."""

    name = "gemini_cli"
    version = 4
    record = "the document: one session; in a file of appended lines, one line"
    fills = ("thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """A session's header, without the message of another tool's session line."""
        if head.container not in ("object", "array") or {"message", "type"} & head.top:
            return 0.0
        if {"sessionId", "projectHash"} <= head.top:
            return 0.95
        timed = {"sessionId", "messages", "startTime"} <= head.top
        return 0.9 if timed and "role" not in head.keys.get("messages", set()) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        sessions: list[_Session] = []
        cut = False
        for locator, row in source.records():
            cut = isinstance(row, Reject) and row.rule == "malformed_record"
            reading = row if isinstance(row, Reject) else _add(sessions, row, locator)
            if reading is not None:
                yield reading
        for session in sessions:
            yield from session.readings(source, cut and session is sessions[-1])


class _Entry(NamedTuple):
    """A message and where it stands. `records` is 1 where it is a record of its own."""

    message: Any
    locator: str
    records: int


@dataclass
class _Session:
    """A header and the messages that stand in the end."""

    header: dict[str, Any]
    locator: str
    records: int = 1
    entries: dict[str, _Entry] = field(default_factory=dict)
    repeated: int = 0
    rewound: int = 0

    def put(self, message: Any, locator: str, records: int) -> None:
        """Add a message. One that is written again takes the place of its earlier state."""
        native = text_or_none(message.get("id")) if isinstance(message, dict) else None
        key = native or locator
        known = self.entries.get(key)
        self.repeated += known.records if known else 0
        self.entries[key] = _Entry(message, locator, records)

    def rewind(self, target: str) -> None:
        """Take back that message and all after it; everything when it is not there."""
        keys = list(self.entries)
        for key in keys[keys.index(target) if target in keys else 0 :]:
            self.rewound += self.entries.pop(key).records

    def readings(self, source: Source, cut: bool) -> Iterator[Reading]:
        """The session as an episode, and the lines of it that hold no part of the episode."""
        if self.repeated:
            yield Duplicate(records=self.repeated)
        if self.rewound:
            yield Skip(reason="rewound", records=self.rewound)
        records = self.records + sum(entry.records for entry in self.entries.values())
        if not records:
            return
        try:
            yield from list(_episode(self, source, records, cut))
        except RecursionError:
            yield too_deep(self.locator, records)


def _add(sessions: list[_Session], row: Any, locator: str) -> Reading | None:
    """Take a record into its session, or say why not."""
    if not isinstance(row, dict):
        return _bad(locator, "record is no object", row)
    latest = sessions[-1] if sessions else None
    if "sessionId" in row and "type" not in row:
        messages = row.get("messages")
        if not isinstance(messages, list | None):
            return _bad(locator, "messages is no list", row)
        if latest is not None and not messages and latest.header.get("sessionId") == row["sessionId"]:
            latest.header |= {key: value for key, value in row.items() if key != "messages"}
            latest.records += 1
            return None
        latest = _Session({key: value for key, value in row.items() if key != "messages"}, locator)
        sessions.append(latest)
        _put_all(latest, messages or [], at(locator, "/messages"))
        return None
    if latest is None:
        latest = _Session({}, locator, records=0)
        sessions.append(latest)
    return _add_line(latest, row, locator)


def _add_line(session: _Session, row: dict[str, Any], locator: str) -> Reading | None:
    changes, target = row.get("$set"), row.get("$rewindTo")
    if isinstance(changes, dict):
        # Its messages are the model's context after a compression, not the log, unless nothing else was written.
        if not session.entries and isinstance(changes.get("messages"), list):
            _put_all(session, changes["messages"], at(locator, "/$set/messages"))
        session.header |= {key: value for key, value in changes.items() if key != "messages"}
        session.records += 1
    elif isinstance(target, str):
        session.rewind(target)
        session.records += 1
    elif isinstance(row.get("type"), str):
        session.put(row, locator, 1)
    else:
        return _bad(locator, "line is no header, message or change", row)
    return None


def _put_all(session: _Session, messages: list[Any], where: str) -> None:
    for index, message in enumerate(messages):
        session.put(message, f"{where}/{index}", 0)


def _episode(session: _Session, source: Source, records: int, cut: bool) -> Iterator[Reading]:
    builder = CallOrder()
    notices: list[Any] = []
    states: set[str] = set()
    ids: dict[int, str] = {}
    for entry in session.entries.values():
        begin = len(builder.messages)
        found = add_message(builder, entry.message, entry.locator, notices)
        if len(builder.messages) > begin and (own := text_or_none(value_of(entry.message, "id"))):
            ids[begin] = own
        # what went on below was not waited for
        kind = text_or_none(value_of(entry.message, "type"))
        states = states if kind in NOTICES else found
    native = text_or_none(session.header.get("sessionId"))
    last = list(session.entries.values())[-1].message if session.entries else None
    ending, reason = _ending(builder, last, cut, states)
    models = [text_or_none(value_of(entry.message, "model")) for entry in session.entries.values()]
    model = next((name for name in models if name), None)
    first = next(iter(session.entries.values()), None)
    parent = source.path.parent.name if session.header.get("kind") == "subagent" else None
    episode = builder.finish(
        id=native_or_content(
            GeminiCli.name, native, [native, session.header.get("startTime"), first and first.message]
        ),
        format=GeminiCli.name,
        locator=session.locator,
        records=records,
        ending=ending,
        ending_reason=reason,
        native_id=native,
        session_id=native,
        parent_episode_id=episode_id(GeminiCli.name, parent.lower()) if parent and is_uuid(parent) else None,
        task=first_user_text(builder),
        model=model,
        policy_id=model,
        metadata=canonical(
            {key: value for key, value in session.header.items() if key != "sessionId"}
            | ({"notices": notices} if notices else {})
        ),
    )
    yield from keyed(close(builder, episode), ids)


def _ending(builder: EpisodeBuilder, last: Any, cut: bool, states: set[str]) -> tuple[Ending, str]:
    """There is no outcome in this format; the agent's reply is the end, unless the program's last notice says more."""
    if cut:
        return "truncated", "the log is cut off"
    if isinstance(last, dict) and last.get("type") in ("error", "info"):
        text = read_parts(last.get("content"), "").text or ""
        if last["type"] == "error" or "cancel" in text.lower():
            return "truncated", f"{last['type']}: {text[:80]}"
    if states & _OPEN:
        return "truncated", "a call is still running"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    message = builder.messages[-1] if builder.messages else None
    if message is None or message.role != "assistant" or message.content is None:
        return "truncated", "the log stops before the agent's reply"
    return "terminal", "the agent gave its reply"


def _bad(locator: str, reason: str, row: Any) -> Reject:
    return bad_record(locator, reason, "not_a_session", row)
