"""Rows of a table as records: JSON lines or arrays, CSV, Parquet, Arrow. Each row is an object of its column names and values.

Locators: `label:LINE` for a JSON line and for the line on which a CSV row begins, `label#/ROW` (from 0) for Parquet and Arrow. Columns
follow as a pointer.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from logforge.connectors.records.base import Head, look
from logforge.connectors.records.columns import column_rows, holds_columns, plain
from logforge.connectors.records.rejects import excerpt
from logforge.connectors.records.source import BOM, Source
from logforge.schemas import Reject

_DELIMITERS = (",", ";", "\t")


def columns_of(head: Head) -> set[str]:
    """The column names of a table, or the keys of its first object; empty when the head does not tell them."""
    if head.container == "text":
        first = head.data.removeprefix(BOM).lstrip().splitlines()[0]
        return set(_header(first.decode("utf-8", "replace"))[0])
    return head.top


def table_rows(source: Source, key_column: str) -> Iterator[tuple[str, Any | Reject]]:
    """Locator and row of each record, in order; what cannot be read comes as a Reject.

    Text is read as CSV when its first line names the column without which there is no row.
    """
    with source.path.open("rb") as file:
        start = file.read(8)
    if holds_columns(start):
        yield from column_rows(source.path, source.label)
    elif source.first_byte() not in (b"{", b"[") and key_column in _first_names(source):
        yield from _csv(source)
    else:
        yield from source.records()


def _first_names(source: Source) -> list[str]:
    _, first = next(source.lines(), (0, b""))
    return _header(first.decode("utf-8", "replace"))[0] if isinstance(first, bytes) else []


def _header(line: str) -> tuple[list[str], str]:
    """Column names and the delimiter that splits the header into the most of them."""
    found = []
    for delimiter in _DELIMITERS:
        try:
            found.append((next(csv.reader([line], delimiter=delimiter), []), delimiter))
        except csv.Error:
            found.append(([], delimiter))
    names, delimiter = max(found, key=lambda pair: len(pair[0]))
    return [name.strip() for name in names], delimiter


def _csv(source: Source) -> Iterator[tuple[str, Any | Reject]]:
    """Rows of a CSV file. A row that does not fit the header is set aside alone, and so is what a lost quote swallowed."""
    csv.field_size_limit(sys.maxsize)
    data = source.content().removeprefix(BOM)
    # Bytes that are no UTF-8 pass as surrogates, so that they spoil their own row only.
    lines = list(io.StringIO(data.decode("utf-8", "surrogateescape"), newline=""))
    first = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
    header = "".join(lines[first : first + 1]).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    names, delimiter = _header(header)
    start = first + 1
    while start < len(lines):
        reader = csv.reader(islice(lines, start, None), delimiter=delimiter, strict=True)
        base, begin = start, start
        start = len(lines)
        while (row := _next(reader)) is not None:
            end = base + reader.line_num
            where = f"{source.label}:{begin + 1}"
            if row == [] or "".join(lines[begin:end]).strip() == "":
                pass
            elif not isinstance(row, csv.Error) and len(row) == len(names) and _is_text(row):
                yield where, dict(zip(names, row, strict=True))
            else:
                yield where, _misfit(where, row, names, lines[begin])
                if end > begin + 1:
                    start = begin + 1
                    break
            begin = end


def _next(reader: Any) -> list[str] | csv.Error | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        return error


def _is_text(row: list[str]) -> bool:
    return all(cell.isascii() or not any("\ud800" <= char <= "\udfff" for char in cell) for cell in row)


def _misfit(where: str, row: list[str] | csv.Error, names: list[str], line: str) -> Reject:
    if isinstance(row, csv.Error):
        detail = str(row)
    elif len(row) != len(names):
        detail = f"{len(row)} cells under {len(names)} columns"
    else:
        detail = "not UTF-8"
    return Reject(
        locator=where,
        reason="not a row of this table (cut off or damaged)",
        rule="malformed_record",
        detail=detail,
        excerpt=excerpt(line.encode("utf-8", "surrogateescape")),
    )


def plain_rows(source: Source, *columns: str) -> Iterator[tuple[str, Any | Reject]]:
    """Locator and plain value of each row of a JSON, CSV, Parquet or Arrow file; what cannot be read comes as a Reject.

    Text is a CSV file when its first line names one of `columns`.
    """
    head = look(source.path)
    names = columns_of(head)
    key = next((column for column in columns if column in names), columns[0] if columns else "")
    for locator, row in table_rows(source, key):
        if head.container in ("object", "array") or not isinstance(row, dict):
            yield locator, row
        else:
            yield locator, {str(name): None if cell == "" else plain(cell) for name, cell in row.items()}
