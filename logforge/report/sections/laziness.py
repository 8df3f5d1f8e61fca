"""Calls that bring nothing, tools that never helped, and episodes that lie flat."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import BARS, Bars, Context, Finding, Query, Section, numbers_of, table_of
from logforge.report.sections.failures import detected

MANY = 0.3
_TOTALS = """
SELECT
  count(*) AS calls, avg((NOT is_news)::INTEGER) AS without_news,
  avg((NOT is_news)::INTEGER) FILTER (success) AS without_news_in_successes,
  avg((NOT is_news)::INTEGER) FILTER (NOT success) AS without_news_in_failures,
  count(DISTINCT episode_id) FILTER (no_progress) AS lazy_episodes,
  count(DISTINCT episode_id) FILTER (no_progress) / nullif(count(DISTINCT episode_id), 0) AS lazy_share
FROM steps_seen WHERE kind = 'tool'
"""
_TOOLS = """
SELECT
  action AS tool, count(*) AS calls, count(DISTINCT episode_id) AS episodes, avg((NOT is_news)::INTEGER) AS without_news,
  count(DISTINCT episode_id) FILTER (success AND result_status IN ('ok', 'empty')) AS successes_it_worked_in,
  count(DISTINCT episode_id) FILTER (success IS NOT NULL) AS known_outcomes
FROM steps_seen WHERE kind = 'tool' GROUP BY action ORDER BY successes_it_worked_in, calls DESC, tool LIMIT 30
"""
_NEVER = """
, tools AS (
  SELECT
    action AS tool, count(*) AS calls, count(DISTINCT episode_id) AS episodes,
    count(*) FILTER (success AND result_status IN ('ok', 'empty')) AS helped, count(*) FILTER (success IS NOT NULL) AS known
  FROM steps_seen WHERE kind = 'tool' GROUP BY action
)
SELECT tool, calls, episodes FROM tools WHERE helped = 0 AND known > 0 AND (SELECT sum(helped) FROM tools) > 0
ORDER BY calls DESC, tool LIMIT 30
"""
_EPISODES = """
SELECT
  c.episode_id, count(*) AS calls, avg((NOT is_news)::INTEGER) AS without_news, count(*) FILTER (c.no_progress) AS no_progress,
  any_value(c.success) AS success, any_value(e.locator) AS locator
FROM steps_seen AS c JOIN episodes AS e USING (episode_id) WHERE c.kind = 'tool' GROUP BY c.episode_id HAVING count(*) FILTER (c.no_progress) > 0
ORDER BY no_progress DESC, c.episode_id LIMIT 20
"""


def measure(context: Context) -> Section:
    """Shares of calls without news, tools never in a success, and the laziest episodes."""
    stages = f"WITH {detected(context)}"
    totals, tools = context.ask("totals", stages + _TOTALS), context.ask("tools", stages + _TOOLS)
    never, episodes = context.ask("never", stages + _NEVER), context.ask("episodes", stages + _EPISODES)
    labels = {
        "calls": "tool calls",
        "without_news": "of them without news",
        "without_news_in_successes": "in successes",
        "without_news_in_failures": "in failures",
        "lazy_episodes": "episodes without progress",
        "lazy_share": "of the episodes that call tools",
    }
    return Section(
        "laziness",
        "Idle calls and tools",
        "A call brings news when it worked and its result was not seen before in the episode. An episode is without progress where "
        f"{context.detectors.no_progress.calls} calls in a row brought none (the detector `no_progress`).",
        (totals, tools, never, episodes),
        numbers_of(
            totals,
            labels,
            ("without_news", "without_news_in_successes", "without_news_in_failures", "lazy_share"),
        ),
        (
            table_of(never, "Tools that never worked in a successful episode"),
            table_of(tools, "Tools, least helpful first"),
            table_of(episodes, "Episodes without progress"),
        ),
        _chart(tools),
        tuple(_findings(totals, never)),
    )


def _chart(tools: Query) -> tuple[Bars, ...]:
    idle = sorted(
        ((row["without_news"], row["tool"]) for row in tools.dicts() if row["without_news"]), reverse=True
    )[:BARS]
    shares = {"without news": tuple(float(share) for share, _ in idle)}
    return (
        (Bars("Share of calls without news, by tool", tuple(tool for _, tool in idle), shares),)
        if idle
        else ()
    )


def _findings(totals: Query, never: Query) -> Iterator[Finding]:
    if never.rows:
        named = ", ".join(str(row[0]) for row in never.rows[:6])
        calls = sum(never.column("calls"))
        yield Finding(
            "note", f"{len(never.rows)} tools ({calls:,} calls) never worked in a successful episode: {named}"
        )
    share = totals.value("lazy_share")
    if share and share > MANY:
        yield Finding(
            "note", f"{share:.0%} of the episodes that call tools get nowhere for a while: weigh them down"
        )
