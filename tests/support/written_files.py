"""Values as files: JSON lines, arrays and documents, CSV, Parquet, zip archives, text."""

from __future__ import annotations

import csv
import io
import json
import random
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from support.odd_values import encode, text_of


def written(kind: str, pieces: list[Any], chance: random.Random) -> bytes:
    """The pieces as a file."""
    if kind == "lines":
        return b"".join(encode(piece) + b"\n" for piece in pieces)
    if kind == "array":
        return b"[" + b",\n".join(map(encode, pieces)) + b"]"
    if kind == "document":
        return _document(pieces[0] if pieces else None, chance)
    if kind == "zip":
        return _archive(pieces, chance)
    if kind == "csv":
        return _csv(_rows(pieces), chance)
    if kind == "parquet":
        return _parquet(_rows(pieces), chance)
    if kind == "sqlite":
        return database(pieces)
    return "\n".join(map(str, pieces)).encode("utf-8", "replace")


def database(pieces: list[Any]) -> bytes:
    """A SQLite database of pairs of a table's name and a row; values that are no text or number are JSON text."""
    columns: dict[str, dict[str, None]] = {}
    rows = [
        piece
        for piece in pieces
        if isinstance(piece, list) and len(piece) == 2 and isinstance(piece[1], dict)
    ]
    for table, row in rows:
        columns.setdefault(str(table), {}).update(dict.fromkeys(row))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 1024")
        for table, names in columns.items():
            with suppress(sqlite3.Error):
                connection.execute(f"CREATE TABLE {_quoted(table)} ({', '.join(map(_quoted, names))})")
        for table, row in rows:
            places = ", ".join("?" * len(row))
            with suppress(sqlite3.Error, UnicodeError):
                connection.execute(
                    f"INSERT INTO {_quoted(str(table))} ({', '.join(map(_quoted, row))}) VALUES ({places})",
                    [_cell(value) for value in row.values()],
                )
        return connection.serialize()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\x00", "") + '"'


def _cell(value: Any) -> Any:
    plain = value is None or isinstance(value, str | float | bytes)
    return (
        value
        if plain or (isinstance(value, int) and abs(value) < 2**63)
        else encode(value).decode("utf-8", "replace")
    )


def _document(value: Any, chance: random.Random) -> bytes:
    if not isinstance(value, dict) or chance.random() < 0.3:
        return encode(value)
    return (
        b"{\n" + b",\n".join(encode(key) + b": " + encode(inner) for key, inner in value.items()) + b"\n}\n"
    )


def _archive(members: list[Any], chance: random.Random) -> bytes:
    file = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(file, "x", method) as archive:
        for member in members:
            name, value = member if isinstance(member, list) and len(member) == 2 else ("odd.json", member)
            info = zipfile.ZipInfo(name if isinstance(name, str) and name else "odd.json")
            archive.NameToInfo.pop(info.filename, None)  # a name may come twice
            archive.writestr(info, encode(value), method)
    return file.getvalue()


def _rows(pieces: list[Any]) -> list[dict[str, Any]]:
    return [
        {key: _plain(value) for key, value in piece.items()}
        if isinstance(piece, dict)
        else {"action": _plain(piece)}
        for piece in pieces
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        text = bytes(value).decode("utf-8", "replace")
        try:
            return float(text)
        except ValueError:
            return text
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _csv(rows: list[dict[str, Any]], chance: random.Random) -> bytes:
    names = [*dict.fromkeys(key for row in rows for key in row)]
    file = io.StringIO(newline="")
    style = {"delimiter": chance.choice(",,;\t"), "lineterminator": chance.choice(("\n", "\r\n"))}
    writer = csv.writer(
        file, quoting=chance.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)), escapechar=None, **style
    )
    writer.writerow(names)
    for row in rows:
        writer.writerow(
            [
                cell if isinstance(cell := row.get(name), str) else "" if cell is None else text_of(cell)
                for name in names
            ]
        )
    return file.getvalue().encode("utf-8", "replace")


_TYPES: tuple[Callable[[int], Any], ...] = (
    lambda n: pa.array([2**53 if i else -(2**53) for i in range(n)], pa.timestamp("s")),
    lambda n: pa.array([2**62 if i else -1 for i in range(n)], pa.timestamp("ns", "Europe/Oslo")),
    lambda n: pa.array([10**15 if i else -(10**9) for i in range(n)], pa.timestamp("ms")),
    lambda n: pa.array([2**31 - 1 if i else -(2**31) for i in range(n)], pa.date32()),
    lambda n: pa.array(list(range(n)), pa.date64()),
    lambda n: pa.array([i * 10**9 for i in range(n)], pa.duration("ns")),
    lambda n: pa.array(list(range(n)), pa.time64("us")),
    lambda n: pa.array([b"\xff\x00" for _ in range(n)], pa.binary()),
    lambda n: pa.array([float("nan") if i % 2 else float("-inf") for i in range(n)], pa.float64()),
    lambda n: pa.array([i % 2 == 0 for i in range(n)], pa.bool_()),
    lambda n: pa.array([None] * n, pa.null()),
    lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    lambda n: pa.array([[("a", None), ("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    lambda n: pa.array([[(1, "x")]] * n, pa.map_(pa.int64(), pa.string())),
    lambda n: pa.array([[None, "x"]] * n, pa.list_(pa.string())),
    lambda n: pa.array([{"a": None, "": [1]}] * n),
    lambda n: pa.array(["x", None][i % 2] for i in range(n)).dictionary_encode(),
    lambda n: pa.array(list(range(n)), pa.int8()).cast(pa.decimal128(38, 10)),
)  # fmt: skip


def _parquet(rows: list[dict[str, Any]], chance: random.Random) -> bytes:
    names = [*dict.fromkeys(key for row in rows for key in row)]
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    if names and chance.random() < 0.5:
        columns[chance.choice(names)] = chance.choice(_TYPES)(len(rows))
    file = io.BytesIO()
    table = pa.table(columns) if columns else pa.table({"action": pa.array([], pa.string())})
    try:
        pq.write_table(table, file, row_group_size=chance.choice((1, 2, 1000)))
    except (pa.ArrowException, ValueError):
        pq.write_table(table.select(table.column_names[:0]), file := io.BytesIO())
    return file.getvalue()


def _column(values: list[Any]) -> Any:
    try:
        column = pa.array(values)
        if "struct<>" not in str(column.type):  # Parquet has no objects without keys
            return column
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pass
    return pa.array(
        [None if v is None else v if isinstance(v, str) else json.dumps(v, default=str) for v in values]
    )


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
