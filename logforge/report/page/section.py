"""What a section of the report is made of: numbers, tables and charts, each with the query that gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from logforge.core import picked

Cell = str | int | float | bool | None
Level = Literal["good", "note", "alarm"]
BARS = 16
"""So many bars at most are drawn; the table beside them has the rest."""


@dataclass(frozen=True)
class Query:
    """A query over the store as anyone can run it (`logforge sql`), and what it gave."""

    key: str
    sql: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def value(self, column: str) -> Any:
        """What its only row holds in a column."""
        [row] = self.rows
        return row[self.columns.index(column)]

    def column(self, name: str) -> list[Any]:
        """A column of all rows."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        """The rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Number:
    """One number. With `column` it is what the query's only row holds there; else `method` says how it follows from its rows."""

    name: str
    label: str
    value: Cell
    query: str
    column: str = ""
    method: str = ""
    low: float | None = None
    high: float | None = None
    percent: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under a header. Without a `method` they are the rows of the query."""

    title: str
    query: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    method: str = ""
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars beside their labels, stacked where there are several series."""

    title: str
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Columns:
    """Upright bars over an axis of numbers or hours, stacked where there are several series. `edges`: one more than bars."""

    title: str
    edges: tuple[str, ...]
    series: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Heat:
    """A matrix whose cells are the darker, the larger their numbers."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


Chart = Bars | Columns | Heat


class Finding(NamedTuple):
    """What the numbers say, in a sentence: `good`, a `note`, or an `alarm` that wants somebody to look."""

    level: Level
    text: str


@dataclass(frozen=True)
class Section:
    """One topic of the report."""

    key: str
    title: str
    about: str
    queries: tuple[Query, ...] = ()
    numbers: tuple[Number, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        """The worst of its findings."""
        levels = {finding.level for finding in self.findings}
        return "alarm" if "alarm" in levels else "note" if "note" in levels else "good"

    def number(self, name: str) -> Any:
        """The value of one of its numbers."""
        return next(item.value for item in self.numbers if item.name == name)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: numbers by name, tables with their rows as objects, queries by key."""
        return {
            **picked(self, "title", "about", "level", "findings"),
            "numbers": {item.name: _number(item) for item in self.numbers},
            "tables": [
                {
                    "title": table.title,
                    "query": table.query,
                    **({"method": table.method} if table.method else {}),
                    "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
                }
                for table in self.tables
            ],
            "queries": {query.key: query.sql for query in self.queries},
        }


def _number(item: Number) -> dict[str, Any]:
    found = asdict(item)
    return {key: value for key, value in found.items() if key in ("label", "value", "query") or value}


def numbers_of(query: Query, labels: Mapping[str, str], percent: Sequence[str] = ()) -> tuple[Number, ...]:
    """Numbers from a query of one row, by its columns."""
    return tuple(
        Number(column, label, query.value(column), query.key, column, percent=column in percent)
        for column, label in labels.items()
    )


def table_of(query: Query, title: str, note: str = "") -> Table:
    """The rows of a query as a table."""
    return Table(title, query.key, query.columns, query.rows, note=note)


def stacked(query: Query, label: str, series: Sequence[str], title: str) -> Bars:
    """A bar for each of the first rows of a query, from some of its columns."""
    labels = tuple(str(item) if item is not None else "—" for item in query.column(label)[:BARS])
    return Bars(
        title, labels, {name: tuple(float(v or 0) for v in query.column(name)[:BARS]) for name in series}
    )


def plain(value: Any) -> Cell:
    """A value of DuckDB as one of JSON; numbers to ten digits, for sums of floats depend on the order they are added in."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join("—" if item is None else str(item) for item in value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ") if hasattr(value, "hour") else value.isoformat())
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return float(f"{number:.10g}")
