"""SQLite databases as records: their tables, and the rows of a table one at a time. Nothing is written beside them.

A file that stands alone is opened as it is, without a lock. Where another program holds it (`-wal` or `-journal` lies beside
it), it is copied with what lies beside it, and the copy is read.

Locators: `label#/TABLE/ROWID/COLUMN`; where a column holds JSON text, `#` goes on inside it. A table without row ids has the
number of the row, from 1.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from logforge.connectors.records import json as jsontext
from logforge.connectors.records.json_members import pointer
from logforge.connectors.records.rejects import malformed
from logforge.connectors.records.source import Source
from logforge.schemas import Reject

SQLITE = b"SQLite format 3\x00"
"""How a database begins."""
_SIDECARS = ("-wal", "-journal")
"""Beside a database that another program holds, or that a killed one left: changes that are not in the file yet."""
_TRIES = 3
_MOST_TABLES = 10_000
_ROW_IDS = ("rowid", "_rowid_", "oid")
_MOST = 2**31 - 1
_TABLES = """SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
    AND sql NOT LIKE 'CREATE VIRTUAL %' ORDER BY name"""
_FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""The second where a message of SQLite's quotes damaged bytes."""
_STEP = 100_000
"""Steps of SQLite's machine between two looks at how many were taken."""
_REPEATS = sqlite3.DatabaseError("its pages lead back to themselves")
_LOST = sqlite3.DatabaseError("an index names it, and the table does not have it")
_SAFE = ("PRAGMA query_only = ON", "PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON")
"""A database is data: nothing that its schema names is run, and damaged pages are found."""


@dataclass(frozen=True)
class _Table:
    """A table's columns, and the name of its row ids (None: it has none)."""

    columns: tuple[str, ...]
    row_id: str | None


class _Budget:
    """How long a query may take: in a damaged file pages may lead back to themselves, and a scan would never end."""

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self.rows = size // 4 + 1
        """Rows that a file of this size can have."""
        self._looks = 10 + 50 * size // _STEP
        self._left = self._looks
        connection.set_progress_handler(self._look, _STEP)

    def begin(self) -> None:
        """A query begins."""
        self._left = self._looks

    def _look(self) -> bool:
        self._left -= 1
        return self._left < 0


