"""How the episodes' returns are spread."""

from __future__ import annotations

from logforge.report.page import Columns, Context, Finding, Query, Section, numbers_of

_BINS = 24
_TOTALS = """
WITH :logged
SELECT
  count(*) AS episodes, count(*) FILTER (return_is_partial) AS partial,
  min(return_to_go) FILTER (NOT return_is_partial) AS lowest,
  quantile_cont(return_to_go, 0.25) FILTER (NOT return_is_partial) AS quarter,
  median(return_to_go) FILTER (NOT return_is_partial) AS median,
  quantile_cont(return_to_go, 0.75) FILTER (NOT return_is_partial) AS three_quarters,
  max(return_to_go) FILTER (NOT return_is_partial) AS highest,
  avg(return_to_go) FILTER (NOT return_is_partial) AS mean,
  avg(return_to_go) FILTER (NOT return_is_partial AND success) AS mean_of_successes,
  avg(return_to_go) FILTER (NOT return_is_partial AND NOT success) AS mean_of_failures
FROM logged WHERE step = 0
"""
_HISTOGRAM = f"""
WITH :logged, whole AS (SELECT return_to_go AS g, success FROM logged WHERE step = 0 AND NOT return_is_partial),
limits AS (SELECT min(g) AS low, greatest(max(g) - min(g), 1e-9) / {_BINS} AS width FROM whole),
placed AS (SELECT least(floor((g - low) / width), {_BINS - 1})::INTEGER AS bin, success FROM whole, limits)
SELECT
  n.bin, any_value(low + n.bin * width) AS at_least, any_value(low + (n.bin + 1) * width) AS up_to,
  count(placed.bin) FILTER (success) AS success, count(placed.bin) FILTER (NOT success) AS failure,
  count(placed.bin) FILTER (success IS NULL) AS unknown
FROM range({_BINS}) AS n(bin) CROSS JOIN limits LEFT JOIN placed USING (bin) GROUP BY n.bin ORDER BY n.bin
"""


def measure(context: Context) -> Section:
    """Discounted returns from the first step, of episodes that were not cut off."""
    totals = context.ask("totals", _TOTALS)
    whole = totals.value("episodes") > totals.value("partial")
    bins = context.ask("histogram", _HISTOGRAM)
    labels = {
        "episodes": "episodes",
        "partial": "of them cut off: their returns are partial, and left out here",
        "lowest": "lowest",
        "quarter": "25 %",
        "median": "median",
        "three_quarters": "75 %",
        "highest": "highest",
        "mean": "mean",
        "mean_of_successes": "mean of successes",
        "mean_of_failures": "mean of failures",
    }
    return Section(
        "returns",
        "Returns",
        "The discounted sum of an episode's rewards from its first step.",
        (totals, bins),
        numbers_of(totals, labels),
        charts=(_chart(bins),) if whole else (),
        findings=tuple(_findings(totals)),
    )


def _chart(bins: Query) -> Columns:
    edges = [*bins.column("at_least"), bins.column("up_to")[-1]]
    series = {name: tuple(map(float, bins.column(name))) for name in ("success", "failure", "unknown")}
    return Columns("Episodes by return", tuple(f"{edge:.3g}" for edge in edges), series)


def _findings(totals: Query) -> list[Finding]:
    wins, losses = totals.value("mean_of_successes"), totals.value("mean_of_failures")
    if totals.value("lowest") is not None and totals.value("lowest") == totals.value("highest"):
        return [Finding("alarm", "every episode has the same return: there is nothing to learn")]
    if wins is not None and losses is not None and wins <= losses:
        return [Finding("alarm", "failures are paid at least as much as successes: look at the reward spec")]
    return []
