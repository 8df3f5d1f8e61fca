"""Documents that are one object of records by their id: `{"809": {…}, "15": {…}}`. Keys are text, in no order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from logforge.connectors.episodes.rows import reject
from logforge.connectors.records import LONG_BYTES, Head, Source, members, pointer, too_deep
from logforge.schemas import Reading, Reject, Skip

ReadEntry = Callable[[str, Any, str], Iterator[Reading]]
"""Reads one record (its key, its parsed value and its locator)."""


class _Entry(NamedTuple):
    key: str
    value: Any
    locator: str


def entry_keys(head: Head) -> list[set[str]]:
    """The keys of each entry of the document that a head begins."""
    return [head.keys.get(key, set()) for key in head.top] if head.container == "object" else []


def read_keyed(source: Source, read_entry: ReadEntry) -> Iterator[Reading]:
    """Read a source entry by entry. A document that is cut off or damaged still gives the entries that are whole.

    Of a long document one entry is held at a time.
    """
    locator = source.sole_document()
    long = locator is not None and source.size > LONG_BYTES
    rows = [] if long else _rows(source)
    whole = any(isinstance(row, dict) for _, row in rows)
    torn = None if whole else _entries(source, locator or (rows[0][0] if rows else ""))
    for key, value, where in torn or ():
        yield from [value] if isinstance(value, Reject) else _guarded(key, value, where, read_entry)
    if torn is None:
        for where, row in rows or source.records():
            yield from _document(where, row, read_entry)


def _document(locator: str, row: Any, read_entry: ReadEntry) -> Iterator[Reading]:
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


def _guarded(key: str, value: Any, locator: str, read_entry: ReadEntry) -> list[Reading]:
    if not isinstance(value, dict):
        return [reject(locator, "the entry is no object", "", value)]
    try:
        return list(read_entry(key, value, locator))
    except RecursionError:
        return [too_deep(locator)]


def _entries(source: Source, locator: str) -> Iterator[_Entry] | None:
    """The entries of a document that begins with `{`, each parsed on its own; None when not one of them is whole."""
    if source.first_byte() != b"{":
        return None
    entries = _split(source, locator)
    damaged: list[_Entry] = []
    for entry in entries:
        if not isinstance(entry.value, Reject):
            return chain(damaged, [entry], entries)
        damaged.append(entry)
    return None


def _split(source: Source, locator: str) -> Iterator[_Entry]:
    with source.path.open("rb") as file:
        for member in members(file, source.start, source.max_record):
            found = member.read(locator, source.max_record)
            if isinstance(found, Reject):
                yield _Entry(member.key or "", found, found.locator)
            else:
                yield from (_Entry(key, value, pointer(locator, key)) for key, value in found.items())
