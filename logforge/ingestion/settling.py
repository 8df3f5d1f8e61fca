"""Which of the labels of an episode counts: those of a higher precedence go first, and of equal ones that disagree none does.

What the log said is a label too (kind `log`, precedence 0), noted once for each labelled episode and step. So it comes back
when the other labels go, and a log that is read again keeps its labels.
"""

from __future__ import annotations

from logforge.store import Store

LOG_PRECEDENCE, FILE_PRECEDENCE, RULE_PRECEDENCE = 0, 10, -10
"""What counts more: a file of outcomes than the log, and the log than a rule."""

_LABELLED = "(SELECT DISTINCT episode_id FROM labels WHERE kind <> 'log')"
_SAME_STEP = (
    "s.episode_id = l.episode_id AND "
    "CASE WHEN l.decision_key IS NULL THEN s.step = l.step ELSE s.decision_key = l.decision_key END"
)
_NOTE_EPISODES = f"""
INSERT INTO labels BY NAME
SELECT episode_id, source_id, 'log' AS kind, {LOG_PRECEDENCE} AS precedence, success, score, outcome_from, outcome_unknown, locator
FROM episodes WHERE episode_id IN {_LABELLED}
AND episode_id NOT IN (SELECT episode_id FROM labels WHERE kind = 'log' AND step IS NULL)
"""
_NOTE_STEPS = f"""
INSERT INTO labels BY NAME
SELECT DISTINCT s.episode_id, l.step, l.decision_key, e.source_id, 'log' AS kind, {LOG_PRECEDENCE} AS precedence,
    s.logged_reward AS reward, s.locator
FROM labels l JOIN steps s ON {_SAME_STEP} JOIN episodes e ON e.episode_id = s.episode_id
WHERE l.kind <> 'log' AND l.step IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM labels o WHERE o.kind = 'log' AND o.episode_id = l.episode_id AND o.step = l.step)
"""


def _settled(field: str, named: str) -> str:
    """What the labels of highest precedence say in a field, where they agree; and if they do not, what each says."""
    top = f"FILTER (precedence = top_{field} AND {field} IS NOT NULL)"
    agree = f"count(DISTINCT {field}) {top} <= 1"
    each = f"coalesce(outcome_from, 'the log') || ' says ' || {field}::VARCHAR"
    said = f"string_agg(DISTINCT {each}, ', ' ORDER BY {each}) {top}"
    return (
        f"CASE WHEN {agree} THEN any_value({field}) {top} END AS {field}, "
        f"CASE WHEN {agree} THEN string_agg(DISTINCT outcome_from, '+' ORDER BY outcome_from) {top} END AS {named}_from, "
        f"CASE WHEN NOT {agree} THEN 'labels of equal precedence disagree: ' || {said} END AS {named}_open"
    )


_SETTLE_EPISODES = f"""
WITH ranked AS (
    SELECT *, max(precedence) FILTER (success IS NOT NULL) OVER (PARTITION BY episode_id) AS top_success,
        max(precedence) FILTER (score IS NOT NULL) OVER (PARTITION BY episode_id) AS top_score FROM labels
), told AS (
    SELECT episode_id, {_settled("success", "truth")}, {_settled("score", "amount")},
        any_value(outcome_unknown) AS unsaid FROM ranked GROUP BY episode_id
), settled AS (
    SELECT episode_id, success, score,
        CASE WHEN truth_from = amount_from THEN truth_from ELSE nullif(concat_ws('+', truth_from, amount_from), '') END AS said_by,
        coalesce(truth_open, amount_open, CASE WHEN success IS NULL AND score IS NULL THEN unsaid END) AS open FROM told
)
UPDATE episodes SET success = t.success, score = t.score, outcome_from = t.said_by, outcome_unknown = t.open
FROM settled t WHERE episodes.episode_id = t.episode_id AND (episodes.success, episodes.score, episodes.outcome_from,
    episodes.outcome_unknown) IS DISTINCT FROM (t.success, t.score, t.said_by, t.open)
"""
_SETTLE_STEPS = f"""
WITH ranked AS (
    SELECT *, max(precedence) FILTER (reward IS NOT NULL) OVER (PARTITION BY episode_id, step) AS top_reward
    FROM labels WHERE step IS NOT NULL
), told AS (
    SELECT episode_id, step, any_value(decision_key) AS decision_key, {_settled("reward", "pay")}
    FROM ranked GROUP BY episode_id, step
), found AS (
    SELECT s.episode_id, s.step, any_value(l.reward) AS reward FROM told l JOIN steps s ON {_SAME_STEP} GROUP BY ALL
)
UPDATE steps SET logged_reward = f.reward FROM found f WHERE steps.episode_id = f.episode_id AND steps.step = f.step
AND steps.logged_reward IS DISTINCT FROM f.reward
"""
_FORGET_UNLABELLED = f"""
DELETE FROM labels WHERE kind = 'log' AND (episode_id NOT IN {_LABELLED}
OR step IS NOT NULL AND (episode_id, step) NOT IN (SELECT (episode_id, step) FROM labels WHERE kind <> 'log' AND step IS NOT NULL))
"""


def settle_labels(store: Store) -> None:
    """Let the labels that count be the outcomes of episodes and the rewards of steps. To be called in a transaction.

    It depends on the labels and the logs alone, and not on their order; what nothing labels any more is as the log said.
    """
    if not store.con.sql("SELECT 1 FROM labels LIMIT 1").fetchall():
        return
    for query in (_NOTE_EPISODES, _NOTE_STEPS, _SETTLE_EPISODES, _SETTLE_STEPS, _FORGET_UNLABELLED):
        store.con.execute(query)
