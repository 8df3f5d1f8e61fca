"""opencode's sessions: the database `opencode.db`, the folder `storage` of older versions, and what `opencode export` writes.

A record is a session. In the folder a session's file is the source, and the files of its messages and parts belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from logforge.connectors.editors.opencode_parts import Message, Part, Talk, ending, in_order
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    episode_id,
    first_text,
    first_user_text,
    object_or_empty,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import (
    Database,
    Head,
    NotJson,
    Source,
    at,
    canonical,
    loads,
    open_database,
    sidecars,
)
from logforge.schemas import Episode, Reading, Reject, Skip

_SESSION_ID = re.compile(rb'"id"\s*:\s*"ses_')
_UNIQUE = re.compile(r"ses_\w{20,}")
_TOLD = ("title", "version", "directory", "projectID", "project_id", "agent", "summary")


class Opencode:
    """Sessions of opencode."""

    name = "opencode"
    version = 1
    record = "one session"
    fills = ("thoughts", "tokens", "cost", "latency", "times")

    def sniff(self, head: Head) -> float:
        """The tables of the database, an export's `info` and `messages`, or a session's own file."""
        if head.container == "sqlite":
            tables = {"session", "message", "part"} <= head.top
            data = all("data" in head.keys.get(name, ()) for name in ("message", "part"))
            return 0.95 if tables and data and "message_id" in head.keys["part"] else 0.0
        if head.container != "object" or not _SESSION_ID.search(head.data):
            return 0.0
        export = {"info", "messages"} <= head.top and "parts" in head.keys.get("messages", set())
        alone = {"id", "title", "time", "version"} <= head.top and {"projectID", "directory"} & head.top
        return 0.95 if export or (alone and "messages" not in head.top) else 0.0

    def companions(self, path: Path) -> list[Path]:
        """What lies beside a database; the messages and parts of a session in a folder `storage`."""
        home = path.parent.parent.parent
        if not path.name.startswith("ses_") or path.parent.parent.name != "session":
            return sidecars(path) if path.suffix == ".db" else []
        messages = sorted((home / "message" / path.stem).glob("msg_*.json"))
        parts = [
            part for message in messages for part in sorted((home / "part" / message.stem).glob("prt_*.json"))
        ]
        return [*messages, *parts]

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        with source.path.open("rb") as file:
            is_database = file.read(6) == b"SQLite"
        if is_database:
            with open_database(source) as database:
                yield from [database] if isinstance(database, Reject) else self._stored(database)
        else:
            yield from read_rows(source, lambda row, where: self._written(source, row, where))

    def _stored(self, database: Database) -> Iterator[Reading]:
        """The sessions of a database."""
        if not {"session", "message", "part"} <= database.tables.keys():
            yield reject(
                f"{database.label}#", "no tables of sessions, messages and parts", "", sorted(database.tables)
            )
            return
        empty = True
        for where, row in database.rows("session"):
            empty = False
            if isinstance(row, Reject):
                yield row
                continue
            rejects: list[Reject] = []
            messages = list(_messages(database, row.get("id"), rejects))
            yield from self._session(row, where, messages, rejects)
        if empty:
            yield Skip(reason="no_conversation")

    def _written(self, source: Source, row: Any, where: str) -> Iterator[Reading]:
        """A session's own file, or an export."""
        info = row.get("info") if isinstance(row, dict) and "messages" in row else row
        if not isinstance(info, dict) or not isinstance(info.get("id"), str):
            yield reject(where, "no session", "", row)
            return
        rejects: list[Reject] = []
        if info is row:
            messages = list(_filed(source, rejects))
        else:
            messages = list(_exported(row["messages"], at(where, "/messages"), rejects))
        yield from self._session(info, where, messages, rejects)

    def _session(
        self, info: dict[str, Any], where: str, messages: list[Message], rejects: list[Reject]
    ) -> Iterator[Reading]:
        talk, builder = Talk(), EpisodeBuilder()
        for message in messages:
            talk.add(message)
        talk.end().build(builder)
        builder.rejects += rejects
        yield from close(builder, self._episode(builder, talk, info, where, messages))

    def _episode(
        self, builder: EpisodeBuilder, talk: Talk, info: dict[str, Any], where: str, messages: list[Message]
    ) -> Episode:
        native, parent = text_or_none(info.get("id")), first_text(info, "parentID", "parent_id")
        model = next((message.model for message in builder.messages if message.model), None)
        how, why = ending(builder, talk.last)
        return builder.finish(
            id=self._id(native, [message.info for message in messages]),
            format=self.name,
            locator=where,
            ending=how,
            ending_reason=why,
            native_id=native,
            session_id=native,
            parent_episode_id=self._id(parent, None) if parent and _UNIQUE.fullmatch(parent) else None,
            task=first_user_text(builder),
            model=model,
            policy_id=model,
            cost_usd=sum(talk.costs) if any(talk.costs) else None,
            metadata=canonical({key: info[key] for key in _TOLD if info.get(key) is not None}),
        )

    def _id(self, native: str | None, record: Any) -> str:
        """An id of opencode's own is made of time and chance."""
        if native is not None and _UNIQUE.fullmatch(native):
            return episode_id(self.name, native)
        return content_id(self.name, [native, record])


