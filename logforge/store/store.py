"""The store: one DuckDB file with the tables of schemas/tables.py. The one module that opens it."""

from __future__ import annotations

import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import polars as pl
import pyarrow as pa

from logforge.core import Tables, episodes_of, not_on_windows, sync
from logforge.schemas import LONG_TEXTS, TABLES, Column, Episode, StoreError, UnknownName, UsageError
from logforge.store.block_journal import Hold, hold, journal_of, locked, refuse_unknown_layout, release
from logforge.store.checkpoint import CHECKPOINT_BYTES, checkpoint, checkpoint_when_due, log_bytes
from logforge.store.files import remove, remove_spilled, target_of

DEFAULT_PATH = "logforge.duckdb"
VERSION = 7
"""Of the tables' layout; a store of another version is refused."""

_BATCH_EPISODES = 512
_UNFRAMED = re.compile(r"\b(?:INTERVAL|BIT|UNION)\b|TIME WITH TIME ZONE")
_FOREIGN = "this DuckDB file is no logforge store"
_ELSEWHERE = "name another file with --store"
_HOLDER = re.compile(r"\(PID (\d+)\)")
_RETRY_S = 0.1
_MENDING_S = 1
_LATER = "try again when it is done, or wait for it with --wait SECONDS, where the command's --help lists it"
_MEMORY = "free some memory and run it again: what was stored before is whole"
_DISK = "free some disk space and run it again: what was stored before is whole"
_DAMAGE = "Corrupt (?:database|WAL) file"
_SYSTEM = (
    ("No space left|File too large|Disk quota", "disk_full", _DISK),
    (
        "Read-only file system|Permission denied",
        "store_not_writable",
        "name a place that you may write to with --store",
    ),
    (
        _DAMAGE,
        "store_damaged",
        "a disk or a copy changed its file: put a backup in its place, or ingest the logs into another one with --store",
    ),
    ("not a valid DuckDB database file", "not_a_store", _ELSEWHERE),
    ("No such file or directory", "no_folder", "make its folder first, or name another place with --store"),
)
"""An error of the system by its words (DuckDB gives no number): our name for it, and what to do."""


