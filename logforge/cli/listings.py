"""What the listing commands print: small reports over the store, each as data, JSON and text.

`logforge sql` loads this module, so what the other commands need is imported by them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from logforge.core import BaseReport, Lines, table
from logforge.schemas import UsageError
from logforge.store import Store, dataset_named

if TYPE_CHECKING:
    from logforge.dataset.conflicts import ConflictView, Narrowed


@dataclass(frozen=True)
class Listing(BaseReport):
    """Rows of a query or a list."""

    frame: pl.DataFrame
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: column names and one object per row."""
        rows = json.loads(self.frame.write_json()) if self.frame.width else []
        return {"columns": self.frame.columns, "rows": rows}

    def lines(self) -> Lines:
        """An aligned table."""
        yield table(self.frame.columns, [[_plain(value) for value in row] for row in self.frame.iter_rows()])
        yield self.note or None

    def csv(self) -> str:
        """For other programs; nested values as JSON text."""
        flat = [
            pl.Series(
                s.name,
                [None if v is None else json.dumps(_plain(v), default=str) for v in s.to_list()],
                dtype=pl.String,
            )
            if s.dtype.is_nested()
            else s
            for s in self.frame.get_columns()
        ]
        return pl.DataFrame(flat).write_csv()


def _plain(value: object) -> object:
    """Maps come from DuckDB as lists of key and value."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and set(value[0]) == {"key", "value"}:
        return {item["key"]: item["value"] for item in value}
    return value


@dataclass(frozen=True)
class Text(BaseReport):
    """A text with its data."""

    text: str
    data: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return self.data

    def lines(self) -> Lines:
        """The text."""
        yield self.text


def run_query(store: Store, query: str) -> Listing:
    """The rows of a user's query, which can read and write no file. Raises UsageError with the engine's message when it is wrong."""
    if not query.strip():
        raise UsageError("the query is empty", "for example: SELECT * FROM sources", rule="wrong_query")
    store.con.execute("SET enable_external_access = false")
    return Listing(store.sql(query))


def compiled(spec_path: str) -> Text:
    """The query of a reward spec."""
    from logforge.rewards import load_spec
    from logforge.rewards.sql import compile_query

    spec = load_spec(spec_path)
    query = compile_query(spec)
    return Text(query, {"spec": spec_path, "hash": spec.hash, "query": query})


@dataclass(frozen=True)
class Conflicts(BaseReport):
    """Conflicts with both sides, and how many there are in all."""

    views: Sequence[ConflictView]
    total: int

    def as_dict(self) -> dict[str, Any]:
        """How many there are, and those that are shown."""
        return {"total": self.total, "conflicts": [asdict(view) for view in self.views]}

    def lines(self) -> Lines:
        """Each after the other, and how many of all they are."""
        if not self.views:
            yield "no conflicts"
            return
        from logforge.dataset.conflicts import render

        yield from (f"{render(view)}\n" for view in self.views)
        yield f"{len(self.views)} of {self.total} conflicts shown"


def conflict_views(store: Store, dataset: str, only: Narrowed, limit: int) -> Conflicts:
    """A dataset's conflicts. Raises UnknownName for a dataset that is not in the store."""
    from logforge.dataset.conflicts import count, sides

    name = dataset_named(store, dataset)
    return Conflicts(sides(store.con, name, only, limit), count(store.con, name, only))


def known_formats() -> Listing:
    """Every connector with what it reads and what its logs may fill. A third-party one may leave `fills` out."""
    from logforge.connectors import detection as connectors

    rows = [
        (name, " ".join(getattr(item, "fills", ())) or None, item.record, item.version, _first_line(item))
        for name, item in connectors.registry().items()
    ]
    schema = ["format", "fills", "record", "version", "reads"]
    return Listing(
        pl.DataFrame(rows, schema=dict.fromkeys(schema, pl.String) | {"version": pl.Int64}, orient="row")
    )


def _first_line(connector: object) -> str:
    return (type(connector).__doc__ or "").split("\n")[0]
