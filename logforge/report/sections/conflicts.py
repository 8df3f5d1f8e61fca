"""States in which the log disagrees with itself, counted and shown."""

from __future__ import annotations

from logforge.report.page import Bars, Context, Finding, Section, numbers_of, table_of

_TOTALS = """
WITH :logged, bad AS (
  SELECT kind, state_key, episode_a FROM conflicts WHERE dataset = :dataset AND level = 'exact' AND kind <> 'contrast'
), struck AS (
  SELECT state_key FROM bad WHERE kind <> 'label'
  UNION SELECT l.state_key FROM logged AS l JOIN bad AS b ON b.kind = 'label' AND b.episode_a = l.episode_id
)
SELECT
  (SELECT count(*) FROM conflicts WHERE dataset = :dataset) AS conflicts,
  (SELECT count(*) FROM conflicts WHERE dataset = :dataset AND kind = 'contrast') AS contrasts,
  count(*) FILTER (state_key IN (FROM struck)) AS decisions_in_conflict,
  count(*) FILTER (state_key IN (FROM struck)) / nullif(count(*), 0) AS conflict_rate
FROM logged
"""
_COUNTS = """
SELECT kind, level, count(*) AS conflicts, sum(count_a + count_b)::BIGINT AS rows, max(abs(mean_return_a - mean_return_b)) AS widest
FROM conflicts WHERE dataset = :dataset GROUP BY ALL ORDER BY ALL
"""
_EXAMPLES = """
WITH ranked AS (
  SELECT *, row_number() OVER (
    PARTITION BY kind, level ORDER BY count_a + count_b DESC, abs(mean_return_a - mean_return_b) DESC, state_key, action_a, action_b
  ) AS place FROM conflicts WHERE dataset = :dataset
)
SELECT
  r.kind, r.level,
  r.action_a || chr(10) || r.count_a || ' × ' || round(r.mean_return_a, 3) || chr(10) || coalesce(a.locator, '') AS side_a,
  r.action_b || chr(10) || r.count_b || ' × ' || round(r.mean_return_b, 3) || chr(10) || coalesce(b.locator, '') AS side_b,
  r.detail
FROM ranked AS r
LEFT JOIN transitions AS a ON a.dataset = r.dataset AND a.episode_id = r.episode_a AND a.step = r.step_a
LEFT JOIN transitions AS b ON b.dataset = r.dataset AND b.episode_id = r.episode_b AND b.step = r.step_b
WHERE place <= 3 ORDER BY r.kind, r.level, place
"""


def measure(context: Context) -> Section:
    """Counts by kind and level, with the three largest of each."""
    totals, counts = context.ask("totals", _TOTALS), context.ask("counts", _COUNTS)
    examples = context.ask("examples", _EXAMPLES)
    labels = {
        "conflicts": "conflicts of all kinds",
        "contrasts": "of them contrasts, which are what is learnt from",
        "decisions_in_conflict": "decisions in states with an exact conflict that is no contrast",
        "conflict_rate": "of all decisions",
    }
    rate = totals.value("conflict_rate") or 0.0
    findings = (
        [Finding("note", f"{rate:.0%} of the decisions stand in states whose outcomes conflict")]
        if rate > 0.1
        else []
    )
    names = tuple(f"{kind} · {level}" for kind, level, *_ in counts.rows)
    return Section(
        "conflicts",
        "Conflicts",
        f"The kinds are told in docs/tables.md; `logforge conflicts {context.dataset}` shows each with both sides' texts.",
        (totals, counts, examples),
        numbers_of(totals, labels, ("conflict_rate",)),
        (
            table_of(counts, "By kind and level"),
            table_of(
                examples,
                "The largest of each",
                "A side: its action, rows × mean return, and where its example stands.",
            ),
        ),
        (Bars("Conflicts", names, {"conflicts": tuple(map(float, counts.column("conflicts")))}),)
        if names
        else (),
        tuple(findings),
    )
