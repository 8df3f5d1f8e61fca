"""How many records a file of a format holds, counted without its connector."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from logforge.connectors.detection import detect
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Reject
from logforge.testing.kit import count_json_records

LISTS = {"claude_code": "loglines", "inspect_json": "samples", "tau2_bench": "simulations"}
"""Formats whose records are the elements of a list in the document."""
KEYED = ("intercode", "intercode_human", "tooleval")
"""Formats whose documents are objects of records by their id."""
ROWS = {"openai_agents": "agent_messages", "langgraph_checkpoints": "checkpoints", "goose": "messages"}
"""Formats whose records are the rows of a table; a database without any is one record."""
BEGINS = {
    "aider": (b"# aider chat started at ",),
    "react_text": (b"Question:", b"Entering new AgentExecutor"),
    "reflexion_text": (b"Question:",),
}
"""Formats in plain text, with what a record begins with."""


def count_records(name: str) -> Callable[[Path], int]:
    """A count for the files of a format."""
    if name == "inspect_eval":
        return _samples
    if name == "cursor":
        return _cursor_conversations
    if name in ROWS:
        return lambda path: _rows_or_records(path, ROWS[name], int(name != "goose"))
    if name == "opencode":
        return _opencode_sessions
    if name in BEGINS:
        return lambda path: _beginnings(path, BEGINS[name])
    if name in KEYED or name in LISTS or name in ("har", "mlflow", "otlp"):
        return lambda path: sum(_records_in(row, name) for _, row in Source(path, "").records())
    return count_json_records


def records_of(path: Path) -> int:
    """The records of a file, counted as the format that claims it does."""
    return count_records(detect(path)[0].connector.name)(path)


def rows_of(path: Path, query: str) -> int | None:
    """What a query counts; None where the file is no database that it fits."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute(query).fetchone()[0])
        except (sqlite3.Error, UnicodeDecodeError):
            return None


def _rows_or_records(path: Path, table: str, least: int = 0) -> int:
    """Rows of a database's table; of a file that is none, its JSON records. One that only reads databases refuses any other as one."""
    stored = path.read_bytes().startswith(b"SQLite format 3")
    return (
        (rows_of(path, f"SELECT count(*) FROM {table}") or 1) if stored else count_json_records(path) or least
    )


def _cursor_conversations(path: Path) -> int:
    """Conversations, and bubbles of none; a file without either is one record."""
    found = rows_of(path, "SELECT count(*) FROM cursorDiskKV WHERE key LIKE 'composerData:%'")
    alone = rows_of(
        path,
        """SELECT count(*) FROM cursorDiskKV b WHERE b.key LIKE 'bubbleId:%' AND NOT EXISTS (
        SELECT 1 FROM cursorDiskKV c WHERE c.value IS NOT NULL AND c.key LIKE 'composerData:%'
        AND b.key LIKE 'bubbleId:' || substr(c.key, 14) || ':%')""",
    )
    return ((found or 0) + (alone or 0)) or 1


def _opencode_sessions(path: Path) -> int:
    found = rows_of(path, "SELECT count(*) FROM session")
    return count_json_records(path) if found is None and not is_database(path) else found or 1


def is_database(path: Path) -> bool:
    return path.read_bytes().startswith(b"SQLite")


def _samples(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(name.startswith("samples/") for name in archive.namelist())


def _beginnings(path: Path, marks: tuple[bytes, ...]) -> int:
    return sum(any(mark in line for mark in marks) for line in path.read_bytes().split(b"\n"))


def _records_in(row: Any, name: str) -> int:
    """A document without its list, or with an empty one, is one record."""
    if isinstance(row, Reject) or not isinstance(row, dict):
        return 1
    if name == "otlp":
        return _spans(row)
    if name == "har":
        return len(_first(row.get("log"), "entries")) or 1
    if name == "mlflow":
        return len(_first(row.get("data", row), "spans")) or 1
    if name in KEYED:
        return len(row) or 1
    listed = row.get(LISTS[name])
    if name == "claude_code":
        return len(listed) if isinstance(listed, list) and "type" not in row else 1
    return len(listed) or 1 if isinstance(listed, list) else 1


def _spans(row: dict[str, Any]) -> int:
    if logs := _first(row, "resourceLogs"):
        scopes = [scope for batch in logs for scope in _first(batch, "scopeLogs")]
        return sum(len(_first(scope, "logRecords")) for scope in scopes) or 1
    batches = row.get("resourceSpans", row.get("resource_spans"))
    if not isinstance(batches, list):
        return 1
    scopes = [scope for batch in batches for scope in _first(batch, "scopeSpans", "scope_spans")]
    return sum(len(_first(scope, "spans")) for scope in scopes) or 1


def _first(value: Any, *names: str) -> list[Any]:
    found = [value[name] for name in names if isinstance(value, dict) and isinstance(value.get(name), list)]
    return found[0] if found else []
