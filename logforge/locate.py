"""From a locator back to the bytes: `label:LINE`, `label#/json/pointer`, `label:LINE#/pointer`, `label!member#/pointer`."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from typing import Any

from logforge.connectors import jsontext
from logforge.connectors.base import BOM
from logforge.connectors.content import part_text, text_of

_PLACE = re.compile(r"(?:!(?P<member>[^#]+?))?(?::(?P<line>\d+))?(?P<pointers>(?:#.*)?)", re.DOTALL)
_TEXT_KEYS = ("content", "thinking", "Text")


def resolve(path: Path, locator: str, label: str) -> Any:
    """The value that a locator leads to. `label` is the name that the file at `path` had when it was read.

    A line that is no JSON is its text; a line of a CSV file whose column a pointer names is that cell. Where a value on
    the way is text, the next pointer goes on in the JSON inside it. Raises LookupError when the locator leads nowhere.
    """
    where = _PLACE.fullmatch(locator.removeprefix(label)) if locator.startswith(label) else None
    if where is None:
        raise LookupError(f"{locator!r} does not begin with the label {label!r}")
    data = _member(path, where["member"])
    pointers = where["pointers"].split("#")[1:]
    try:
        value = _line(data, int(where["line"]), pointers) if where["line"] else _whole(path, data)
        for number, pointer in enumerate(pointers):
            value = _follow(jsontext.loads(value) if number else value, pointer)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise LookupError(f"{locator!r} leads nowhere: {type(error).__name__}: {error}") from None
    return value


def _member(path: Path, name: str | None) -> bytes:
    if name is None:
        return path.read_bytes().removeprefix(BOM)
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def _whole(path: Path, data: bytes) -> Any:
    if data.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    try:
        return jsontext.loads(data)
    except jsontext.NotJson:
        return data.decode("utf-8", "replace")


def _line(data: bytes, number: int, pointers: list[str]) -> Any:
    lines = data.split(b"\n")
    line = lines[number - 1].rstrip(b"\r")
    try:
        return jsontext.loads(line)
    except jsontext.NotJson:
        pass
    if pointers:
        return _cells(b"\n".join(lines), number)
    return line.decode("utf-8", "replace")


def _cells(data: bytes, number: int) -> dict[str, str]:
    """The row of a CSV file that begins on a line; the delimiter is the one that splits the header into the most names."""
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    header = next(line for line in lines if line.strip())
    delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([header], delimiter=mark))))
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    return dict(zip(names, next(csv.reader(lines[number - 1 :], delimiter=delimiter)), strict=True))


def _follow(value: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def texts_at(value: Any) -> set[str]:
    """The texts that a message at this place may have: the value itself, its text, or that of one of its parts."""
    if isinstance(value, str):
        return {value}
    found = {jsontext.canonical(value), part_text(value)}
    if isinstance(value, dict):
        found |= {text for key in _TEXT_KEYS if (text := text_of(value.get(key))) is not None}
        if isinstance(value.get("content"), list):
            found |= {part_text(part) for part in value["content"]}
    return found


def holds(value: Any, text: str, plain: bool) -> bool:
    """True when a text begins with, is, or is a piece of what lies at a place.

    Where the place is a line of a `plain` text file, the first line of a text stands for all of it.
    """
    if plain and isinstance(value, str):
        return next((line.strip() for line in text.splitlines() if line.strip()), "") in value
    return any(found and (text.startswith(found) or text in found) for found in texts_at(value))
