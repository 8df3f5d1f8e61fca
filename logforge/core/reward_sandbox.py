"""The engine that expressions of a spec run in: its own, in memory, without access to files or network."""

from __future__ import annotations

import duckdb


def sandbox() -> duckdb.DuckDBPyConnection:
    """A locked engine. The lock is instance-wide, so it never is the store's."""
    con = duckdb.connect()
    con.execute("SET error_on_division_by_zero = false")
    con.execute("SET enable_external_access = false; SET lock_configuration = true")
    return con


def first_line(error: duckdb.Error) -> str:
    """What the engine says, in one line."""
    return str(error).splitlines()[0].strip()
