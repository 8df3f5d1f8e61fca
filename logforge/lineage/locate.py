"""From a locator back to the bytes: `label:LINE`, `label#/json/pointer`, `label:LINE#/pointer`, `label!member#/pointer`;
of a database `label#/TABLE/ROWID/COLUMN`."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from logforge.connectors.episodes import part_text, text_of
from logforge.connectors.records import (
    BOM,
    SQLITE,
    Source,
    column_keys,
    column_rows,
    holds_columns,
    open_database,
    plain,
    stream_events,
    unpacked_value,
)
from logforge.connectors.records import json as jsontext
from logforge.ingestion.sources import Limits, packed_kind, unpack
from logforge.schemas import Reject

_PLACE = re.compile(r"(?:!(?P<member>[^#]+?))?(?::(?P<line>\d+))?(?P<pointers>(?:#.*)?)", re.DOTALL)
_TEXT_KEYS = ("content", "parts", "thinking", "Text")


def resolve(path: Path, locator: str, label: str) -> Any:
    """The value that a locator leads to. `label` is the name that the file at `path` had when it was read.

    A line that is no JSON is its text; a line of a CSV file whose column a pointer names is that cell. Where a value on
    the way is text, the next pointer goes on in the JSON inside it, or in its events where it is a stream of them. What is packed is unpacked for it. Raises LookupError
    when the locator leads nowhere.
    """
    if _is_packed(path, path.stat().st_mtime_ns):
        with unpacked(path, label) as files:
            inner = max((name for name in files if leads_into(locator, name)), key=len, default=None)
            if inner is None:
                raise LookupError(f"{locator!r} leads to no file in {label!r}")
            return resolve(files[inner], locator, inner)
    where = _PLACE.fullmatch(locator.removeprefix(label)) if locator.startswith(label) else None
    if where is None:
        raise LookupError(f"{locator!r} does not begin with the label {label!r}")
    pointers = where["pointers"].split("#")[1:]
    rows = None if where["line"] or where["member"] else _rows_of(path)
    data = b"" if rows else _member(path, where["member"])
    try:
        if rows:
            value, pointers = rows(path, pointers)
        else:
            value = _line(data, int(where["line"]), pointers) if where["line"] else _whole(data)
        for number, pointer in enumerate(pointers):
            value = _follow(_inside(value) if number else value, pointer)
    except (LookupError, ValueError, TypeError, AttributeError, StopIteration) as error:
        raise LookupError(f"{locator!r} leads nowhere: {type(error).__name__}: {error}") from None
    return value


@cache
def _is_packed(path: Path, changed: int) -> bool:
    return packed_kind(path) is not None


@contextmanager
def unpacked(path: Path, label: str) -> Iterator[dict[str, Path]]:
    """The files that a packed file holds, by their labels, as long as the context lasts."""
    with TemporaryDirectory(prefix="logforge-") as room:
        contents = unpack(path, label, Path(room).resolve() / "0", Limits())
        files = [found for found in contents.files if found.verdict is None]
        beside = {Source(f.path, f.label).beside(path): path for f in files for path in f.companions}
        yield beside | {found.label: found.path for found in files}


def leads_into(locator: str, label: str) -> bool:
    """True when what follows the label in a locator can be a place in the file of that label."""
    return locator.startswith(label) and _PLACE.fullmatch(locator[len(label) :]) is not None


def _member(path: Path, name: str | None) -> bytes:
    if name is None:
        return path.read_bytes().removeprefix(BOM)
    if not zipfile.is_zipfile(path):
        raise LookupError(f"there is no member {name!r}: {path.name!r} is no zip archive")
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def _rows_of(path: Path) -> Callable[[Path, list[str]], tuple[Any, list[str]]] | None:
    """How a row of a file is found whose rows are no JSON; None for others."""
    with path.open("rb") as file:
        start = file.read(len(SQLITE))
    return _row if start == SQLITE else _column_row if holds_columns(start) else None


def _column_row(path: Path, pointers: list[str]) -> tuple[Any, list[str]]:
    """The row of a Parquet or Arrow file that a locator leads to, and the way that is left in it; without a row the columns."""
    number, *rest = (pointers[0] if pointers else "").split("/")[1:] or [""]
    if not number:
        return column_keys(path), pointers
    _, row = next(islice(column_rows(path, ""), int(number), None))
    if isinstance(row, Reject):
        raise LookupError(row.reason)
    return plain(row), ["".join(f"/{name}" for name in rest), *pointers[1:]]


def _row(path: Path, pointers: list[str]) -> tuple[Any, list[str]]:
    """The row of a table that a locator leads to, and the way that is left in it. Where it names no row: the columns of the
    table, or of all tables."""
    names = pointers[0].split("/")[1:] if pointers else []
    with open_database(Source(path, "")) as database:
        if isinstance(database, Reject):
            raise LookupError(database.reason)
        if len(names) < 2:
            return database.tables, pointers
        row = database.row(_key(names[0]), int(names[1]))
    if isinstance(row, Reject):
        raise LookupError(row.reason)
    return row, ["".join(f"/{name}" for name in names[2:]), *pointers[1:]]


def _whole(data: bytes) -> Any:
    try:
        return jsontext.loads(data)
    except jsontext.NotJson:
        return data.decode("utf-8", "replace")


def _line(data: bytes, number: int, pointers: list[str]) -> Any:
    lines = data.split(b"\n")
    line = lines[number - 1].rstrip(b"\r") if number <= len(lines) else None
    try:
        return jsontext.loads(line or b"")
    except jsontext.NotJson:
        pass
    if pointers:  # a CSV reader counts the lines that end with a carriage return alone, too
        return _cells(data, number)
    if line is None:
        raise IndexError(f"there is no line {number}")
    return line.decode("utf-8", "replace")


def _cells(data: bytes, number: int) -> dict[str, str]:
    """The row of a CSV file that begins on a line; the delimiter is the one that splits the header into the most names."""
    lines = list(io.StringIO(data.decode("utf-8", "replace"), newline=""))
    header = next(line for line in lines if line.strip())
    delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([header], delimiter=mark))))
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    return dict(zip(names, next(csv.reader(lines[number - 1 :], delimiter=delimiter)), strict=True))


def _inside(text: Any) -> Any:
    """What a text holds: the events of a stream, else a JSON value; bytes may be MessagePack."""
    events = stream_events(text) if isinstance(text, str) else None
    try:
        return jsontext.loads(text) if events is None else events
    except jsontext.NotJson:
        if not isinstance(text, bytes):
            raise
        return unpacked_value(text)


def _follow(value: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        name = _key(key)
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def _key(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def texts_at(value: Any) -> set[str]:
    """The texts that a message at this place may have: the value itself, its text (that of all its parts), or that of
    one of them."""
    if isinstance(value, str):
        return {value}
    found = [jsontext.canonical(value), part_text(value)]
    if isinstance(value, list):
        found.append(text_of(value))
    if isinstance(value, dict):
        found += [text_of(value.get(key)) for key in _TEXT_KEYS]
        if isinstance(value.get("content"), list):
            found += [part_text(part) for part in value["content"]]
    return {text for text in found if text is not None}


def holds(value: Any, text: str, plain: bool) -> bool:
    """True when a text begins with, is, or is a piece of what lies at a place.

    Where the place is a line of a `plain` text file, the first line of a text stands for all of it.
    """
    if plain and isinstance(value, str):
        return next((line.strip() for line in text.splitlines() if line.strip()), "") in value
    return any(found and (text.startswith(found) or text in found) for found in texts_at(value))
