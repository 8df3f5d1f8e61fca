"""What each term of the reward pays, and whether it goes with success."""

from __future__ import annotations

from logforge.report.page import Context, Finding, Section, stacked, table_of

WEAK = 30
"""A correlation over fewer episodes is not told."""
_TERMS = f"""
WITH :logged, paid AS (
  SELECT episode_id, success, entry.key AS term, entry.value AS value
  FROM (SELECT episode_id, success, unnest(map_entries(reward_terms)) AS entry FROM logged)
), summed AS (
  SELECT
    term, episode_id, any_value(success)::INTEGER AS success, sum(value) AS total, sum(abs(value)) AS size,
    count(*) AS steps, count(*) FILTER (value <> 0) AS fires
  FROM paid GROUP BY ALL
)
SELECT
  term, sum(fires)::BIGINT AS fires, sum(fires) / sum(steps) AS firing_rate, count(*) FILTER (fires > 0) AS episodes,
  sum(total) AS sum, avg(total) AS mean_per_episode, sum(size) / nullif(sum(sum(size)) OVER (), 0) AS contribution,
  CASE WHEN count(success) >= {WEAK} AND stddev_pop(total) > 0 AND stddev_pop(success) > 0 THEN corr(total, success) END
    AS correlation_with_success
FROM summed GROUP BY term ORDER BY term
"""


def measure(context: Context) -> Section:
    """One row per term: how often it pays, its share of all that is paid and taken, and its correlation with success."""
    terms = context.ask("terms", _TERMS)
    findings = [
        *(Finding("note", f"{row['term']} pays at no step") for row in terms.dicts() if not row["fires"]),
        *(
            Finding("note", f"{row['term']} makes {row['contribution']:.0%} of all that is paid and taken")
            for row in terms.dicts()
            if (row["contribution"] or 0) > 0.95 and len(terms.rows) > 1
        ),
    ]
    return Section(
        "terms",
        "Reward terms",
        "Firing rate: share of steps where the term is not 0. Contribution: its share of the sum of absolute values. Correlation: "
        f"Pearson, of the term's sum in an episode with success (0 or 1), over known outcomes, {WEAK} at least.",
        (terms,),
        tables=(table_of(terms, "Terms of the reward"),),
        charts=(stacked(terms, "term", ("contribution",), "Share of all that is paid and taken"),),
        findings=tuple(findings),
    )
