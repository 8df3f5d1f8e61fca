"""Rows of a table as JSON would hold them: times as text, maps as objects, an empty CSV cell as null."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from logforge.connectors.records.base import Source, look
from logforge.connectors.records.table_rows import columns_of, table_rows
from logforge.schemas.episode import Reject


def plain_rows(source: Source, *columns: str) -> Iterator[tuple[str, Any | Reject]]:
    """Locator and plain value of each row of a JSON, CSV or Parquet file; what cannot be read comes as a Reject.

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
