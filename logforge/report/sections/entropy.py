"""How varied the decisions are: of all actions, and in states that came up more than once."""

from __future__ import annotations

from logforge.report.page import Context, Finding, Section, numbers_of, stacked, table_of

LOW, FEWEST = 0.1, 20
"""Of so few states with a choice, among so many at least, it is told."""
_TOTALS = """
WITH :logged, seen AS (
  SELECT state_key_canonical, count(*) AS visits, entropy(action) AS bits FROM logged WHERE action_valid GROUP BY ALL HAVING count(*) > 1
)
SELECT
  entropy(action) AS action_entropy,
  entropy(action) / nullif(log2(count(DISTINCT action)), 0) AS normalised,
  2 ** entropy(action) AS effective_actions,
  (SELECT sum(bits * visits) / sum(visits) FROM seen) AS in_known_states,
  (SELECT count(*) FROM seen) AS known_states,
  (SELECT avg((bits = 0)::INTEGER) FROM seen) AS single_action_states
FROM logged
"""
_ACTIONS = """
WITH :logged
SELECT
  action, count(*) AS taken, count(*) / sum(count(*)) OVER () AS share, count(DISTINCT episode_id) AS episodes,
  avg(return_to_go) FILTER (NOT return_is_partial) AS mean_return, avg(success::INTEGER) AS success_rate
FROM logged GROUP BY action ORDER BY taken DESC, action LIMIT 30
"""
_POLICIES = """
WITH :logged
SELECT
  coalesce(policy_id, '(not logged)') AS policy, count(*) AS decisions, count(DISTINCT action) AS actions,
  entropy(action) AS entropy_bits
FROM logged GROUP BY ALL ORDER BY decisions DESC, policy LIMIT 20
"""


def measure(context: Context) -> Section:
    """Shannon entropy of actions in bits."""
    totals, actions = context.ask("totals", _TOTALS), context.ask("actions", _ACTIONS)
    policies = context.ask("policies", _POLICIES)
    labels = {
        "action_entropy": "bits: entropy of all actions",
        "normalised": "of the most it could be",
        "effective_actions": "effective actions (2 to the entropy)",
        "in_known_states": "bits: entropy within a canonical state, by visits",
        "known_states": "canonical states visited more than once",
        "single_action_states": "of them with one action only",
    }
    single = totals.value("single_action_states")
    findings = []
    if single is None:
        findings.append(
            Finding("note", "no state came up twice: what else could be done is told by similar states alone")
        )
    elif single > 1 - LOW and totals.value("known_states") >= FEWEST:
        findings.append(
            Finding("note", f"in {single:.0%} of the states that came up again the same action was taken")
        )
    return Section(
        "entropy",
        "Action entropy",
        "Offline RL compares actions: where all decisions are alike, there is nothing to compare.",
        (totals, actions, policies),
        numbers_of(totals, labels, ("normalised", "single_action_states")),
        (table_of(actions, "Actions, most taken first"), table_of(policies, "By behaviour policy")),
        (stacked(actions, "action", ("taken",), "How often each action was taken"),),
        tuple(findings),
    )
