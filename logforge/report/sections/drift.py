"""Failure rates by hour, over time, by model and by policy: an infrastructure's faults must not be learnt as the agent's."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from logforge.core import text_literal
from logforge.report.page import Columns, Context, Finding, Query, Section, Table, numbers_of, plain, table_of
from logforge.report.sections.scan import PLACINGS, Window, around_the_clock, before_and_after, excess_p, scan

LEVEL = 0.01
"""Chance of an alarm where there is nothing, for each of the four looks."""
WORSE = 0.1
"""How much higher a failure rate must be to matter."""
FEWEST = 5
_KNOWN = """
WITH :logged, known AS (
  SELECT e.*, l.success AS won FROM logged AS l JOIN episodes AS e USING (episode_id) WHERE l.step = 0 AND l.success IS NOT NULL
)"""
_TOTALS = f"""{_KNOWN}
SELECT count(*) AS episodes, count(*) FILTER (NOT won) AS failures, 1 - avg(won::INTEGER) AS failure_rate, count(started_at) AS dated
FROM known
"""
_HOURS = f"""{_KNOWN}
SELECT
  h.hour, count(*) FILTER (won) AS successes, count(*) FILTER (NOT won) AS failures, count(won) AS episodes,
  1 - avg(won::INTEGER) AS failure_rate
FROM range(24) AS h(hour) LEFT JOIN known ON hour(started_at) = h.hour GROUP BY h.hour ORDER BY h.hour
"""
_TIME = f"""{_KNOWN}, placed AS (
  SELECT won, started_at, ntile(40) OVER (ORDER BY started_at, episode_id) AS part FROM known WHERE started_at IS NOT NULL
)
SELECT
  part, min(started_at) AS begins, max(started_at) AS ends, count(*) FILTER (won) AS successes,
  count(*) FILTER (NOT won) AS failures, count(*) AS episodes, 1 - avg(won::INTEGER) AS failure_rate
FROM placed GROUP BY part ORDER BY part
"""
_SLICES = f"""{_KNOWN}
SELECT
  {{column}} AS slice, count(*) FILTER (won) AS successes, count(*) FILTER (NOT won) AS failures, count(*) AS episodes,
  1 - avg(won::INTEGER) AS failure_rate
