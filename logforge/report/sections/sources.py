"""Where the dataset comes from, and how its episodes came out."""

from __future__ import annotations

from logforge.report.page import Context, Section, numbers_of, stacked, table_of

_TOTALS = """
SELECT
  count(*) AS transitions, count(DISTINCT episode_id) AS episodes,
  count(*) FILTER (parent_id IS NOT NULL) AS augmented_transitions,
  count(DISTINCT action) AS actions,
  count(*) FILTER (NOT action_valid) AS invalid_actions,
  count(DISTINCT policy_id) AS policies
FROM transitions WHERE dataset = :dataset
"""
_OUTCOMES = """
WITH :logged
SELECT
  l.source_kind, e.format, count(DISTINCT l.episode_id) AS episodes, count(*) AS transitions,
  count(*) FILTER (l.step = 0 AND l.success) AS success,
  count(*) FILTER (l.step = 0 AND NOT l.success) AS failure,
  count(*) FILTER (l.step = 0 AND l.success IS NULL) AS unknown,
  count(*) FILTER (l.timeout) AS truncated
FROM logged AS l JOIN episodes AS e USING (episode_id) GROUP BY ALL ORDER BY episodes DESC, l.source_kind, e.format
"""
_MODELS = """
WITH :logged
SELECT
  coalesce(l.policy_id, '(not logged)') AS policy, count(DISTINCT l.episode_id) AS episodes, count(*) AS decisions,
  avg(l.success::INTEGER) FILTER (l.step = 0) AS success_rate
FROM logged AS l GROUP BY ALL ORDER BY decisions DESC, policy LIMIT 20
"""
_DANGER = """
SELECT
  s.danger, count(*) AS calls, count(DISTINCT s.episode_id) AS episodes, count(DISTINCT s.action) AS actions,
  avg(e.success::INTEGER) AS success_rate, min(s.locator) AS example
FROM steps AS s JOIN episodes AS e USING (episode_id)
WHERE s.danger IS NOT NULL
  AND s.episode_id IN (SELECT episode_id FROM transitions WHERE dataset = :dataset AND parent_id IS NULL AND step = 0)
GROUP BY s.danger ORDER BY calls DESC, s.danger
"""


def measure(context: Context) -> Section:
    """Rows by source and outcome."""
    totals = context.ask("totals", _TOTALS)
    outcomes = context.ask("outcomes", _OUTCOMES)
    policies, danger = context.ask("policies", _MODELS), context.ask("danger", _DANGER)
    labels = {
        "episodes": "episodes",
        "transitions": "transitions",
        "augmented_transitions": "of them augmented",
        "actions": "actions taken",
        "invalid_actions": "decisions outside their mask",
        "policies": "behaviour policies",
    }
    return Section(
        "sources",
        "Sources and outcomes",
        "What went into the dataset. Augmented copies are counted once here and left out of everything below.",
        (totals, outcomes, policies, danger),
        numbers_of(totals, labels),
        (
            table_of(outcomes, "Logged episodes by source"),
            table_of(policies, "Who decided"),
            table_of(danger, "Dangerous calls"),
        ),
        (stacked(outcomes, "format", ("success", "failure", "unknown"), "Episodes by format and outcome"),),
    )
