"""What was set aside: by rule, with places and remedies, and row by row. `replaying` reads it again after a fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from logforge.core import LINES, WIDTH, BaseReport, Lines, each, ending, fit, listed, picked, plural
from logforge.ingestion.sources import label_of
from logforge.schemas import CATALOGUE, UnknownName, UsageError, meaning_of, remedy_of
from logforge.store import Store

ROWS = 20
"""So many rows are shown unless a limit says otherwise."""
_REST = 2
_PLACE = "coalesce(s.path, q.dataset, '')"
_FROM = "FROM quarantine q LEFT JOIN sources s ON s.source_id = q.source_id"


class Reason(NamedTuple):
    """One reason under a rule: how often it was given, and the first place with what was found there."""

    reason: str
    times: int
    first: str
    detail: str


@dataclass(frozen=True)
class Group:
    """A rule with everything under it. `sources` counts those that hold it (for transitions: the datasets)."""

    rule: str
    levels: tuple[str, ...]
    times: int
    sources: int
    first: str
    meaning: str
    remedy: str
    reasons: tuple[Reason, ...]

    def lines(self) -> list[str]:
        """For people: how many and where first, why, and what to do."""
        noun = "dataset" if self.levels == ("transition",) else "source"
        detail = f" ({self.reasons[0].detail})" if self.reasons[0].detail else ""
        others = len(self.reasons) - 1
        more = f"; {plural(others, 'other reason')}" if others else ""
        return [
            ending(f"{self.times:,} × {self.rule} in {plural(self.sources, noun)}; first: ", self.first),
            fit(f"    {self.reasons[0].reason}{detail}", more),
            fit(f"    → {self.remedy}"),
        ]


@dataclass(frozen=True)
class Overview(BaseReport):
    """Everything set aside, by rule, the most frequent first."""

    first = ("times",)

    groups: tuple[Group, ...]

    @property
    def times(self) -> int:
        """How many things were set aside."""
        return sum(group.times for group in self.groups)

    def lines(self) -> Lines:
        """At most one screen."""
        if not self.groups:
            yield "nothing is set aside"
            return
        blocks = [group.lines() for group in self.groups]
        room = LINES - 2
        shown = len(blocks) if 3 * len(blocks) <= room else (room - _REST) // 3
        rest = [f"{group.times:,} × {group.rule}" for group in self.groups[shown:]]
        yield f"{plural(self.times, 'thing')} set aside under {plural(len(self.groups), 'rule')}"
        yield from (line for block in blocks[:shown] for line in block)
        yield from listed("also: ", rest, "more rules: --json lists all", _REST)
        yield "rows: logforge quarantine --rule RULE · after a fix: logforge quarantine --replay"


class Row(NamedTuple):
    """One thing set aside. `source` is the path of its file, of a transition the dataset."""

    level: str
    rule: str
    source: str
    locator: str
    episode_id: str | None
    step: int | None
    reason: str
    detail: str
    excerpt: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON data, with what its rule means and what to do about it."""
        return {**each(self), "meaning": meaning_of(self.rule), "remedy": remedy_of(self.rule)}

    def lines(self) -> list[str]:
        """For people: a block of place, reason, finding and excerpt."""
        step = "" if self.step is None else f" step {self.step}"
        return [
            f"{self.locator or self.source or self.episode_id}{step}",
            *_wrapped(f"{self.rule} ({self.level}): {self.reason}", "    "),
            *_wrapped(f"found: {self.detail}" if self.detail else "", "    "),
            *_wrapped(self.excerpt, "    │ "),
        ]


def _wrapped(text: str, margin: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)


@dataclass(frozen=True)
class Rows(BaseReport):
    """Rows by rule and place, and how many there are in all."""

    rows: tuple[Row, ...]
    total: int

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: every row with its rule's meaning and remedy."""
        return picked(self, "total", "rows")

    def lines(self) -> Lines:
        """A block per row, under each rule its remedy."""
        if not self.total:
            yield "nothing is set aside here"
            return
        for rule in dict.fromkeys(row.rule for row in self.rows):
            yield from (line for row in self.rows if row.rule == rule for line in row.lines())
            yield f"\n→ {rule}: {remedy_of(rule)}\n"
        more = "; --limit N shows more" if self.total > len(self.rows) else ""
        yield f"{len(self.rows):,} of {self.total:,} rows{more}"


