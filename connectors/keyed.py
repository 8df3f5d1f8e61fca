"""Documents that are one object of records by their id: `{"809": {…}, "15": {…}}`. Keys are text, in no order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from logforge.connectors.base import BOM, Head, Source, at, malformed
from logforge.connectors.jsontext import NotJson, loads
from logforge.connectors.rows import reject
from logforge.schemas.episode import Reading, Reject, Skip

ReadEntry = Callable[[str, Any, str], Iterator[Reading]]
"""Reads one record (its key, its parsed value and its locator)."""

_SPLIT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:')


class _Entry(NamedTuple):
    key: str
    value: Any
    locator: str


def entry_keys(head: Head) -> list[set[str]]:
    """The keys of each entry of the document that a head begins."""
    return [head.keys.get(key, set()) for key in head.top] if head.container == "object" else []


def read_keyed(source: Source, read_entry: ReadEntry) -> Iterator[Reading]:
    """Read a source entry by entry. A document that is cut off or damaged still gives the entries that are whole."""
    rows = _rows(source)
    torn = [] if any(isinstance(row, dict) for _, row in rows) else _torn(source, rows)
    for key, value, locator in torn:
        yield from [value] if isinstance(value, Reject) else _guarded(key, value, locator, read_entry)
    for locator, row in () if torn else rows:
        if isinstance(row, Reject):
            yield row
        elif isinstance(row, dict) and row:
            for key, value in row.items():
                yield from _guarded(key, value, pointer(locator, key), read_entry)
        elif row == {}:
            yield Skip(reason="empty_document")
        else:
            yield reject(locator, "no object of records by their id", "", row)


def _rows(source: Source) -> list[tuple[str, Any | Reject]]:
    """The documents; lines of which the first is none and no other an object are one damaged document."""
    rows = list(source.records())
    if len(rows) > 1 and isinstance(rows[0][1], Reject) and not any(isinstance(row, dict) for _, row in rows):
        rows = [(f"{source.label}#", source.document())]
    return rows


def pointer(locator: str, key: str) -> str:
    """The locator of an object's entry; `~` and `/` in the key are escaped (RFC 6901)."""
    return at(locator, "/" + key.replace("~", "~0").replace("/", "~1"))


def _guarded(key: str, value: Any, locator: str, read_entry: ReadEntry) -> list[Reading]:
    if not isinstance(value, dict):
        return [reject(locator, "the entry is no object", "", value)]
    try:
        return list(read_entry(key, value, locator))
    except RecursionError:
        return [Reject(locator=locator, reason="nested too deep", rule="malformed_record")]


def _torn(source: Source, rows: list[tuple[str, Any | Reject]]) -> list[_Entry]:
    """The entries of a damaged document, each parsed on its own; none when not one of them is whole."""
    data = source.content().removeprefix(BOM).lstrip()
    found = list(_split(data, rows[0][0] if rows else ""))
    return found if any(not isinstance(entry.value, Reject) for entry in found) else []


def _split(data: bytes, locator: str) -> Iterator[_Entry]:
    """Key and value of each entry, told apart by bytes: brackets, and commas outside strings. `data` begins with its `{`."""
    depth, start = 0, 1
    for match in _SPLIT.finditer(data if data[:1] == b"{" else b""):
        token = match.group()
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
        if depth == 0 or (token == b"," and depth == 1):
            yield from _entry(data[start : match.start()], locator)
            start = match.end()
        if depth == 0:
            break
    yield from _entry(data[start:], locator)


def _entry(data: bytes, locator: str) -> Iterator[_Entry]:
    if not data.strip():
        return
    try:
        for key, value in loads(b"{" + data + b"}").items():
            yield _Entry(key, value, pointer(locator, key))
    except NotJson as error:
        begun = _KEY.match(data)
        key = _text(begun.group(1)) if begun else ""
        where = pointer(locator, key) if begun else locator
        yield _Entry(key, malformed(where, error, data.strip()), where)


def _text(data: bytes) -> str:
    try:
        return str(loads(data))
    except NotJson:
        return data[1:-1].decode("utf-8", "replace")
