"""Episodes that say and do nearly the same, and whether they agree on how it went."""

from __future__ import annotations

from logforge.report.page import Context, Finding, Section, numbers_of, table_of

MANY = 0.1
_PAIRS = """
WITH :logged, firsts AS (SELECT episode_id, success FROM logged WHERE step = 0), pairs AS (
  SELECT n.episode_a, n.episode_b, n.similarity, a.success AS success_a, b.success AS success_b
  FROM near_duplicates AS n LEFT JOIN firsts AS a ON a.episode_id = n.episode_a LEFT JOIN firsts AS b ON b.episode_id = n.episode_b
  WHERE n.dataset = :dataset
)"""
_TOTALS = f"""{_PAIRS}
SELECT
  count(*) AS pairs, count(*) FILTER (similarity >= 1) AS identical,
  (SELECT count(DISTINCT e) FROM (SELECT unnest([episode_a, episode_b]) AS e FROM pairs)) AS episodes,
  (SELECT count(DISTINCT e) FROM (SELECT unnest([episode_a, episode_b]) AS e FROM pairs))
    / nullif((SELECT count(*) FROM firsts), 0) AS share,
  count(*) FILTER (success_a <> success_b) AS contradicting
FROM pairs
"""
_SHOWN = f"""{_PAIRS}
SELECT similarity, a.locator AS episode_a, success_a, b.locator AS episode_b, success_b
FROM pairs AS p LEFT JOIN episodes AS a ON a.episode_id = p.episode_a LEFT JOIN episodes AS b ON b.episode_id = p.episode_b
ORDER BY coalesce(success_a <> success_b, FALSE) DESC, similarity DESC, p.episode_a, p.episode_b LIMIT 20
"""


def measure(context: Context) -> Section:
    """Verified near-duplicate pairs, those with contradicting outcomes first."""
    totals, shown = context.ask("totals", _TOTALS), context.ask("shown", _SHOWN)
    labels = {
        "pairs": "verified pairs",
        "identical": "of them of the same text",
        "episodes": "episodes in a pair",
        "share": "of all episodes",
        "contradicting": "pairs of contradicting outcomes",
    }
    findings = []
    if (totals.value("share") or 0) > MANY:
        findings.append(
            Finding(
                "note",
                f"{totals.value('share'):.0%} of the episodes are near-duplicates of others: they count several times",
            )
        )
    if totals.value("contradicting"):
        findings.append(
            Finding(
                "note",
                f"{totals.value('contradicting'):,} pairs of near-duplicates came out differently: noise, or labels that are wrong",
            )
        )
    return Section(
        "duplicates",
        "Near-duplicates",
        "Pairs of episodes whose word triples overlap by at least 0.9 (Jaccard, verified; see docs/splits.md). Clusters are listed as trees "
        "of pairs. All of a cluster are in one split.",
        (totals, shown),
        numbers_of(totals, labels, ("share",)),
        (table_of(shown, "Pairs, contradicting ones first"),),
        findings=tuple(findings),
    )
