"""The store: one DuckDB file with the tables of schemas/tables.py. The one module that opens it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import polars as pl
import pyarrow as pa

from logforge.frames import Tables, episodes_of
from logforge.schemas.episode import Episode
from logforge.schemas.errors import StoreError, UsageError
from logforge.schemas.tables import TABLES

DEFAULT_PATH = "logforge.duckdb"
VERSION = 1
"""Of the tables' layout; a store of another version is refused."""

_BATCH_EPISODES = 512
_UNFRAMED = re.compile(r"\b(?:INTERVAL|BIT|UNION)\b|TIME WITH TIME ZONE")
_FOREIGN = "this DuckDB file is no logforge store"


class Store:
    """An open store. Use as a context manager; `con` is the DuckDB connection."""

    def __init__(
        self, path: str | Path = DEFAULT_PATH, *, read_only: bool = False, create: bool = True
    ) -> None:
        self.path = Path(path)
        if str(path).startswith(":"):
            raise StoreError(str(path), "a store is a file", "name one with --store")
        if (read_only or not create) and not self.path.exists():
            raise StoreError(str(self.path), "there is no store here", "run `logforge ingest LOGS` first")
        self.con = _connect(self.path, read_only)
        try:
            if not read_only:
                self._create()
            self._check_version()
        except BaseException:
            self.con.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.con.close()

    def close(self) -> None:
        """Close the connection."""
        self.con.close()

    def _create(self) -> None:
        """Make the tables in an empty file. A DuckDB file of somebody else's is left as it is."""
        rows = self.con.sql("SELECT table_name FROM information_schema.tables").fetchall()
        if "store_version" in {row[0] for row in rows}:
            return
        if rows:
            raise StoreError(str(self.path), _FOREIGN, "name another file with --store")
        with self.transaction():
            self.con.execute("CREATE TABLE store_version (version INTEGER)")
            for table in TABLES.values():
                columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
                self.con.execute(f"CREATE TABLE {table.name} ({columns})")
            self.con.execute(
                "CREATE VIEW transitions_latest AS SELECT * FROM transitions WHERE dataset = "
                "(SELECT dataset FROM datasets ORDER BY created_at DESC, dataset LIMIT 1)"
            )
            self.con.execute("INSERT INTO store_version VALUES (?)", [VERSION])

    def _check_version(self) -> None:
        try:
            found = self.con.sql("SELECT version FROM store_version").fetchall()
        except duckdb.CatalogException:
            raise StoreError(str(self.path), _FOREIGN) from None
        if found != [(VERSION,)]:
            raise StoreError(
                str(self.path),
                f"the store has layout {found[0][0] if found else 'unknown'}, this logforge reads {VERSION}",
                "ingest the logs again into a new store",
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. A full disk is reported as StoreError and leaves the store as it was."""
        self.con.execute("BEGIN")
        try:
            yield
            self.con.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
                raise StoreError(str(self.path), f"cannot write: {error}", "free some disk space") from error
            raise

    def _roll_back(self) -> None:
        with suppress(duckdb.Error):  # the failure may have ended the transaction already
            self.con.execute("ROLLBACK")

    def insert(self, table: str, rows: pa.Table | pl.DataFrame) -> None:
        """Append rows; columns are matched by name. Lists of (key, value) become maps where the table has maps."""
        if not len(rows):
            return
        # A local name, found by DuckDB's replacement scan: a registered table would be held until the commit.
        incoming = (rows.to_arrow() if isinstance(rows, pl.DataFrame) else rows).combine_chunks()
        maps = [
            f"map_from_entries({column.name}) AS {column.name}"
            for column in TABLES[table].columns
            if column.type.startswith("MAP") and not pa.types.is_map(incoming.schema.field(column.name).type)
        ]
        replace = f"REPLACE ({', '.join(maps)})" if maps else ""
        self.con.execute(f"INSERT INTO {table} BY NAME SELECT * {replace} FROM incoming")

    def sql(self, query: str) -> pl.DataFrame:
        """The result of a query. Raises UsageError with DuckDB's own message when the query is wrong.

        Types that a frame cannot hold (intervals, bits, unions) come as text, blobs as hexadecimal text.
        """
        try:
            result: duckdb.DuckDBPyRelation | None = self.con.sql(query)
            if result is None:  # a statement without rows
                return pl.DataFrame()
            shown = [_shown(name, str(kind)) for name, kind in zip(result.columns, result.types, strict=True)]
            rows: pl.DataFrame = result.project(", ".join(shown)).pl()
            return rows
        except (duckdb.Error, pl.exceptions.PolarsError) as error:
            raise UsageError(f"the query failed: {error}") from None

    def tables(self, where: str = "true", parameters: Iterable[object] = ()) -> Tables:
        """Episodes that meet a condition of ours (never of log text), with their messages and steps, ordered by id."""
        values = list(parameters)
        chosen = f"SELECT episode_id FROM episodes WHERE {where}"
        return Tables(
            self.arrow(f"SELECT * FROM episodes WHERE {where} ORDER BY episode_id", values),
            self.arrow(
                f"SELECT * FROM messages WHERE episode_id IN ({chosen}) ORDER BY episode_id, position", values
            ),
            self.arrow(
                f"SELECT * FROM steps WHERE episode_id IN ({chosen}) ORDER BY episode_id, step", values
            ),
        )

    def arrow(self, query: str, parameters: list[object] | None = None) -> pa.Table:
        """The result of one of our own queries as an Arrow table."""
        return self.con.sql(query, params=parameters or None).to_arrow_table()

    def episodes(self, ids: Iterable[str] | None = None) -> Iterator[Episode]:
        """Episodes ordered by id (all, or those named), read in batches so that memory stays small."""
        if ids is None:
            ids = [row[0] for row in self.con.sql("SELECT episode_id FROM episodes").fetchall()]
        ordered = sorted(ids)
        for start in range(0, len(ordered), _BATCH_EPISODES):
            batch = ordered[start : start + _BATCH_EPISODES]
            yield from episodes_of(self.tables("episode_id IN (SELECT unnest(?))", [batch]))


def _shown(name: str, kind: str) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    if kind == "BLOB":
        return f"hex({quoted}) AS {quoted}"
    return quoted if not _UNFRAMED.search(kind) else f"{quoted}::VARCHAR AS {quoted}"


def _connect(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(path), read_only=read_only)
    except duckdb.IOException as error:
        text = str(error)
        if "Could not set lock" in text:
            raise StoreError(
                str(path),
                "another process has the store open",
                f"wait for it to finish ({text.splitlines()[0]})",
            ) from None
        raise StoreError(str(path), f"cannot open the store: {text.splitlines()[0]}") from None
    except duckdb.Error as error:
        raise StoreError(str(path), f"cannot open the store: {str(error).splitlines()[0]}") from None


def open_store(path: str | Path = DEFAULT_PATH, *, read_only: bool = False, create: bool = True) -> Store:
    """Open a store, creating it when it is not there (unless `read_only` or not `create`).

    Raises StoreError when it is locked by another process, is no store, or has another layout.
    """
    return Store(path, read_only=read_only, create=create)