class Choice(NamedTuple):
    """A condition on quarantine rows `q` and their sources `s`, with its parameters."""

    where: str
    values: list[object]


def choice(store: Store, rule: str | None, source: str | Path | None) -> Choice:
    """The rows of a rule, and of the sources at or below a path.

    Raises UnknownName for a rule that neither the catalogue nor the store knows, UsageError for a path without sources.
    """
    where, values = ["true"], list[object]()
    if rule is not None:
        known = {row[0] for row in store.con.sql("SELECT DISTINCT rule FROM quarantine").fetchall()}
        if rule not in known | set(CATALOGUE):
            raise UnknownName("rule", rule, sorted(known | set(get_close_matches(rule, CATALOGUE))))
        where.append("q.rule = ?")
        values.append(rule)
    if source is not None:
        where.append("q.source_id IN (SELECT unnest(?))")
        values.append(_sources_at(store, source))
    return Choice(" AND ".join(where), values)


def _sources_at(store: Store, source: str | Path) -> list[str]:
    """The sources at or below a path, given as seen from here or as locators name it."""
    places = sorted({str(source).rstrip("/"), label_of(Path(source), store.path.parent)})
    below = "path = place OR starts_with(path, place || '/') OR starts_with(path, place || '!')"
    home = "place = '.' AND NOT starts_with(path, '/')"
    found = store.con.sql(
        f"SELECT DISTINCT source_id FROM sources, (SELECT unnest(?) AS place) WHERE {below} OR {home}",
        params=[places],
    ).fetchall()
    if not found:
        remedy = 'logforge sql "SELECT path FROM sources" lists them'
        raise UsageError(f"the store holds no source at {source}", remedy, rule="unknown_source")
    return sorted(row[0] for row in found)


def at_first(column: str) -> str:
    """SQL: a column's value at the first of some rows, by source, then by line."""
    place = "{path: coalesce(s.path, ''), size: length(q.locator), locator: q.locator}"
    return f"arg_min(coalesce({column}, ''), {place})"


def overview(store: Store) -> Overview:
    """Everything set aside, by rule and reason."""
    found = store.con.sql(
        f"SELECT q.rule, coalesce(q.reason, ''), list(DISTINCT q.level), count(*), list(DISTINCT {_PLACE}), "
        f"{at_first('q.locator')}, {at_first('q.detail')} "
        f"{_FROM} GROUP BY 1, 2 ORDER BY 4 DESC, 2"
    ).fetchall()
    by_rule: dict[str, list[Any]] = {}
    for row in found:
        by_rule.setdefault(row[0], []).append(row)
    groups = [_group(rule, rows) for rule, rows in by_rule.items()]
    return Overview(tuple(sorted(groups, key=lambda group: (-group.times, group.rule))))


def _group(rule: str, rows: Sequence[Any]) -> Group:
    return Group(
        rule=rule,
        levels=tuple(sorted({level for row in rows for level in row[2]})),
        times=sum(row[3] for row in rows),
        sources=len({place for row in rows for place in row[4]}),
        first=rows[0][5],
        meaning=meaning_of(rule),
        remedy=remedy_of(rule),
        reasons=tuple(Reason(row[1], row[3], row[5], row[6]) for row in rows),
    )


def rows(
    store: Store, rule: str | None = None, source: str | Path | None = None, limit: int | None = None
) -> Rows:
    """The rows themselves, with excerpts; all of them without a `limit`. Raises as `choice` does."""
    chosen = choice(store, rule, source)
    parameters = chosen.values or None
    ((total,),) = store.con.sql(f"SELECT count(*) {_FROM} WHERE {chosen.where}", params=parameters).fetchall()
    found = store.con.sql(
        f"SELECT q.level, q.rule, {_PLACE}, coalesce(q.locator, ''), q.episode_id, q.step, "
        f"coalesce(q.reason, ''), coalesce(q.detail, ''), coalesce(q.excerpt, '') {_FROM} WHERE {chosen.where} "
        f"ORDER BY q.rule, {_PLACE}, length(q.locator), q.locator, q.episode_id, q.step, q.reason "
        f"LIMIT {total if limit is None else int(limit)}",
        params=parameters,
    ).fetchall()
    return Rows(tuple(Row(*row) for row in found), total)
