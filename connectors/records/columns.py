"""Rows of files that hold columns: Parquet, and Arrow's own files and streams (`.arrow`, as the Hub's `datasets` keeps them).

Rows are read a few megabytes at a time, whatever the size of a row group. Locators: `label#/ROW`, from 0.

A column of objects has one type, so each object has the keys of all of them, and null where it lacked them. `json_rows` takes
these keys out again: a key that is null is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from logforge.connectors.records.json import canonical
from logforge.connectors.records.rejects import too_long
from logforge.schemas import Reject

PARQUET = b"PAR1"
"""How a Parquet file begins and ends."""
_ARROW = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"
"""How an Arrow stream begins: the mark before the length of a message."""
_BATCH = 4096
_FEW = 16
_HELD = 8 << 20
"""Bytes of a batch, about."""
_DEPTH = 20


class _Opened(NamedTuple):
    """A file's schema and its record batches."""

    schema: Any
    batches: Iterator[Any]


def holds_columns(start: bytes) -> bool:
    """True for the first bytes of a Parquet file, an Arrow file or an Arrow stream."""
    return start.startswith((PARQUET, _ARROW, _STREAM))


def column_rows(path: Path, label: str, limit: float = math.inf) -> Iterator[tuple[str, Any | Reject]]:
    """Locator and row of each row, as Python has it; from where the file is damaged on a Reject.

    A row of more than `limit` bytes is set aside.
    """
    number = 0
    try:
        with _opened(path) as (_, batches):
            for batch in batches:
                sizes = (
                    [batch.slice(i, 1).nbytes for i in range(batch.num_rows)] if batch.nbytes > limit else []
                )
                for index, row in enumerate(_rows_of(batch)):
                    where = f"{label}#/{number}"
                    size = sizes[index] if sizes else 0
                    yield where, too_long(where, "element", size, int(limit), b"") if size > limit else row
                    number += 1
    except _faults() as error:
        where = f"{label}#/{number}"
        yield where, _damaged(path, where, error)


def json_rows(path: Path, label: str, limit: float = math.inf) -> Iterator[tuple[str, Any | Reject]]:
    """The rows as JSON would hold them, without the keys that are null."""
    for where, row in column_rows(path, label, limit):
        yield where, row if isinstance(row, Reject) else unpadded(plain(row))


def first_row(path: Path, limit: int) -> bytes:
    """The first row as JSON text; empty when there is none, or when it is longer than that."""
    for _, row in json_rows(path, "", limit):
        return b"" if isinstance(row, Reject) else canonical(row).encode("utf-8", "replace")
    return b""


def column_keys(path: Path) -> dict[str, set[str]]:
    """The columns under "", and the keys of objects in them by their path, as Head.keys has them."""
    found: dict[str, set[str]] = {}
    try:
        with _opened(path) as (schema, _):
            _add_keys(found, "", [(field.name, field.type) for field in schema], 0)
    except _faults():
        pass
    return found


def _add_keys(found: dict[str, set[str]], path: str, fields: list[tuple[str, Any]], depth: int) -> None:
    import pyarrow.types as types

    found.setdefault(path, set()).update(name for name, _ in fields)
    for name, kind in fields:
        while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type
        if types.is_struct(kind) and depth < _DEPTH:
            inner = [(kind.field(i).name, kind.field(i).type) for i in range(kind.num_fields)]
            _add_keys(found, f"{path}.{name}" if path else name, inner, depth + 1)


@contextmanager
def _opened(path: Path) -> Iterator[_Opened]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        start = file.read(len(_ARROW))
    if start.startswith(PARQUET):
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as parquet:
            # What the file says of its size is that of texts told once, however often they come; so a few are looked at.
            size = sum(parquet.metadata.row_group(i).total_byte_size for i in range(parquet.num_row_groups))
            few = next(parquet.iter_batches(_FEW, use_threads=False), None)
            each = max(size // max(1, parquet.metadata.num_rows), _row_bytes(few) if few else 0)
            yield _Opened(
                parquet.schema_arrow, _pieces(parquet.iter_batches(_rows_held(each), use_threads=False))
            )
        return
    with pa.memory_map(str(path)) as mapped:
        if start.startswith(_ARROW):
            reader = pa.ipc.open_file(mapped)
            whole = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(mapped)
            whole = iter(reader)
        yield _Opened(reader.schema, _pieces(whole))


def _pieces(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, cut so that none is turned into too many Python values at once."""
    for batch in batches:
        size = _rows_held(_row_bytes(batch))
        for begin in range(0, batch.num_rows, size):
            yield batch.slice(begin, size)


def _row_bytes(batch: Any) -> int:
    return int(batch.nbytes / max(1, batch.num_rows))


def _rows_held(each: int) -> int:
    return max(1, min(_BATCH, _HELD // max(1, each)))


def _faults() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return pa.ArrowException, OSError, ValueError


def _damaged(path: Path, where: str, error: Exception) -> Reject:
    with path.open("rb") as file:
        kind = "Parquet" if file.read(len(PARQUET)) == PARQUET else "Arrow"
    return Reject(
        locator=where,
        reason=f"not readable as {kind} from this row on (cut off or damaged)",
        rule="malformed_record",
        detail=str(error)[:200],
    )


def _rows_of(batch: Any) -> list[dict[str, Any]]:
    """The rows of a record batch. A value that Python has no room for (a date in the year 300,000) comes as text."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows
    except (OverflowError, ValueError):
        columns = [[_cell(cell) for cell in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cell(cell: Any) -> Any:
    import pyarrow as pa

    for value in (cell.as_py, lambda: cell.cast(pa.string()).as_py()):
        try:
            return value()
        except (OverflowError, ValueError, pa.ArrowException):
            continue
    return f"[{cell.type}]"


def unpadded(value: Any) -> Any:
    """A value without the keys that are null, in all objects of it."""
    if isinstance(value, dict):
        return {key: unpadded(inner) for key, inner in value.items() if inner is not None}
    return [unpadded(item) for item in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """A value of a Parquet column as JSON would hold it; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
        return {str(key): plain(inner) for key, inner in value} if pairs else [plain(item) for item in value]
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value) if value.is_finite() else None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, str | int | bool) else str(value)
