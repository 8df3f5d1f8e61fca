"""Reward specs: from YAML to one DuckDB query, and from the query to each step's reward and its terms.

The query runs in an in-memory engine of its own, locked down, over registered Arrow tables. It is written from parsed
expressions (logforge.expressions), never from the spec's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from logforge import expressions, rewardsql
from logforge.connectors.textfile import read_text
from logforge.expressions import Expression
from logforge.rewardsql import compile_query
from logforge.schemas.errors import LogforgeError, Mismatch, Problem, SpecError
from logforge.schemas.reward import COLUMNS, RewardSpec, Term, faults, line_of
from logforge.schemas.yamltext import parse

__all__ = ["compile_query", "load_spec", "parse_spec", "score"]

if TYPE_CHECKING:
    import polars as pl

    from logforge.frames import Tables

_TYPES = {
    "when": ("boolean",),
    "value": ("tinyint", "smallint", "integer", "bigint", "hugeint", "float", "double", "decimal"),
}


def load_spec(path: str | Path) -> RewardSpec:
    """The reward spec in a YAML file. Raises SpecError, listing every problem with its line."""
    return parse_spec(read_text(path), str(path))


def parse_spec(text: str, path: str = "<text>") -> RewardSpec:
    """The reward spec in a text; `path` is the file its errors name."""
    data, lines = parse(text, path)
    terms = data.get("terms") if isinstance(data, dict) else None
    parsed: dict[str, Expression] = {}
    found = [
        *(Problem(what, path, line_of(lines, field), field) for what, field in faults(data)),
        *_parse_expressions(terms, parsed, path, lines),
    ]
    if found:
        raise SpecError(sorted(found, key=lambda problem: problem.line or 0))
    spec = RewardSpec.model_validate({**data, "terms": _canonical(data["terms"], parsed)}).written_in(
        path, lines
    )
    _check_types(spec)
    return spec


def _parse_expressions(
    terms: object, parsed: dict[str, Expression], path: str, lines: Mapping[str, int]
) -> Iterator[Problem]:
    """Fill `parsed` with the spec's expressions by field; yield what is wrong with the others."""
    for name, term in terms.items() if isinstance(terms, dict) else ():
        for word in ("when", "value") if isinstance(term, dict) else ():
            text, field = term.get(word), f"terms.{name}.{word}"
            if not isinstance(text, str) or not text.strip():
                continue
            try:
                parsed[field] = expressions.parse(text)
            except SpecError as error:
                yield from (Problem(p.what, path, line_of(lines, field), field) for p in error.problems)


def _canonical(terms: Mapping[str, Any], parsed: Mapping[str, Expression]) -> dict[str, Any]:
    return {
        name: {
            word: _canonical_word(entry, parsed.get(f"terms.{name}.{word}")) for word, entry in term.items()
        }
        for name, term in terms.items()
    }


def _canonical_word(entry: Any, expression: Expression | None) -> Any:
    if expression is None:
        return entry
    return expression.text if expression.number is None else expression.number


def _check_types(spec: RewardSpec) -> None:
    """Run each expression on a row of nulls, so that a wrong type or pattern is found before there is any data."""
    row = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in COLUMNS)
    problems = []
    with _sandbox() as con:
        con.execute(f"CREATE TABLE inputs AS SELECT {row}")
        for name, term in spec.terms.items():
            for word, expression in (("when", rewardsql.when(term)), ("value", rewardsql.value(term))):
                what = _type_problem(con, expression, word)
                if what:
                    problems.append(spec.problem(what, f"terms.{name}.{word}"))
    if problems:
        raise SpecError(sorted(problems, key=lambda problem: problem.line or 0))


def _type_problem(con: duckdb.DuckDBPyConnection, expression: Expression, word: str) -> str | None:
    try:
        relation = con.sql(f"SELECT {expression.sql} FROM inputs")
        relation.fetchall()
    except duckdb.Error as error:
        return _first_line(error)
    kind = relation.types[0].id
    wanted = "a truth value" if word == "when" else "a number"
    return None if kind in _TYPES[word] else f"gives {kind.upper()}, must give {wanted}"


def score(spec: RewardSpec, tables: Tables) -> pl.DataFrame:
    """Each step's reward, its terms by name, and why it is null where it is; ordered by episode and step.

    Raises SpecError when a term's expression fails on the data (a cast, an overflow), naming the term and its line.
    """
    try:
        frame = _run(spec, tables)
    except duckdb.Error as error:
        raise _blamed(spec, tables, error) from None
    if frame.height != tables.steps.num_rows:
        raise Mismatch("steps with an episode in the tables", tables.steps.num_rows, frame.height)
    return frame


def _run(spec: RewardSpec, tables: Tables) -> pl.DataFrame:
    with _sandbox() as con:
        con.register("episodes", tables.episodes)
        con.register("steps", tables.steps)
        frame: pl.DataFrame = con.sql(compile_query(spec)).pl()
        return frame


def _sandbox() -> duckdb.DuckDBPyConnection:
    """An engine of its own in memory, without access to files or network. The lock holds for all of it."""
    con = duckdb.connect()
    con.execute("SET error_on_division_by_zero = false")
    con.execute("SET enable_external_access = false; SET lock_configuration = true")
    return con


def _blamed(spec: RewardSpec, tables: Tables, error: duckdb.Error) -> LogforgeError:
    """The engine does not say which term failed: run each condition, then each value, alone."""
    nothing = RewardSpec(gamma=spec.gamma, terms={"nothing": Term(value=0.0)})
    if _failure(nothing, tables):
        return Mismatch("tables to score", "the columns of schemas.tables", _first_line(error))
    for name, term in sorted(spec.terms.items()):
        for word, alone in (("when", term.model_copy(update={"value": 1.0})), ("value", term)):
            found = _failure(spec.model_copy(update={"terms": {name: alone}}), tables)
            if found is not None:
                what = f"fails on the data: {_first_line(found)}"
                return SpecError([spec.problem(what, f"terms.{name}.{word}")])
    raise error


def _failure(spec: RewardSpec, tables: Tables) -> duckdb.Error | None:
    try:
        _run(spec, tables)
    except duckdb.Error as error:
        return error
    return None


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0].strip()
