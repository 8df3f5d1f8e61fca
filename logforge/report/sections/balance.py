"""Successes and failures: a learner needs both."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import Context, Finding, Query, Section, numbers_of, stacked, table_of

FEWEST = 0.1
"""A share of failures, or of successes, below this is one-sided."""
_TOTALS = """
WITH :logged
SELECT
  count(*) AS episodes, count(*) FILTER (success) AS successes, count(*) FILTER (NOT success) AS failures,
  count(*) FILTER (success IS NULL) AS unknown, avg(success::INTEGER) AS success_rate, 1 - avg(success::INTEGER) AS failure_share
FROM logged WHERE step = 0
"""
_BY = """
WITH :logged
SELECT
  {by}, count(*) AS episodes, count(*) FILTER (success) AS success, count(*) FILTER (NOT success) AS failure,
  count(*) FILTER (success IS NULL) AS unknown, avg(success::INTEGER) AS success_rate
FROM logged WHERE step = 0 GROUP BY ALL ORDER BY ALL
"""


def measure(context: Context) -> Section:
    """The balance of outcomes, in all, by split and by source kind."""
    totals = context.ask("totals", _TOTALS)
    splits = context.ask("splits", _BY.format(by="split"))
    kinds = context.ask("kinds", _BY.format(by="source_kind"))
    labels = {
        "episodes": "episodes",
        "successes": "successes",
        "failures": "failures",
        "unknown": "of unknown outcome",
        "success_rate": "success rate (known outcomes)",
        "failure_share": "failure share (known outcomes)",
    }
    outcomes = ("success", "failure", "unknown")
    return Section(
        "balance",
        "Success and failure",
        "Episodes by outcome. Without failures nothing says what to avoid, without successes nothing what to do.",
        (totals, splits, kinds),
        numbers_of(totals, labels, ("success_rate", "failure_share")),
        (table_of(splits, "By split"), table_of(kinds, "By kind of source")),
        (stacked(splits, "split", outcomes, "Episodes by split and outcome"),),
        tuple(_findings(totals)),
    )


def _findings(totals: Query) -> Iterator[Finding]:
    rate = totals.value("success_rate")
    if rate is None:
        yield Finding("alarm", "no outcome is known: nothing tells success from failure")
    elif rate > 1 - FEWEST:
        yield Finding(
            "note", f"only {1 - rate:.1%} of the known outcomes are failures: nothing says what to avoid"
        )
    elif rate < FEWEST:
        yield Finding(
            "note", f"only {rate:.1%} of the known outcomes are successes: there is little to learn from"
        )
    else:
        yield Finding("good", f"{rate:.0%} of the known outcomes are successes")
