"""Sessions of the OpenAI Agents SDK: a SQLite database with a row for each item of the Responses API.

A record is one item; those of one session are one episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logforge.connectors.chat import chat_ending
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    first_user_text,
    micros,
    native_or_content,
    read_table,
    reject,
    text_or_none,
)
from logforge.connectors.records import (
    Database,
    Head,
    Source,
    json_cell,
    sidecars,
)
from logforge.connectors.sdks.response_items import Items
from logforge.connectors.sdks.talks import Placed
from logforge.schemas import Reading, Reject, Skip

_SESSIONS, _ITEMS = "agent_sessions", "agent_messages"
_COLUMNS = frozenset({"id", "session_id", "message_data", "created_at"})


class OpenAIAgents:
    """Session stores of the Agents SDK (`SQLiteSession`)."""

    name = "openai_agents"
    version = 1
    record = "one item of a session (a row of `agent_messages`)"
    fills = ("thoughts",)

    def sniff(self, head: Head) -> float:
        """A database with the SDK's two tables."""
        fits = head.keys.get(_ITEMS, set()) >= _COLUMNS and "session_id" in head.keys.get(_SESSIONS, set())
        return 0.95 if head.container == "sqlite" and fits else 0.0

    def companions(self, path: Path) -> list[Path]:
        """What lies beside the database while a program holds it."""
        return sidecars(path)

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        yield from read_table(source, _ITEMS, _COLUMNS, self._sessions)

    def _sessions(self, database: Database) -> Iterator[Reading]:
        sessions: dict[str, list[tuple[Placed, Any]]] = {}
        seen = False
        for locator, row in database.rows(_ITEMS, order="id"):
            seen = True
            if isinstance(row, Reject):
                yield row
                continue
            session, where = text_or_none(row["session_id"]), f"{locator}/message_data"
            item = json_cell(row["message_data"], where)
            if isinstance(item, Reject):
                yield item
            elif session is None:
                yield reject(locator, "an item of no session", "", row["message_data"])
            else:
                sessions.setdefault(session, []).append((Placed(item, f"{where}#"), row["created_at"]))
        for session, rows in sessions.items():
            yield from self._session(session, rows)
        if not seen:
            yield Skip(reason="no_conversation")

    def _session(self, session: str, rows: list[tuple[Placed, Any]]) -> Iterator[Reading]:
        builder, items = EpisodeBuilder(), Items()
        for placed, _ in rows:
            items.add(placed.message, placed.where)
        items.build(builder)
        ending, reason = chat_ending(builder)
        times = [time for _, stamp in rows if (time := micros(stamp)) is not None]
        episode = builder.finish(
            id=native_or_content(self.name, session, [session, *(placed.message for placed, _ in rows)]),
            format=self.name,
            locator=rows[0][0].where,
            records=len(rows),
            ending=ending,
            ending_reason=reason,
            native_id=session,
            session_id=session,
            task=first_user_text(builder),
            started_at=min(times, default=None),
            ended_at=max(times, default=None),
        )
        yield from close(builder, episode)