def _messages(database: Database, session: Any, rejects: list[Reject]) -> Iterator[Message]:
    """A session's messages in a database, each with its parts."""
    order = "time_created, id" if "time_created" in database.tables["message"] else "id"
    for where, row in database.rows("message", where="session_id = ?", values=(session,), order=order):
        info = _data(row, where, rejects)
        if info is None or isinstance(row, Reject):
            continue
        parts = []
        for place, cells in database.rows(
            "part", where="message_id = ?", values=(row.get("id"),), order="id"
        ):
            if (value := _data(cells, place, rejects)) is not None:
                parts.append(Part(value, f"{place}/data#"))
        yield Message(info, f"{where}/data#", parts)


def _data(row: dict[str, Any] | Reject, where: str, rejects: list[Reject]) -> dict[str, Any] | None:
    """The object in a row's `data`."""
    if isinstance(row, Reject):
        rejects.append(msgspec.structs.replace(row, level="part"))
        return None
    try:
        value = loads(row["data"]) if isinstance(row["data"], str | bytes) else None
    except NotJson:
        value = None
    if not isinstance(value, dict):
        rejects.append(bad_part(f"{where}/data", "no JSON object", "malformed_record", row["data"]))
        return None
    return value


def _filed(source: Source, rejects: list[Reject]) -> Iterator[Message]:
    """A session's messages in the files beside it. Names grow with time."""
    read = [(path, _document(source, path, rejects)) for path in source.companions]
    parts: dict[str, list[Part]] = {}
    for path, part in read:
        if part is not None and path.name.startswith("prt_"):
            parts.setdefault(path.parent.name, []).append(part)
    for path, message in sorted(read, key=lambda pair: pair[0].name):
        if message is not None and path.name.startswith("msg_"):
            yield Message(message.value, message.where, in_order(parts.pop(path.stem, [])))


def _document(source: Source, path: Path, rejects: list[Reject]) -> Part | None:
    label = source.beside(path)
    value = Source(path, label, max_record=source.max_record).document()
    if isinstance(value, Reject):
        rejects.append(msgspec.structs.replace(value, level="part"))
        return None
    if not isinstance(value, dict):
        rejects.append(bad_part(f"{label}#", "no object", "bad_message", value))
        return None
    return Part(value, f"{label}#")


def _exported(messages: Any, where: str, rejects: list[Reject]) -> Iterator[Message]:
    """The messages of an export."""
    if not isinstance(messages, list):
        rejects.append(bad_part(where, "no list of messages", "bad_message", messages))
        return
    for index, message in enumerate(messages):
        place = f"{where}/{index}"
        held = object_or_empty(message)
        listed = held.get("parts")
        if not isinstance(held.get("info"), dict):
            rejects.append(bad_part(place, "a message without `info`", "bad_message", message))
            continue
        parts = []
        for number, part in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(part, dict):
                parts.append(Part(part, f"{place}/parts/{number}"))
            else:
                rejects.append(
                    bad_part(f"{place}/parts/{number}", "a part that is no object", "bad_part", part)
                )
        yield Message(held["info"], f"{place}/info", parts)
