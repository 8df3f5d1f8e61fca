"""Checkpoints of a store: what was committed goes from the log of changes beside the file into the file itself.

They are all made here. DuckDB's automatic ones are off (store.py), for they write over blocks that nobody saved (block_journal.py).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb

from logforge.store.block_journal import saved_blocks

CHECKPOINT_BYTES = 16 << 20
"""The size of the log of changes from which on a commit is followed by a checkpoint."""
_FILE = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"


def log_of(path: Path) -> Path:
    """Where DuckDB writes what was committed."""
    return path.with_name(f"{path.name}.wal")


def log_bytes(path: Path) -> int:
    """The size of what was committed and is not yet in the file itself."""
    with suppress(FileNotFoundError):
        return log_of(path).stat().st_size
    return 0


def checkpoint(path: Path, con: duckdb.DuckDBPyConnection) -> None:
    """Make one. Raises OSError or duckdb.Error: then what was committed stays in the log of changes."""
    # On a connection of its own: one within a transaction is refused, and would abort that.
    with con.cursor() as apart, saved_blocks(path, apart):
        apart.execute("CHECKPOINT")


def checkpoint_when_due(
    con: duckdb.DuckDBPyConnection, path: Path | None = None, every: int = CHECKPOINT_BYTES
) -> None:
    """Make one when the log of changes has grown beyond a size, after a commit. `path` is that of the connection's store.

    While somebody else in this process changes the store, it is put off. A database in memory has none. Raises like `checkpoint`.
    """
    if path is None:
        ((name,),) = con.sql(_FILE).fetchall()
        if name is None:
            return
        path = Path(name)
    if log_bytes(path) > every:
        with suppress(duckdb.TransactionException):
            checkpoint(path, con)
