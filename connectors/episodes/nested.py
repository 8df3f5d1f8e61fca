"""Documents whose records are the elements of one list in them: a run's `simulations`, an evaluation's `samples`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from logforge.connectors.episodes.rows import reject
from logforge.connectors.records import LONG_BYTES, Member, Source, at, elements, members, too_deep
from logforge.schemas import Reading, Reject, Skip

_MEMBER_BYTES = 500  # no member, however short, takes less memory

ReadInner = Callable[[Any, str, dict[str, Any]], Iterator[Reading]]
"""Reads one record (its parsed value, its locator, and the document around it)."""


class InnerList(NamedTuple):
    """Where the records lie (`key`), and a key of the document that is there even when the list is not."""

    key: str
    header: str


class _Around(NamedTuple):
    """The document around the list: its members, where the list's `[` stands, and what cannot be read behind it."""

    header: dict[str, Any]
    begin: int
    damage: list[Reject]


def read_inner(source: Source, inner: InnerList, read_record: ReadInner) -> Iterator[Reading]:
    """Read a source record by record. A document cut off in its list still gives the elements that are whole.

    Of a long document one element is held at a time, beside what stands around the list.
    """
    locator = source.sole_document()
    if locator is not None and source.size > LONG_BYTES and (around := _around(source, locator, inner.key)):
        yield from _listed(source, locator, inner, around, read_record)
        return
    rows = source.records()
    first = next(rows, None)
    if first is None:
        return
    second = next(rows, None)
    if second is None and isinstance(first[1], Reject) and (around := _around(source, first[0], inner.key)):
        yield from _listed(source, first[0], inner, around, read_record)
        return
    for where, row in chain((first,), () if second is None else (second,), rows):
        yield from _document(where, row, inner, read_record)


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


def _listed(
    source: Source, locator: str, inner: InnerList, around: _Around, read_record: ReadInner
) -> Iterator[Reading]:
    found = False
    with source.path.open("rb") as file:
        place = at(locator, f"/{inner.key}")
        for where, element in elements(file, around.begin, place, source.max_record, with_rest=False):
            found = True
            yield from _guarded(element, where, around.header, read_record)
    yield from around.damage
    if not found and not any(damage.level == "record" for damage in around.damage):
        yield from _document(locator, around.header, inner, read_record)


def _guarded(element: Any, locator: str, document: dict[str, Any], read_record: ReadInner) -> list[Reading]:
    if isinstance(element, Reject):
        return [element]
    try:
        return list(read_record(element, locator, document))
    except RecursionError:
        return [too_deep(locator)]


def _around(source: Source, locator: str, key: str) -> _Around | None:
    """What stands around the list; None when there is no list, or more around it than one record may have.

    Damage behind the list may be records that cannot be told apart; before it, it is a part of what holds them.
    """
    header: dict[str, Any] = {}
    damage: list[Reject] = []
    with source.path.open("rb") as file:
        others: list[Member] = []
        begin, room = -1, source.max_record
        for member in members(file, source.start, LONG_BYTES):
            if begin < 0 and member.key == key and member.first == b"[":
                begin = member.begin
                continue
            others.append(member)
            room -= max(member.piece.size, _MEMBER_BYTES)
            if room < 0:
                return None
        for member in others:
            value = member.whole(file).read(locator, source.max_record)
            if not isinstance(value, Reject):
                header |= value
            else:
                level = "record" if member.begin > begin else "part"
                damage.append(msgspec.structs.replace(value, level=level))
    return _Around(header, begin, damage) if begin >= 0 else None
