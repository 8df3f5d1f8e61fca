"""The connector protocol and what every connector shares: the source at hand and a first look at its bytes."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from logforge.connectors import jsontext
from logforge.schemas.episode import Reading, Reject

_FIRST_LINES = 20
HEAD_BYTES = 256 * 1024
"""How much of a file `sniff` gets to see."""
JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".log", ".traj", ".jsonlines"})
"""A file named so is meant to hold JSON, whatever its first line is."""
BOM = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark, which belongs to the file and to no record."""


@runtime_checkable
class TakesCompanions(Protocol):
    """A connector whose sources may span several files (observations and their scores, say)."""

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
    "latency",
    "times",
)
"""What a format may hold besides messages and steps, in the words of Connector.fills."""


@runtime_checkable
class Connector(Protocol):
    """One log format. `record` says what its unit of account is; bump `version` whenever its output changes.

    `fills` names what its logs may hold besides messages and steps: outcome (success), score, rewards (per step),
    propensities, tools (those offered), thoughts, tokens, latency (of calls), times.
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


@dataclass(frozen=True)
class Source:
    """A file to read: where it is, and the name its locators carry."""

    path: Path
    label: str
    companions: tuple[Path, ...] = ()
    """Further files of the same source, as the connector's `companions` named them."""

    def content(self) -> bytes:
        """The whole file."""
        return self.path.read_bytes()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Line number from 1 and bytes of each line that is not blank. Only `\\n` ends a line; a BOM is dropped."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(BOM)
                line = line.strip(b" \t\r\n")
                if line:
                    yield number, line

    def records(self) -> Iterator[tuple[str, Any | Reject]]:
        """Locator and parsed value of each record of a JSON-lines file, a JSON array or a single JSON document.

        A line that is no JSON comes as a Reject; so does a document that is no JSON as a whole. A damaged array still
        gives the elements that are whole.
        """
        if self._is_lines():
            yield from self._line_values()
        elif self.first_byte() == b"[":
            yield from self._array_elements()
        else:
            yield f"{self.label}#", self.document()

    def document(self) -> Any | Reject:
        """The file as one JSON value, or a Reject."""
        data = self.content()
        try:
            return jsontext.loads(data.removeprefix(BOM))
        except jsontext.NotJson as error:
            return malformed(f"{self.label}#", error, data)

    def first_byte(self) -> bytes:
        """The first byte that is no blank or BOM."""
        with self.path.open("rb") as file:
            return file.read(4096).removeprefix(BOM).lstrip()[:1]

    def _is_lines(self) -> bool:
        """JSON lines, when one of the first lines is a JSON value on its own; else one value over several lines.

        Several, because the first may be damaged. A document's later lines can be values on their own by chance, so then
        the whole file must fail to be a document as well. An array on a line of its own is an array.
        """
        lines = [line for _, line in islice(self.lines(), _FIRST_LINES)]
        is_array = self.first_byte() == b"["
        if len(lines) < 2:
            return not is_array
        if _is_json(lines[0]):
            return True
        later = any(line[:1] in (b"{", b"[") and _is_json(line) for line in lines[1:])
        return later and not is_array and isinstance(self.document(), Reject)

    def _line_values(self) -> Iterator[tuple[str, Any | Reject]]:
        for number, line in self.lines():
            where = f"{self.label}:{number}"
            try:
                yield where, jsontext.loads(line)
            except jsontext.NotJson as error:
                yield where, malformed(where, error, line)

    def _array_elements(self) -> Iterator[tuple[str, Any | Reject]]:
        value = self.document()
        if isinstance(value, list):
            for index, element in enumerate(value):
                yield f"{self.label}#/{index}", element
        else:
            yield from split_array(self.content().removeprefix(BOM).lstrip(), f"{self.label}#")


_SPLIT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)


