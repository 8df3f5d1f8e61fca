"""Sessions of goose: its SQLite store (`sessions.db`), exported sessions, and the older files of lines.

In the store a record is one message; so it is in lines, whose first one is the session's header. An export is one record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logforge.connectors.chat import chat_ending
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    first_user_text,
    micros,
    native_or_content,
    object_or_empty,
    read_table,
    text_of,
    text_or_none,
)
from logforge.connectors.records import (
    Database,
    Head,
    NotJson,
    Source,
    at,
    json_cell,
    loads,
    sidecars,
)
from logforge.connectors.sdks.pieces import Pieces, Result, add_pieces, leftover
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading, Reject, Skip

_TABLE = "messages"
_COLUMNS = frozenset({"session_id", "role", "content_json", "created_timestamp"})
_KEYS = frozenset({"id", "role", "created", "content", "metadata"})
_CALLS = ("toolRequest", "frontendToolRequest")
_PASSING = frozenset(
    {"toolConfirmationRequest", "actionRequired", "systemNotification", "conversationCompacted"}
    | {"contextLengthExceeded", "summarizationRequested"}
)
"""What goose asks or tells its user; the model neither said nor saw it."""


class Goose:
    """Sessions of goose."""

    name = "goose"
    version = 1
    record = "one message of a session; an exported session is one record"
    fills = ("outcome", "thoughts", "times")

    def sniff(self, head: Head) -> float:
        """A database with goose's messages; or messages whose blocks are goose's."""
        if head.container == "sqlite":
            return 0.95 if head.keys.get(_TABLE, set()) >= _COLUMNS and "sessions" in head.top else 0.0
        if head.container != "object":
            return 0.0
        exported = {"role", "created", "content"} <= head.keys.get("conversation", set())
        header = {"working_dir", "description", "message_count"} <= head.top
        lines = {"role", "created", "content"} <= head.top and b'"toolRequest"' in head.data
        return 0.95 if exported or header or lines else 0.0

    def companions(self, path: Path) -> list[Path]:
        """What lies beside the database while goose runs."""
        return sidecars(path) if path.suffix == ".db" else []

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        with source.path.open("rb") as file:
            stored = file.read(6) == b"SQLite"
        if not stored:
            sdk = Sdk(self.name, ("conversation",), _is_message, _add, passes=_header)
            yield from read_talks([source], sdk)
            return
        yield from read_table(source, _TABLE, _COLUMNS, self._sessions)

    def _sessions(self, database: Database) -> Iterator[Reading]:
        sessions: dict[str, list[tuple[dict[str, Any], Placed]]] = {}
        seen = False
        for locator, row in database.rows(_TABLE):
            seen = True
            if isinstance(row, Reject):
                yield row
                continue
            where = f"{locator}/content_json"
            content = json_cell(row["content_json"], where)
            if isinstance(content, Reject):
                yield content
                continue
            placed = Placed(content, f"{where}#")
            sessions.setdefault(str(row["session_id"]), []).append((row, placed))
        for session, rows in sessions.items():
            yield from self._session(session, rows)
        if not seen:
            yield Skip(reason="no_conversation")

    def _session(self, session: str, rows: list[tuple[dict[str, Any], Placed]]) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        for row, (content, where) in rows:
            facts = object_or_empty(_parsed(row.get("metadata_json")))
            _add_message(builder, row["role"], content, where, micros(row["created_timestamp"]), facts)
        ending, reason = chat_ending(builder)
        first = rows[0][1]
        episode = builder.finish(
            id=native_or_content(self.name, session, [session, first.message]),
            format=self.name,
            locator=first.where.removesuffix("#"),
            records=len(rows),
            ending=ending,
            ending_reason=reason,
            native_id=session,
            session_id=session,
            task=first_user_text(builder),
        )
        yield from close(builder, episode)


def _parsed(value: Any) -> Any:
    try:
        return loads(value)
    except (NotJson, TypeError):
        return None


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and "content" in value


def _header(value: Any) -> bool:
    """The first line of an older file says where the session ran."""
    return isinstance(value, dict) and "working_dir" in value and "role" not in value


def _add(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    for message, where in messages:
        if not _is_message(message):
            builder.unknown(where, message, decides=True)
            continue
        facts = object_or_empty(message.get("metadata"))
        time = micros(message.get("created"))
        _add_message(builder, message["role"], message["content"], at(where, "/content"), time, facts)
        rest = Pieces()
        leftover(rest, message, _KEYS, where)
        builder.note(rest.unknown, decides=message["role"] == "assistant")


def _add_message(
    builder: EpisodeBuilder, role: Any, content: Any, where: str, time: int | None, facts: dict[str, Any]
) -> None:
    if role not in ("user", "assistant", "system") or not isinstance(content, list):
        builder.unknown(where, {"role": role, "content": content}, decides=True)
        return
    pieces = Pieces()
    for index, block in enumerate(content):
        _read_block(pieces, block, at(where, f"/{index}"))
    # What the user never saw is a summary that goose wrote for the model.
    hidden = role == "user" and facts.get("userVisible") is False and not pieces.results
    add_pieces(builder, "system" if hidden else role, pieces, where, created_at=time)


def _read_block(pieces: Pieces, block: Any, where: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        pieces.puzzle(block, where)
    elif kind in _CALLS:
        _read_call(pieces, block, where)
    elif kind == "toolResponse" and text_or_none(block.get("id")):
        _take_answer(pieces, block, where)
    elif kind == "image":
        pieces.say("[image]", where)
    elif kind == "redactedThinking":
        pieces.think("[redacted_thinking]", where)
    elif kind not in _PASSING and not (
        (kind == "text" and pieces.say(block.get("text"), at(where, "/text")))
        or (kind == "thinking" and pieces.think(block.get("thinking"), at(where, "/thinking")))
        or (kind == "reasoning" and pieces.think(block.get("text"), at(where, "/text")))
    ):
        pieces.puzzle(block, where)


def _read_call(pieces: Pieces, block: dict[str, Any], where: str) -> None:
    call, call_id = object_or_empty(block.get("toolCall")), text_or_none(block.get("id"))
    inner = object_or_empty(call.get("value"))
    if call.get("status") == "error":
        pieces.lose(bad_part(where, "a call that goose could not read", "bad_call", block))
    elif call_id is None or not inner:
        pieces.puzzle(block, where)
    else:
        pieces.call(inner.get("name"), inner.get("arguments"), call_id, block, where)


def _take_answer(pieces: Pieces, block: dict[str, Any], where: str) -> None:
    """A result: its content, which older versions have as a list alone, or an error."""
    told, place = object_or_empty(block.get("toolResult")), at(where, "/toolResult")
    call_id, wrong = text_or_none(block["id"]), told.get("status") == "error"
    if "error" in told and (wrong or "value" not in told):
        pieces.results.append(Result(call_id, text_of(told["error"]), at(place, "/error"), True))
    elif "value" not in told:
        pieces.puzzle(block, where)
    else:
        value, place = told["value"], at(place, "/value")
        failed = True if wrong else None
        if isinstance(value, dict) and "content" in value:
            failed = True if value.get("isError") is True else failed
            value, place = value["content"], at(place, "/content")
        pieces.results.append(Result(call_id, text_of(value), place, failed))