FROM known WHERE {{column}} IS NOT NULL GROUP BY ALL HAVING count(*) >= {FEWEST} ORDER BY episodes DESC, slice LIMIT 40
"""
SLICES = {"model": "model", "policy": "policy_id", "prompt": "prompt_version", "format": "format"}
"""What episodes are sliced by, and the column of `episodes` that says it."""


_LABELS = {
    "episodes": "episodes of known outcome",
    "failures": "failures",
    "failure_rate": "failure rate",
    "dated": "episodes with a start time",
}


class Suspect(NamedTuple):
    """A slice that fails more often than the rest, with the SQL condition on `episodes` that picks it."""

    kind: str
    slice: str
    episodes: int
    failures: int
    rate: float
    rate_elsewhere: float
    p: float
    condition: str


def measure(context: Context) -> Section:
    """Rates by slice, and what stands out."""
    totals = context.ask("totals", _TOTALS)
    hours, time = context.ask("hours", _HOURS), context.ask("time", _TIME)
    slices = {name: context.ask(name, _SLICES.format(column=column)) for name, column in SLICES.items()}
    suspects = [*_by_hour(hours, context.seed), *_by_time(time, context.seed)]
    for name, query in slices.items():
        suspects += _by_name(SLICES[name], name, query, totals)
    rows = tuple(tuple(plain(value) for value in suspect) for suspect in suspects)
    told = tuple(table_of(query, f"By {name}") for name, query in slices.items() if query.rows)
    timed = bool(totals.value("dated"))
    return Section(
        "drift",
        "Drift",
        "Failure rates of known outcomes. Hours (UTC) and stretches of time: a scan over windows with a permutation test; models, "
        f"policies, prompts and formats: Fisher's exact test with Holm's correction. Named is what is worse by {WORSE:.0%} or more, at "
        f"p < {LEVEL}. Slices can hide one another: a model used at night alone is both.",
        (totals, hours, time, *slices.values()),
        numbers_of(totals, _LABELS, ("failure_rate",)),
        tables=(
            Table(
                "Slices that stand out",
                "hours",
                Suspect._fields,
                rows,
                f"hours and changes: a scan against {PLACINGS:,} random placings; others: Fisher and Holm",
            ),
            *((table_of(hours, "By hour of day"),) if timed else ()),
            *told,
        ),
        charts=tuple(_charts(hours, time)) if timed else (),
        findings=tuple(_findings(suspects, timed, len(told))),
    )


def _matters(found: Window | Suspect | None) -> bool:
    return (
        found is not None
        and found.p < LEVEL
        and found.rate - found.rate_elsewhere >= WORSE
        and found.episodes >= FEWEST
    )


def _by_hour(hours: Query, seed: int) -> Iterator[Suspect]:
    found = scan(around_the_clock(), hours.column("episodes"), hours.column("failures"), seed)
    if found and _matters(found):
        listed = ", ".join(map(str, found.bins))
        yield Suspect("hour", f"{_clock(found.bins)} UTC", *found[1:], f"hour(started_at) IN ({listed})")


def _clock(hours: tuple[int, ...]) -> str:
    """Hours that may go past midnight as `22:00–03:59`."""
    start = next(hour for hour in hours if (hour - 1) % 24 not in hours)
    return f"{start:02d}:00–{(start + len(hours) - 1) % 24:02d}:59"


def _by_time(time: Query, seed: int) -> Iterator[Suspect]:
    rows = time.dicts()
    found = (
        scan(before_and_after(len(rows)), time.column("episodes"), time.column("failures"), seed)
        if len(rows) > 1
        else None
    )
    if found and _matters(found):
        first, last = rows[found.bins[0]], rows[found.bins[-1]]
        after = found.bins[0] > 0
        name = f"from {first['begins']} on" if after else f"until {last['ends']}"
        edge = (
            f">= TIMESTAMP {text_literal(first['begins'])}"
            if after
            else f"<= TIMESTAMP {text_literal(last['ends'])}"
        )
        yield Suspect("change", name, *found[1:], f"started_at {edge}")


def _by_name(column: str, kind: str, query: Query, totals: Query) -> Iterator[Suspect]:
    total, lost = totals.value("episodes"), totals.value("failures")
    chances = excess_p(query.column("episodes"), query.column("failures"), total, lost)
    for row, p in zip(query.dicts(), chances, strict=True):
        n, failures = row["episodes"], row["failures"]
        found = Suspect(
            kind, str(row["slice"]), n, failures, failures / n, (lost - failures) / max(total - n, 1), p,
            f"{column} = {text_literal(str(row['slice']))}",
        )  # fmt: skip
        if _matters(found):
            yield found


def _charts(hours: Query, time: Query) -> Iterator[Columns]:
    yield Columns("Outcomes by hour of day (UTC)", tuple(str(hour) for hour in range(25)), _outcomes(hours))
    if len(time.rows) > 1:
        edges = [str(item)[:10] for item in (*time.column("begins"), time.column("ends")[-1])]
        yield Columns("Outcomes over time (parts of as many episodes)", tuple(edges), _outcomes(time))


def _outcomes(query: Query) -> dict[str, tuple[float, ...]]:
    return {name: tuple(map(float, query.column(name))) for name in ("successes", "failures")}


def _findings(suspects: list[Suspect], timed: bool, slices: int) -> Iterator[Finding]:
    for item in suspects:
        yield Finding(
            "alarm" if item.kind in ("hour", "change") else "note",
            f"{item.kind} {item.slice}: {item.failures} of {item.episodes} fail ({item.rate:.0%}, elsewhere {item.rate_elsewhere:.0%}, "
            f"p = {item.p:.2g}). To see them: SELECT episode_id, locator FROM episodes WHERE {item.condition}. "
            f"To leave them out: build-dataset --exclude-where {quote(item.condition)}",
        )
    if not timed:
        yield Finding(
            "note", "no episode of known outcome has a start time: hours and changes cannot be told"
        )
    if not suspects and (timed or slices):
        yield Finding("good", "no hour, time, model, policy, prompt or format stands out")