def split_array(data: bytes, pointer: str) -> Iterator[tuple[str, Any | Reject]]:
    """The elements of a JSON array that is no JSON as a whole, each parsed on its own. `data` begins with its `[`.

    Elements are told apart by bytes (brackets and commas outside strings). What follows a missing or extra bracket
    cannot be told apart and comes as one Reject.
    """
    depth, start, index = 0, 1, 0
    for match in _SPLIT.finditer(data):
        token = match.group()
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        ends = (token == b"," and depth == 1) or depth == 0
        if ends:
            yield from _element(data[start : match.start()], f"{pointer}/{index}")
            start, index = match.end(), index + 1
        if depth == 0:
            break
    yield from _element(data[start:], f"{pointer}/{index}")


def _element(data: bytes, where: str) -> Iterator[tuple[str, Any | Reject]]:
    if data.strip():
        try:
            yield where, jsontext.loads(data)
        except jsontext.NotJson as error:
            yield where, malformed(where, error, data.strip())


def _is_json(data: bytes) -> bool:
    try:
        jsontext.loads(data)
        return True
    except jsontext.NotJson:
        return False


def at(locator: str, pointer: str) -> str:
    """The locator of something inside a record: `label:3` and `/a/0` give `label:3#/a/0`."""
    return f"{locator}#{pointer}" if locator.rpartition(":")[2].isdigit() else f"{locator}{pointer}"


def malformed(locator: str, error: Exception, data: bytes) -> Reject:
    """A record that is no JSON."""
    return Reject(
        locator=locator,
        reason="not valid JSON (cut off or damaged)",
        rule="malformed_record",
        detail=str(error),
        excerpt=excerpt(data),
    )


def excerpt(value: object, limit: int = 200) -> str:
    """The beginning of a record, for people."""
    if isinstance(value, bytes):
        text = value[:limit].decode("utf-8", "replace")
    else:
        text = value if isinstance(value, str) else jsontext.canonical(value)
    return text[:limit]


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)


_LATER_OBJECT = re.compile(rb"\n\s*\{")

Container = Literal["object", "array", "text", "zip", "parquet", "binary", "empty"]
"""What a file's first bytes are."""


class Head(NamedTuple):
    """A first look at a file, made once and shown to every connector."""

    name: str
    data: bytes
    container: Container
    keys: dict[str, set[str]]
    """Keys by depth path: "" the first object's own keys (or a Parquet file's columns), "messages" those of the first object
    inside it, and so on."""
    members: tuple[str, ...] = ()
    """The names of a zip archive's members."""

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
    if data.startswith(b"PAR1"):
        return Head(path.name, data, "parquet", {"": _parquet_columns(path)})
    if text[:1] in (b"{", b"["):
        return Head(path.name, data, "object" if text[:1] == b"{" else "array", _keys(text))
    kind: Container = "binary" if b"\x00" in text[:1024] else "text"
    later = _LATER_OBJECT.search(text) if path.suffix.lower() in JSON_SUFFIXES else None
    return (
        Head(path.name, data, "object", _keys(text[later.start() + 1 :]))
        if later
        else Head(path.name, data, kind, {})
    )


def _parquet_columns(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError):
        return set()


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
    last: bytes = b""
    expects_key: bool = field(default=True)


def _keys(text: bytes) -> dict[str, set[str]]:
    """Keys of the first top-level object and of the first objects nested in it, by path."""
    found: dict[str, set[str]] = {}
    stack: list[_Level] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        top = stack[-1] if stack else None
        if token in (b"{", b"["):
            path = _child_path(top)
            stack.append(_Level(token, path))
            if token == b"{":
                found.setdefault(path, set())
        elif token in (b"}", b"]"):
            if stack:
                closed = stack.pop()
                if closed.kind == b"{" and closed.path == "":
                    break
        elif top is not None and top.kind == b"{":
            if token == b":":
                top.key = top.last[1:-1].decode("utf-8", "replace")
                found[top.path].add(top.key)
            elif token != b",":
                top.last = token
    return found


def _child_path(parent: _Level | None) -> str:
    if parent is None:
        return ""
    if parent.kind == b"[":
        return parent.path
    return f"{parent.path}.{parent.key}" if parent.path else parent.key
