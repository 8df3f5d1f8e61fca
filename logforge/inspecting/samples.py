"""The first documents of a file: enough to tell its shape, and no more than fit in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from logforge.connectors.records import Head, Source, columns_of, look, open_database, plain, plain_rows
from logforge.schemas import Reject

MOST_RECORDS = 2000
MOST_BYTES = 4 << 20
"""Of the documents together, as JSON; the first is taken whatever its size."""


@dataclass(frozen=True)
class Sample:
    """The first documents of a file. Of a database there is one: its tables, each with its first rows."""

    path: Path
    label: str
    head: Head
    documents: tuple[Any, ...]
    unread: int
    """Records among them that cannot be read."""
    is_all: bool

    @property
    def kind(self) -> str:
        """What the file is, in a word or two."""
        kinds = {"parquet": "Parquet rows", "arrow": "Arrow rows", "sqlite": "a SQLite database"}
        if self.head.container in kinds:
            return kinds[self.head.container]
        if self.head.container == "text":
            return "CSV rows"
        if self.head.container == "array":
            return "a JSON array"
        return "JSON lines" if len(self.documents) > 1 else "a JSON document"


def take_sample(path: Path, label: str) -> Sample:
    """The first documents of a file that may be a log."""
    head = look(path)
    documents: list[Any] = []
    size = unread = 0
    rows = _database(path, label) if head.container == "sqlite" else _rows(path, label, head)
    is_all = True
    for row in rows:
        if isinstance(row, Reject):
            unread += 1
            continue
        documents.append(row)
        size += len(json.dumps(row, default=str))
        if len(documents) >= MOST_RECORDS or size >= MOST_BYTES:
            is_all = next(rows, None) is None
            break
    return Sample(path, label, head, tuple(documents), unread, is_all)


def _rows(path: Path, label: str, head: Head) -> Iterator[Any]:
    if head.container in ("empty", "zip", "binary"):
        return
    for _, row in plain_rows(Source(path, label), *sorted(columns_of(head))):
        yield row


def _database(path: Path, label: str) -> Iterator[Any]:
    with open_database(Source(path, label)) as database:
        if isinstance(database, Reject):
            yield database
            return
        yield {
            table: [
                plain(row)
                for _, row in islice(database.rows(table), MOST_RECORDS)
                if not isinstance(row, Reject)
            ]
            for table in database.tables
        }