@dataclass(frozen=True)
class Database:
    """An open database."""

    label: str
    limit: int
    _connection: sqlite3.Connection = field(repr=False)
    _is_same: Callable[[], bool] = field(repr=False)
    """False when another program wrote to the file meanwhile."""
    _budget: _Budget = field(repr=False)

    @cached_property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table. Views and virtual tables are none."""
        return {name: table.columns for name, table in self._tables.items()}

    @cached_property
    def _tables(self) -> dict[str, _Table]:
        names = [name for (name,) in self._execute(_TABLES).fetchmany(_MOST_TABLES) if isinstance(name, str)]
        found = {name: _described(self._connection, name) for name in names}
        return {name: table for name, table in found.items() if table.columns}

    def rows(
        self, table: str, *, where: str = "", values: tuple[Any, ...] = (), order: str = ""
    ) -> Iterator[tuple[str, dict[str, Any] | Reject]]:
        """Locator and values by column of each row, in the order of the row ids. What cannot be read comes as a Reject,
        alone where the rows behind it still can.

        `where` and `order` are SQL of the connector's own, `values` those of its `?`. Text that is no UTF-8 comes as bytes.
        """
        place = pointer(f"{self.label}#", table)
        number = 0
        try:
            for number, found in enumerate(self._found(table, where, values, order), 1):
                if isinstance(found, dict):
                    yield f"{place}/{number}", found
                else:
                    where_at = f"{place}/{found}"
                    row = self._row(table, found, where_at)
                    yield where_at, _damaged(where_at, "row not readable", _LOST) if row is None else row
        except _FAULTS as error:
            yield place, _damaged(place, f"not readable behind row {number:,}", error)
        if not self._is_same():
            yield place, _busy(place, "it was read")

    def count(self, table: str, where: str, values: tuple[Any, ...] = ()) -> int:
        """How many rows meet a condition of the connector's own; 0 where that cannot be read."""
        query = f"SELECT count(*) FROM {_quoted(table)} WHERE {where}"
        try:
            return int(self._execute(query, values).fetchone()[0])
        except _FAULTS:
            return 0

    def row(self, table: str, number: int) -> dict[str, Any] | Reject:
        """One row by its id, or by its number in a table without row ids. Raises KeyError."""
        if self._tables[table].row_id is not None:
            row = self._row(table, number, f"{pointer(f'{self.label}#', table)}/{number}")
            if row is None:
                raise KeyError(number)
            return row
        for index, found in enumerate(self._found(table, "", (), ""), 1):
            if index == number and isinstance(found, dict):
                return found
        raise KeyError(number)

    def _found(
        self, table: str, where: str, values: tuple[Any, ...], order: str
    ) -> Iterator[int | dict[str, Any]]:
        """The ids of the rows; the rows themselves where they have none."""
        columns, row_id = self._tables[table].columns, self._tables[table].row_id
        query = f"SELECT {row_id or _listed(columns)} FROM {_quoted(table)}"
        query += f" WHERE {where}" if where else ""
        query += f" ORDER BY {order or row_id}" if order or row_id else ""
        latest: int | None = None
        with closing(self._execute(query, values)) as cursor:
            for number, found in enumerate(cursor):
                if number > self._budget.rows or (latest is not None and found[0] <= latest):
                    raise _REPEATS
                latest = found[0] if row_id and not order else None
                yield found[0] if row_id else dict(zip(columns, found, strict=True))

    def _execute(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        self._budget.begin()
        return self._connection.execute(query, values)

    def _row(self, table: str, number: int, where: str) -> dict[str, Any] | Reject | None:
        """Each row is asked for alone, so that one that is damaged or too long costs no other."""
        columns, row_id = self._tables[table].columns, self._tables[table].row_id
        query = f"SELECT {_listed(columns)} FROM {_quoted(table)} WHERE {row_id} = ?"
        try:
            found = self._execute(query, (number,)).fetchone()
        except sqlite3.DataError as error:
            reason = "the row is too long to be read; --max-record sets the limit"
            detail = f"{error}; the limit is {self.limit:,} bytes"
            return Reject(locator=where, reason=reason, rule="element_too_long", detail=detail)
        except _FAULTS as error:
            return _damaged(where, "row not readable", error)
        return None if found is None else dict(zip(columns, found, strict=True))


@contextmanager
def open_database(source: Source) -> Iterator[Database | Reject]:
    """The source as a database, or why it cannot be read."""
    with ExitStack() as stack:
        yield _opened(source, stack)


def database_columns(path: Path) -> dict[str, set[str]]:
    """The tables of a database (under "") and the columns of each; empty when it cannot be read.

    The file alone is looked at, unless its tables lie in the log beside it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for files in ([path], [path, *_beside(path)]):
        with ExitStack() as stack:
            if not found and isinstance(database := _opened(Source(path, ""), stack, files), Database):
                found = database.tables
    return {"": set(found)} | {name: set(columns) for name, columns in found.items()} if found else {}


def json_cell(value: Any, where: str) -> Any:
    """The JSON that a column holds; a Reject where it is none."""
    try:
        return jsontext.loads(value)
    except (jsontext.NotJson, TypeError) as error:
        known = error if isinstance(error, jsontext.NotJson) else jsontext.NotJson("no text")
        return malformed(where, known, value if isinstance(value, bytes) else str(value).encode())


def sidecars(path: Path) -> list[Path]:
    """The files that belong to a database, told by their names: a connector's `companions`."""
    return [path.with_name(path.name + suffix) for suffix in _SIDECARS]


def _beside(path: Path) -> list[Path]:
    return [file for file in sidecars(path) if file.is_file() and file.stat().st_size]


def _opened(source: Source, stack: ExitStack, files: list[Path] | None = None) -> Database | Reject:
    where = f"{source.label}#"
    files = [source.path, *_beside(source.path)] if files is None else files
    path, stamp = source.path, _stamp_of(source.path)
    is_copy = len(files) > 1
    try:
        if is_copy:
            room = Path(stack.enter_context(TemporaryDirectory(prefix="logforge-")))
            if not _copied(files, room):
                return _busy(where, "it was copied")
            path = room / path.name
        connection = stack.enter_context(closing(_connection(path, alone=not is_copy)))
        database = Database(
            source.label,
            source.max_record,
            connection,
            lambda: is_copy or stamp == _stamp_of(source.path),
            _Budget(connection, sum(file.stat().st_size for file in files)),
        )
        database.tables  # noqa: B018 (the schema is read before the limit holds)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(source.max_record, _MOST))
        return database
    except _FAULTS as error:
        return _damaged(where, "not readable as a SQLite database", error)


def _copied(files: list[Path], room: Path) -> bool:
    """Copy the files, as they are at one moment; False when another program does not leave them alone for so long."""
    for _ in range(_TRIES):
        before = _stamp_of(*files)
        for file in files:
            if file.is_file():
                shutil.copyfile(file, room / file.name)
        if before == _stamp_of(*files):
            return True
    return False


def _stamp_of(*files: Path) -> tuple[tuple[int, int] | None, ...]:
    """What changes when a program writes to the files."""
    found = [file.stat() if file.is_file() else None for file in files]
    return tuple((stat.st_size, stat.st_mtime_ns) if stat else None for stat in found)


def _connection(path: Path, *, alone: bool) -> sqlite3.Connection:
    """A file that stands alone is not even locked; a copy of ours takes up what lies beside it."""
    how = "mode=ro&immutable=1" if alone else "mode=rw"
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, isolation_level=None)
    connection.text_factory = _text
    for pragma in _SAFE:
        connection.execute(pragma)
    return connection


def _described(connection: sqlite3.Connection, name: str) -> _Table:
    found = connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
    columns = tuple(column for (column,) in found if isinstance(column, str))
    hidden = {column.lower() for column in columns}
    row_id = next((known for known in _ROW_IDS if known not in hidden), None)
    try:
        connection.execute(f"SELECT {row_id} FROM {_quoted(name)} LIMIT 0")
    except _FAULTS:
        row_id = None
    return _Table(columns, row_id)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _damaged(where: str, reason: str, error: Exception) -> Reject:
    return Reject(locator=where, reason=f"{reason} (damaged or cut off)", rule="malformed_record", detail=str(error))  # fmt: skip


def _busy(where: str, when: str) -> Reject:
    reason = f"another program wrote to the database while {when}"
    return Reject(locator=where, reason=reason, rule="database_busy")