class Store:
    """An open store. Use as a context manager; `con` is the DuckDB connection."""

    def __init__(
        self,
        path: str | Path = DEFAULT_PATH,
        *,
        read_only: bool = False,
        create: bool = True,
        wait: float = 0,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        self.path = target_of(Path(path))
        self.checkpoint_bytes = CHECKPOINT_BYTES
        self._read_only = read_only
        self._holds = ExitStack()
        self._release = weakref.finalize(self, self._holds.close)
        if str(path).startswith(":"):
            raise StoreError(str(path), "a store is a file", "name one with --store")
        if sys.platform == "win32" and not read_only:
            raise not_on_windows(self.path, "changing a store")
        if (read_only or not create) and not self.path.exists():
            raise StoreError(
                str(self.path), "there is no store here", "run `logforge ingest LOGS` first", rule="no_store"
            )
        if not self.path.exists():
            _make(self.path)
        self._connect(wait, waiting)
        try:
            if not read_only:
                with writing(self.path):
                    remove_spilled(self.path)
                    _lay_out(self.con, self.path)
            self._check_version()
            if not read_only:
                refuse_unknown_layout(self.path, self._held)
        except BaseException:
            self._let_go()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, duckdb.Error) and re.search(_DAMAGE, str(error)):
            raise _failed(self.path, "cannot be read", error) from error

    def close(self) -> None:
        """Close the connection. What cannot be written into the file stays in the log of changes beside it."""
        try:
            if not self._read_only and log_bytes(self.path):
                with suppress(duckdb.Error, StoreError):
                    self.checkpoint()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.con.close()
        self._release()

    def _connect(self, wait: float = 0, waiting: Callable[[str], None] | None = None) -> None:
        self.con, self._held = _connect(self.path, self._read_only, wait, waiting)
        self._holds.callback(release, self._held)

    def _check_version(self) -> None:
        try:
            found = self.con.sql("SELECT version FROM store_version").fetchall()
        except duckdb.CatalogException:
            raise StoreError(str(self.path), _FOREIGN, _ELSEWHERE, rule="not_a_store") from None
        if found != [(VERSION,)]:
            raise StoreError(
                str(self.path),
                f"the store has layout {found[0][0] if found else 'unknown'}, this logforge reads {VERSION}",
                "ingest the logs again into a new store",
                rule="store_layout",
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. A full disk is reported as StoreError and leaves the store as it was, or with all of it when the
        disk is full only for the checkpoint that may follow."""
        with writing(self.path):
            self.con.execute("BEGIN")
            try:
                yield
                self.con.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        with self._writing():
            checkpoint_when_due(self.con, self.path, self.checkpoint_bytes)

    @contextmanager
    def settings(self, checkpoint_bytes: int | None = None, /, **values: str) -> Iterator[None]:
        """DuckDB's settings, and ours of checkpoints, as given in here and as they were after."""
        every = self.checkpoint_bytes
        before = {name: self._setting(name) for name in values}
        try:
            self.checkpoint_bytes = every if checkpoint_bytes is None else checkpoint_bytes
            self._set(values)
            yield
        finally:
            with suppress(
                duckdb.FatalException
            ):  # after a full disk no statement runs any more; its own error is told
                self._set(before)
            self.checkpoint_bytes = every

    def _setting(self, name: str) -> str:
        ((value,),) = self.con.execute("SELECT current_setting(?)", [name]).fetchall()
        return str(value)

    def _set(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            self.con.execute(f"SET {name} = '{value}'")

    def checkpoint(self) -> None:
        """Write what was committed into the file itself, so that no log of changes is left beside it."""
        with self._writing():
            checkpoint(self.path, self.con)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with writing(self.path):
                yield
        except OSError as error:
            raise _failed(self.path, "cannot write", error) from error

    def rewrite(self, *last: str) -> None:
        """Copy what the tables hold into a fresh file, run the statements `last` on it (its catalog is `fresh`), and put it
        in this file's place: a deleted row leaves bytes in the pages of a file, none in a copy.

        Whoever looks, after any crash, finds the old file or the new one.
        """
        fresh = self.path.with_name(f".{self.path.name}.fresh")
        remove(fresh)
        self.checkpoint()
        try:
            with writing(self.path):
                ((name,),) = self.con.sql("SELECT current_database()").fetchall()
                self.con.execute(f"ATTACH {_quoted(str(fresh), chr(39))} AS fresh")
                self.con.execute(f"COPY FROM DATABASE {_quoted(name)} TO fresh")
                for statement in (*last, "CHECKPOINT fresh", "DETACH fresh"):
                    self.con.execute(statement)
            self._replace_by(fresh)
        except OSError as error:
            raise _failed(self.path, "cannot write", error) from error
        finally:
            remove(fresh)

    def _replace_by(self, fresh: Path) -> None:
        """Close the file, put another in its place and open that."""
        before = self.path.stat()
        self.con.close()
        # The lock of DuckDB went with its handle. Ours keeps other processes out of the old file until we are done with
        # the store: one that opened it before the swap would write into a file that has no name any more.
        if not locked(self._held.handle) or self.path.stat().st_mtime_ns != before.st_mtime_ns:
            raise StoreError(str(self.path), "another process took the store", _LATER, rule="store_locked")
        remove(self.path.with_name(self.path.name + ".tmp"))  # what a killed process had spilled
        sync(fresh)
        fresh.replace(self.path)
        sync(self.path.parent)
        self._connect()

    def _roll_back(self) -> None:
        with suppress(duckdb.Error):  # the failure may have ended the transaction already
            self.con.execute("ROLLBACK")

    def insert(self, table: str, rows: pa.Table | pl.DataFrame) -> None:
        """Append rows; columns are matched by name. Lists of (key, value) become maps where the table has maps."""
        if not len(rows):
            return
        # A local name, found by DuckDB's replacement scan: a registered table would be held until the commit.
        incoming = rows.to_arrow() if isinstance(rows, pl.DataFrame) else rows
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
            if re.search(_DAMAGE, str(error)):
                raise _failed(self.path, "cannot be read", error) from error
            remedy = "docs/tables.md lists the tables and their columns"
            raise UsageError(f"the query failed: {error}", remedy, rule="wrong_query") from None

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


def _quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, 2 * mark) + mark


def _shown(name: str, kind: str) -> str:
    quoted = _quoted(name)
    if kind == "BLOB":
        return f"hex({quoted}) AS {quoted}"
    return quoted if not _UNFRAMED.search(kind) else f"{quoted}::VARCHAR AS {quoted}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever fails in here because the disk or the memory is full becomes a StoreError that says what to do."""
    try:
        yield
    except (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException) as error:
        raise _failed(path, "cannot write", error) from error
    except duckdb.OutOfMemoryException as error:
        reason = f"not enough memory: {_first_line(error)}"
        raise StoreError(str(path), reason, _MEMORY, rule="out_of_memory") from error


def _failed(path: Path, what: str, error: BaseException) -> StoreError:
    text = f"{what}: {_first_line(error).replace(str(_fresh(path)), str(path))}"
    for words, rule, remedy in _SYSTEM:
        if re.search(words, str(error)):
            return StoreError(str(path), text, remedy, rule=rule)
    return StoreError(str(path), text, StoreError.usual_remedy)


def _fresh(path: Path) -> Path:
    """Where a store is made before it stands at its path."""
    return path.with_name(f".{path.name}.{os.getpid()}.new")


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


def _lay_out(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Make the tables in an empty file. A DuckDB file of somebody else's is left as it is."""
    rows = con.sql("SELECT table_name FROM information_schema.tables").fetchall()
    if "store_version" in {row[0] for row in rows}:
        return
    if rows:
        raise StoreError(str(path), _FOREIGN, _ELSEWHERE, rule="not_a_store")
    con.execute("BEGIN")
    con.execute("CREATE TABLE store_version (version INTEGER)")
    for table in TABLES.values():
        con.execute(f"CREATE TABLE {table.name} ({', '.join(map(_definition, table.columns))})")
    con.execute(
        "CREATE VIEW transitions_latest AS SELECT * FROM transitions WHERE dataset = "
        "(SELECT dataset FROM datasets ORDER BY created_at DESC, dataset LIMIT 1)"
    )
    con.execute("INSERT INTO store_version VALUES (?)", [VERSION])
    con.execute("COMMIT")


def _definition(column: Column) -> str:
    return f'"{column.name}" {column.type}' + (" USING COMPRESSION zstd" if column.name in LONG_TEXTS else "")


def _make(path: Path) -> None:
    """Put an empty store at a path in one act: half a header, left by a kill or a full disk, could never be opened."""
    fresh = _fresh(path)
    try:
        with writing(path), duckdb.connect(str(fresh)) as con:
            _lay_out(con, path)
        with suppress(FileExistsError):  # another process was first: its store is as good
            os.link(fresh, path)
    except OSError as error:
        raise _failed(path, "cannot be made", error) from error
    finally:
        with suppress(OSError):
            remove(fresh)


def _connect(
    path: Path, read_only: bool, wait: float, waiting: Callable[[str], None] | None
) -> tuple[duckdb.DuckDBPyConnection, Hold]:
    """Open the file, trying again for `wait` seconds while another process has it."""
    # Whoever comes first after a kill mends the file, and has it alone for a moment.
    end = time.monotonic() + max(wait, _MENDING_S if journal_of(path).exists() else _RETRY_S)
    while True:
        try:
            opened = _opened(path, read_only)
            if opened:
                return opened
        except (duckdb.Error, OSError) as error:
            if "Could not set lock" not in str(error):
                raise _failed(path, "cannot open the store", error) from None
            holder = _HOLDER.search(str(error))
            who = f"another process{f' (pid {holder[1]})' if holder else ''} has the store open"
            if time.monotonic() >= end:
                raise StoreError(str(path), who, _LATER, rule="store_locked") from None
            if waiting and wait:
                waiting(f"{path}: {who}; waiting for up to {wait:g} s")
                waiting = None
        time.sleep(_RETRY_S)


def _opened(path: Path, read_only: bool) -> tuple[duckdb.DuckDBPyConnection, Hold] | None:
    """None where another file was put in its place meanwhile."""
    with ExitStack() as undo:
        held = hold(path)
        undo.callback(release, held)
        con = undo.enter_context(duckdb.connect(str(path), read_only=read_only))
        if not read_only:
            con.execute("PRAGMA disable_checkpoint_on_shutdown")
            con.execute("SET checkpoint_threshold = '1000TB'")  # never by itself
        if not held.of(path):
            return None
        undo.pop_all()
    return con, held


def open_store(
    path: str | Path = DEFAULT_PATH,
    *,
    read_only: bool = False,
    create: bool = True,
    wait: float = 0,
    waiting: Callable[[str], None] | None = None,
) -> Store:
    """Open a store, creating it when it is not there (unless `read_only` or not `create`).

    While another process has it open, tries again for `wait` seconds, and tells `waiting` so once. Raises StoreError when
    it is still locked then, is no store, or has another layout.
    """
    return Store(path, read_only=read_only, create=create, wait=wait, waiting=waiting)


def dataset_named(store: Store, given: str) -> str:
    """The name of a dataset of the store, which may be given by its folder. Raises UnknownName when the store holds none."""
    rows = store.con.sql("SELECT dataset, path FROM datasets ORDER BY 1").fetchall()
    folders: dict[str, str | None] = dict(rows)
    if given in folders:
        return given
    home, wanted = store.path.resolve().parent, Path(given).resolve()
    found = next((name for name, path in folders.items() if path and (home / path).resolve() == wanted), None)
    if found is None:
        raise UnknownName("dataset", given, list(folders))
    return found
