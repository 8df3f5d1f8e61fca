"""The connector protocol and what every connector shares: the source at hand and a first look at its bytes."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from logforge.connectors.records.columns import PARQUET, column_keys, first_row, holds_columns
from logforge.connectors.records.rejects import at, excerpt, malformed, too_deep
from logforge.connectors.records.source import BOM, NeedsWhole, Source, Span
from logforge.connectors.records.sqlite import SQLITE, database_columns
from logforge.schemas import Reading

__all__ = [
    "BOM",
    "FILLS",
    "HEAD_BYTES",
    "JSON_SUFFIXES",
    "Connector",
    "Container",
    "Head",
    "NeedsWhole",
    "Source",
    "Span",
    "TakesCompanions",
    "at",
    "excerpt",
    "look",
    "malformed",
    "too_deep",
]

HEAD_BYTES = 256 * 1024
"""How much of a file `sniff` gets to see."""
JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".log", ".traj", ".jsonlines"})
"""A file named so is meant to hold JSON, whatever its first line is."""


@runtime_checkable
class TakesCompanions(Protocol):
    """A connector whose sources may span several files (observations and their scores, say)."""

    name: str

    def companions(self, path: Path) -> list[Path]:
        """The files that belong to the source at `path`, told by their names. They are no sources of their own."""
        ...


FILLS = (
    "outcome",
    "score",
    "rewards",
    "propensities",
    "tools",
    "thoughts",
    "tokens",
    "cost",
    "latency",
    "times",
)
"""What a format may hold besides messages and steps, in the words of Connector.fills."""


@runtime_checkable
class Connector(Protocol):
    """One log format. `record` says what its unit of account is; bump `version` whenever its output changes.

    `fills` names what its logs may hold besides messages and steps: outcome (success), score, rewards (per step),
    propensities, tools (those offered), thoughts, tokens, cost (in US dollars), latency (of calls),
    times.

    One that has `splittable = True` too gives of JSON lines the same readings when it reads them in parts, each a source
    with a `span`, or raises NeedsWhole there. A long file is then read by several processes.
    """

    name: str
    version: int
    record: str
    fills: tuple[str, ...]

    def sniff(self, head: Head) -> float:
        """How sure it is, from 0 (not mine) to 1, that a file beginning so is of its format."""
        ...

    def read(self, source: Source) -> Iterator[Reading]:
        """Yield the source's episodes, and everything else in it as rejects, skips and duplicates.

        Every record of the source is accounted for exactly once. One bad record never raises.
        """
        ...


# A string before a colon is a key, any other only hides the brackets in it.
# A text that the head's end cuts off ends there: looked for again from each quote inside it, it would take forever.
_TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(\s*:)?|\\?\Z)|[{}\[\]]', re.DOTALL)

_LONG_PATH = 1000
"""No connector looks so deep, and paths that grow with the depth would fill the memory."""
_DEPTH = 20
_LATER_OBJECT = re.compile(rb"\n[ \t\r]*+\{")

Container = Literal["object", "array", "text", "zip", "parquet", "arrow", "sqlite", "binary", "empty"]
"""What a file's first bytes are."""


class Head(NamedTuple):
    """A first look at a file, made once and shown to every connector."""

    name: str
    data: bytes
    """The first bytes; of a Parquet or Arrow file the first row as JSON."""
    container: Container
    keys: dict[str, set[str]]
    """Keys by depth path: "" the first object's own keys (or a file's columns), "messages" those of the first object
    inside it, and so on. Of a database "" has the tables, and each table its columns."""
    members: tuple[str, ...] = ()
    """The names of a zip archive's members."""

    @property
    def has_rows(self) -> bool:
        """Its records are JSON values, or rows of columns (Parquet, Arrow) that come as such."""
        return self.container in ("object", "array", "parquet", "arrow")

    @property
    def top(self) -> set[str]:
        """Keys of the first object (of the document, of the array's first element, or of the first line)."""
        return self.keys.get("", set())


def look(path: Path) -> Head:
    """Read a file's head and list the keys of its first object, even when that object is cut off by the head's end.

    Blank beginnings are passed over; so is what stands before the first line that begins with `{`, in a log whose first
    lines are damaged.
    """
    with path.open("rb") as file:
        data = file.read(HEAD_BYTES)
        while data and not data.strip():
            data = file.read(HEAD_BYTES)
    text = data.removeprefix(BOM).lstrip()
    if not text:
        return Head(path.name, data, "empty", {})
    if data.startswith(b"PK\x03\x04"):
        return Head(path.name, data, "zip", {}, _members(path))
    if holds_columns(data):
        return _columns_head(path, data)
    if data.startswith(SQLITE):
        return Head(path.name, data, "sqlite", database_columns(path))
    if text[:1] in (b"{", b"["):
        return Head(path.name, data, "object" if text[:1] == b"{" else "array", _keys(text))
    kind: Container = "binary" if b"\x00" in text[:1024] else "text"
    later = _LATER_OBJECT.search(text) if path.suffix.lower() in JSON_SUFFIXES else None
    return (
        Head(path.name, data, "object", _keys(text[later.start() + 1 :]))
        if later
        else Head(path.name, data, kind, {})
    )


def _columns_head(path: Path, data: bytes) -> Head:
    """That of columns: the first row as JSON, and the keys that the columns may have besides those that it has."""
    row, keys = first_row(path, HEAD_BYTES), column_keys(path)
    for place, names in _keys(row).items():
        keys.setdefault(place, set()).update(names)
    return Head(path.name, row, "parquet" if data.startswith(PARQUET) else "arrow", keys)


def _members(path: Path) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(archive.namelist())
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        return ()


@dataclass
class _Level:
    kind: bytes
    path: str
    key: str = ""


def _keys(text: bytes) -> dict[str, set[str]]:
    """Keys of the first top-level object and of the first objects nested in it, by path."""
    found: dict[str, set[str]] = {}
    stack: list[_Level] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        top = stack[-1] if stack else None
        if token in (b"{", b"["):
            path = _child_path(top)
            # A deeply nested head would give very many very long paths: below this no key is told.
            kind = token if len(stack) < _DEPTH else b"["
            stack.append(_Level(kind, path))
            if kind == b"{":
                found.setdefault(path, set())
        elif token in (b"}", b"]"):
            if stack:
                closed = stack.pop()
                if closed.kind == b"{" and closed.path == "":
                    break
        elif match.lastindex == 2 and top is not None and top.kind == b"{":
            top.key = match[1].decode("utf-8", "replace")
            found[top.path].add(top.key)
    return found


def _child_path(parent: _Level | None) -> str:
    if parent is None:
        return ""
    if parent.kind == b"[" or len(parent.path) > _LONG_PATH:
        return parent.path
    return f"{parent.path}.{parent.key}" if parent.path else parent.key
