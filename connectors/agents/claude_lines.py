"""The lines of a Claude Code file: which hold a message, which repeat one, and which run each belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from logforge.connectors.episodes import bad_record, first_text, micros, text_or_none
from logforge.connectors.records import canonical
from logforge.schemas import Duplicate, Reading, Reject, Skip

OTHER_LINES = frozenset(
    {
        "summary",
        "system",
        "file-history-snapshot",
        "progress",
        "queue-operation",
        "attachment",
        "ai-title",
        "custom-title",
    }
)
"""Line types that hold no message; each is skipped under its own name, types unknown here as `other_line`."""


class Line(NamedTuple):
    """A user or assistant line."""

    row: dict[str, Any]
    message: dict[str, Any]
    locator: str

    @property
    def is_meta(self) -> bool:
        """The program wrote it in the user's name (a command's text, a caveat): the model reads it, the user did not ask it."""
        return self.row.get("isMeta") is True or self.is_summary

    @property
    def is_summary(self) -> bool:
        """It stands for a history that grew too long."""
        return self.row.get("isCompactSummary") is True

    @property
    def time(self) -> int | None:
        """When it was written."""
        return micros(self.row.get("timestamp"))


class Chain(NamedTuple):
    """Which run a line belongs to: the session's own (no root) or that of the sub-agent whose first line is `root`."""

    session: str | None
    root: str | None

    @property
    def native_id(self) -> str | None:
        """The log's name of the run."""
        return "/".join(part for part in self if part) or None


@dataclass
class Lines:
    """Takes the lines of a file one by one; then `runs` tells its runs apart."""

    kept: list[Line] = field(default_factory=list)
    cut: bool = False
    """The file's last line is damaged, so the end of the run before it is lost."""
    _parents: dict[str, tuple[str | None, bool]] = field(default_factory=dict)
    _messages: dict[str, int] = field(default_factory=dict)
    _roots: dict[str, str] = field(default_factory=dict)

    def add(self, row: Any, locator: str) -> Reading | None:
        """Take a line, or say why not."""
        self.cut = isinstance(row, Reject) and row.rule == "malformed_record"
        if isinstance(row, Reject):
            return row
        try:
            return self._add(row, locator)
        except RecursionError:
            return Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")

    def _add(self, row: Any, locator: str) -> Reading | None:
        if not isinstance(row, dict):
            return bad_record(locator, "line is no object", "not_an_object", row)
        uuid, parent = row.get("uuid"), row.get("parentUuid")
        if isinstance(uuid, str):
            side = row.get("isSidechain") is True
            self._parents.setdefault(uuid, (parent if isinstance(parent, str) else None, side))
        refused: Reading | None = _refuse(row, locator)
        if refused is None and isinstance(uuid, str):
            refused = self._repeated(uuid, row, locator)
        if refused is None:
            self.kept.append(Line(row, row["message"], locator))
        return refused

    def _repeated(self, uuid: str, row: dict[str, Any], locator: str) -> Reading | None:
        message = row["message"]
        digest = xxhash.xxh3_64_intdigest(canonical(message).encode())
        known = self._messages.get(uuid)
        if known is None:
            self._messages[uuid] = digest
            return None
        if known == digest:
            return Duplicate()
        if row["type"] == "assistant" and isinstance(message.get("id"), str):
            return None  # a snapshot that grew under one uuid: merged like the other lines of its API message
        return bad_record(locator, "another message under a uuid already read", "conflicting_uuid", row)

    def runs(self) -> dict[Chain, list[Line]]:
        """The lines of each run, in the order of its first line."""
        found: dict[Chain, list[Line]] = {}
        for line in self.kept:
            chain = Chain(first_text(line.row, "sessionId", "session_id"), self._root(line.row))
            found.setdefault(chain, []).append(line)
        return found

    def _root(self, row: dict[str, Any]) -> str | None:
        """The uuid of the first line of the sub-agent's run that a line is part of, or the id of the call that started it; None
        for the session's own lines."""
        if row.get("isSidechain") is not True:
            return text_or_none(row.get("parent_tool_use_id"))
        uuid = text_or_none(row.get("uuid")) or "sidechain"
        path: dict[str, None] = {}
        while uuid not in self._roots:
            path[uuid] = None
            parent = self._parents.get(uuid, (None, False))[0]
            if parent is None or parent in path or not self._parents.get(parent, (None, False))[1]:
                self._roots[uuid] = uuid
            else:
                uuid = parent
        self._roots.update(dict.fromkeys(path, self._roots[uuid]))
        return self._roots[uuid]


def _refuse(row: dict[str, Any], locator: str) -> Reject | Skip | None:
    """Why a line holds no message of a run; None when it may."""
    kind, message = row.get("type"), row.get("message")
    if kind not in ("user", "assistant"):
        known = isinstance(kind, str) and kind in OTHER_LINES
        return (
            Skip(reason=f"{kind}_line" if known else "other_line")
            if isinstance(kind, str)
            else _untyped(locator, row)
        )
    if row.get("isMeta") is True and (kind != "user" or not isinstance(message, dict)):
        return Skip(reason="meta_line")
    if not isinstance(message, dict):
        return bad_record(locator, f"{kind} line without a message", "no_message", row)
    content = message.get("content")
    if content is None or content == "" or content == []:
        return Skip(reason="no_content")
    if not isinstance(content, str | list):
        return bad_record(locator, "content is neither text nor a list of blocks", "bad_content", row)
    if message.get("model") == "<synthetic>":
        return Skip(reason="synthetic_line")
    return None


def _untyped(locator: str, row: dict[str, Any]) -> Reject:
    return bad_record(locator, "line without a type", "no_type", row)
