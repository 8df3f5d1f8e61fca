"""Documents whose records are the elements of one list in them: a run's `simulations`, an evaluation's `samples`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from logforge.connectors.base import BOM, Source, at, split_array
from logforge.connectors.jsontext import NotJson, loads
from logforge.connectors.rows import reject
from logforge.schemas.episode import Reading, Reject, Skip

ReadInner = Callable[[Any, str, dict[str, Any]], Iterator[Reading]]
"""Reads one record (its parsed value, its locator, and the document around it)."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_LIST = re.compile(rb"\s*:\s*(?=\[)")


class InnerList(NamedTuple):
    """Where the records lie (`key`), and a key of the document that is there even when the list is not."""

    key: str
    header: str


def read_inner(source: Source, inner: InnerList, read_record: ReadInner) -> Iterator[Reading]:
    """Read a source record by record. A document cut off in its list still gives the elements that are whole."""
    rows = source.records()
    first = next(rows, None)
    if first is None:
        return
    second = next(rows, None)
    if second is None and isinstance(first[1], Reject) and (torn := _torn(source, inner.key)):
        header, data = torn
        for locator, element in split_array(data, at(first[0], f"/{inner.key}")):
            yield from _guarded(element, locator, header, read_record)
        return
    for locator, row in chain((first,), () if second is None else (second,), rows):
        yield from _document(locator, row, inner, read_record)


def _document(locator: str, row: Any, inner: InnerList, read_record: ReadInner) -> Iterator[Reading]:
    if isinstance(row, Reject):
        yield row
    elif isinstance(row, dict) and isinstance(row.get(inner.key), list) and row[inner.key]:
        for index, element in enumerate(row[inner.key]):
            yield from _guarded(element, at(locator, f"/{inner.key}/{index}"), row, read_record)
    elif isinstance(row, dict) and isinstance(row.get(inner.header), dict) and not row.get(inner.key):
        yield Skip(reason=f"no_{inner.key}")
    else:
        yield reject(locator, f"no list `{inner.key}`", "", row)


def _guarded(element: Any, locator: str, document: dict[str, Any], read_record: ReadInner) -> list[Reading]:
    if isinstance(element, Reject):
        return [element]
    try:
        return list(read_record(element, locator, document))
    except RecursionError:
        return [Reject(locator=locator, reason="nested too deep", rule="malformed_record")]


def _torn(source: Source, key: str) -> tuple[dict[str, Any], bytes] | None:
    """What stands before the list, and the bytes from its `[` on, of a document that is no JSON as a whole."""
    data = source.content().removeprefix(BOM).lstrip()
    depth, wanted = 0, f'"{key}"'.encode()
    for match in _TOKEN.finditer(data):
        token = match.group()
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
        begins = _LIST.match(data, match.end()) if depth == 1 and token == wanted else None
        if begins:
            return _header(data[: match.start()]), data[begins.end() :]
    return None


def _header(data: bytes) -> dict[str, Any]:
    try:
        return object_or_empty(loads(data.rstrip().removesuffix(b",") + b"}"))
    except NotJson:
        return {}


def object_or_empty(value: Any) -> dict[str, Any]:
    """The value, when it is an object; else one without keys."""
    return value if isinstance(value, dict) else {}
