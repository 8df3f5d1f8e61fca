"""Episodes as tables and back: the columns of schemas/tables.py as Arrow, the form in which rows travel in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pyarrow as pa
from msgspec.structs import astuple

from logforge.schemas import EPISODES, MESSAGES, STEPS, Episode, Message, Step, Table

_ARROW: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UBIGINT": pa.uint64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us"),
    "BLOB": pa.binary(),
    "VARCHAR[]": pa.list_(pa.string()),
    "BOOLEAN[]": pa.list_(pa.bool_()),
    "MAP(VARCHAR, DOUBLE)": pa.map_(pa.string(), pa.float64()),
    "MAP(VARCHAR,UBIGINT)": pa.map_(pa.string(), pa.uint64()),
}
POLARS_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "VARCHAR": pl.String,
    "INTEGER": pl.Int32,
    "BIGINT": pl.Int64,
    "DOUBLE": pl.Float64,
    "BOOLEAN": pl.Boolean,
    "BOOLEAN[]": pl.List(pl.Boolean),
    "MAP(VARCHAR, DOUBLE)": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64})),
}
"""The polars type of each DuckDB type in schemas.tables.TRANSITIONS; a map is a list of key and value."""


class Tables(NamedTuple):
    """Episodes, messages and steps as Arrow tables with the store's columns."""

    episodes: pa.Table
    messages: pa.Table
    steps: pa.Table


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of one of the store's tables."""
    return pa.schema([(column.name, _ARROW[column.type]) for column in table.columns])


def rows_table(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """An Arrow table with the store's columns from row dicts (absent keys become null)."""
    return pa.Table.from_pylist(rows, schema=arrow_schema(table))


def tables_of(episodes: Iterable[Episode], source_ids: Sequence[str] | str = "") -> Tables:
    """The tables of some episodes, in their order. `source_ids` names the source of each, or the one of all."""
    episodes = list(episodes)
    messages = [message for episode in episodes for message in episode.messages]
    steps = [step for episode in episodes for step in episode.steps]
    sources = [source_ids] * len(episodes) if isinstance(source_ids, str) else source_ids
    return Tables(
        _table(EPISODES, Episode, episodes, {"source_id": sources}),
        _table(
            MESSAGES, Message, messages, {"episode_id": [e.episode_id for e in episodes for _ in e.messages]}
        ),
        _table(STEPS, Step, steps, {"episode_id": [e.episode_id for e in episodes for _ in e.steps]}),
    )


def _table(
    table: Table, kind: type[msgspec.Struct], items: Sequence[Any], given: dict[str, Sequence[str]]
) -> pa.Table:
    """Structs of one kind as a table. Turning whole rows round costs a fifth of asking each item for each field."""
    schema = arrow_schema(table)
    turned: Iterable[Sequence[Any]] = zip(*map(astuple, items), strict=True) if items else repeat(())
    columns = {**dict(zip(kind.__struct_fields__, turned, strict=False)), **given}
    return pa.Table.from_arrays([pa.array(columns[f.name], type=f.type) for f in schema], schema=schema)


def concat(parts: list[Tables]) -> Tables:
    """Several tables as one."""
    return Tables(*(pa.concat_tables(list(column)) for column in zip(*parts, strict=True)))


def episodes_of(tables: Tables) -> Iterator[Episode]:
    """The episodes that some tables hold, in the order of `tables.episodes`. Messages and steps come ordered."""
    messages = _grouped(tables.messages, Message, "position")
    steps = _grouped(tables.steps, Step, "step")
    names = [name for name in tables.episodes.column_names if name not in ("source_id",)]
    rows = _plain(tables.episodes.select(names))
    for row in rows:
        identifier = row["episode_id"]
        yield Episode(messages=messages.get(identifier, []), steps=steps.get(identifier, []), **row)


def _grouped(table: pa.Table, kind: type[Any], order: str) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for row in _plain(table.sort_by([("episode_id", "ascending"), (order, "ascending")])):
        groups.setdefault(row.pop("episode_id"), []).append(kind(**row))
    return groups


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, timestamps as microseconds since 1970."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    rows: list[dict[str, Any]] = pa.Table.from_arrays(columns, names=table.column_names).to_pylist()
    return rows
