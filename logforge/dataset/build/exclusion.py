"""Episodes that a build leaves out, or holds out, by a condition: an SQL truth value over the columns of the store's `episodes`.

The condition comes from a person (or from `logforge report`, which names slices by one), so it is held against the same
allow-list as the expressions of reward specs and runs where they run: in an engine without files, statements or the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import duckdb
from sqlglot import exp

from logforge.core import ALLOWED, CASTS, FUNCTIONS, Expression, Language, first_line, parse, sandbox
from logforge.dataset.build.report import LeftOut, excluded_where
from logforge.schemas import EPISODES, Problem, SpecError, UsageError
from logforge.store import Store

COLUMNS = tuple(column for column in EPISODES.columns if not column.type.endswith("[]"))
"""The columns that a condition may read."""
TIMES = "hour, minute, day, month, year, dayofweek, isodow, epoch"
"""The functions of times, besides those of reward expressions. dayofweek counts from 0, a Sunday; isodow from 1, a Monday."""

_KINDS = {"VARCHAR": "text", "JSON": "text", "BOOLEAN": "boolean", "TIMESTAMP": "time"}
_STAMPS = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.DATE)
_PARTS = (
    exp.Hour, exp.Minute, exp.Day, exp.Month, exp.Year, exp.DayOfWeek, exp.DayOfWeekIso, exp.TimeToUnix,
)  # fmt: skip
CONDITIONS = Language(
    columns={column.name: _KINDS.get(column.type, "number") for column in COLUMNS},
    nodes={**ALLOWED, **dict.fromkeys(_PARTS, "number")},
    casts={**CASTS, **dict.fromkeys(_STAMPS, "time")},
    functions=f"{FUNCTIONS}, {TIMES}",
    cast_names="BOOLEAN, INT, BIGINT, DOUBLE, VARCHAR, TIMESTAMP, DATE",
)
"""What a condition may hold."""
EXCLUDE, HOLD_OUT = "--exclude-where", "--hold-out"
"""The options that take conditions."""
_REMEDY = "correct the condition; docs/quality.md tells what it may hold, docs/tables.md lists the columns of `episodes`"


class Condition(NamedTuple):
    """A condition as it was given and to which option, with the expression that runs."""

    text: str
    expression: Expression
    option: str = EXCLUDE

    @property
    def reason(self) -> str:
        """Why an episode that meets it is left out."""
        return excluded_where(self.text)

    @property
    def place(self) -> str:
        """Where it was given."""
        return f"{self.option} {self.text[:200]}"


def read_conditions(texts: Iterable[str], option: str = EXCLUDE) -> list[Condition]:
    """The conditions of some texts. Raises SpecError naming all that is wrong with any of them."""
    found, problems = [], []
    for text in texts:
        try:
            condition = Condition(text, parse(text, (), CONDITIONS), option)
            _try_out(condition)
            found.append(condition)
        except SpecError as error:
            problems += [Problem(problem.what, f"{option} {text[:200]}") for problem in error.problems]
    if problems:
        raise SpecError(problems, _REMEDY)
    return found


def _try_out(condition: Condition) -> None:
    """Run it on no row, so that a wrong type, pattern or time is found before anything is read."""
    with sandbox() as con:
        con.execute(
            f"CREATE TABLE episodes ({', '.join(f'{c.name} {_plain(c.type)}' for c in COLUMNS)}); "
            "INSERT INTO episodes (episode_id) VALUES (NULL)"
        )
        try:
            relation = con.sql(f"SELECT {condition.expression.sql} AS met FROM episodes")
            relation.fetchall()
            kind = relation.types[0].id
        except duckdb.Error as error:
            raise SpecError([Problem(first_line(error))]) from None
    if kind != "boolean":
        raise SpecError([Problem(f"gives {kind.upper()}, must give a truth value")])


def _plain(kind: str) -> str:
    return "VARCHAR" if kind == "JSON" else kind


def excluded(store: Store, conditions: Sequence[Condition]) -> dict[str, LeftOut]:
    """The stored episodes that meet a condition, each with the first one it meets. An unknown truth (NULL) meets nothing.

    Raises SpecError when a condition fails on a value, as a CAST may.
    """
    found: dict[str, LeftOut] = {}
    for condition in conditions:
        for identifier, locator in _meeting(store, condition):
            found.setdefault(identifier, LeftOut("excluded", condition.reason, None, locator))
    return found


def held_out(store: Store, texts: Sequence[str]) -> frozenset[str]:
    """The stored episodes that meet one of the conditions of `--hold-out`.

    Raises UsageError for a condition that none meets (nothing would be measured), SpecError as `excluded` does.
    """
    found = set[str]()
    for condition in read_conditions(texts, HOLD_OUT):
        met = {identifier for identifier, _ in _meeting(store, condition)}
        if not met:
            raise UsageError(
                f"no stored episode meets {condition.place}",
                "correct the condition; `logforge sql` shows the episodes",
            )
        found |= met
    return frozenset(found)


def _cast(name: str) -> str:
    return "::VARCHAR AS metadata" if name == "metadata" else ""


def _meeting(store: Store, condition: Condition) -> list[tuple[str, str]]:
    return [(identifier, locator) for identifier, locator, met in truths(store, condition) if met]


def truths(store: Store, condition: Condition) -> list[tuple[str, str, bool | None]]:
    """Id and locator of every stored episode with what a condition is there: true, false, or null for unknown.

    Raises SpecError when the condition fails on a value.
    """
    names = sorted({"episode_id", "locator", *condition.expression.columns})
    # names of our own columns: the parser knows no others
    episodes = store.arrow(f"SELECT {', '.join(f'{name}{_cast(name)}' for name in names)} FROM episodes")
    with sandbox() as con:
        con.register("episodes", episodes)
        query = f"SELECT episode_id, locator, ({condition.expression.sql}) AS met FROM episodes ORDER BY episode_id"
        try:
            return con.sql(query).fetchall()
        except duckdb.Error as error:
            raise SpecError([Problem(first_line(error), condition.place)], _REMEDY) from None
