"""How far the outcome labels can be trusted: whether sources of labels agree, and whether length buys a good one."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import Context, Finding, Query, Section, numbers_of, table_of

POOR = 0.6
"""Cohen's κ below this is no good agreement (Landis and Koch 1977: substantial from 0.61)."""
STRONG = 0.3
FEWEST = 10
_LABELS = """
WITH :logged, own AS (
  SELECT episode_id, any_value(success) AS success FROM logged WHERE step = 0 GROUP BY ALL
), rewarded AS (
  SELECT episode_id, sum(logged_reward) > 0 AS positive FROM steps WHERE logged_reward IS NOT NULL GROUP BY ALL
), scores AS (
  SELECT format, min(score) >= 0 AND max(score) <= 1 AS unit FROM episodes WHERE isfinite(score) GROUP BY format
), labels AS (
  SELECT o.episode_id, 'success' AS source, o.success AS label FROM own AS o
  UNION ALL
  SELECT o.episode_id, 'score ≥ 0.5', e.score >= 0.5 FROM own AS o JOIN episodes AS e USING (episode_id) JOIN scores USING (format)
  WHERE unit AND isfinite(e.score)
  UNION ALL
  SELECT o.episode_id, 'logged reward > 0', r.positive FROM own AS o JOIN rewarded AS r USING (episode_id)
)"""
_SOURCES = f"""{_LABELS}
SELECT source, count(label) AS labelled, avg(label::INTEGER) AS positive FROM labels GROUP BY source ORDER BY source
"""
_AGREEMENT = f"""{_LABELS}, pairs AS (
  SELECT a.source AS source_a, b.source AS source_b, a.label::INTEGER AS a, b.label::INTEGER AS b
  FROM labels AS a JOIN labels AS b ON a.episode_id = b.episode_id AND a.source < b.source
  WHERE a.label IS NOT NULL AND b.label IS NOT NULL
), agreed AS (
  SELECT
    source_a, source_b, count(*) AS episodes, avg((a = b)::INTEGER) AS agreement,
    avg(a) * avg(b) + (1 - avg(a)) * (1 - avg(b)) AS by_chance, count(*) FILTER (a > b) AS only_a, count(*) FILTER (b > a) AS only_b
  FROM pairs GROUP BY ALL
)
SELECT *, (agreement - by_chance) / nullif(1 - by_chance, 0) AS kappa FROM agreed ORDER BY ALL
"""
_VERBOSITY = """
WITH :logged, said AS (
  SELECT episode_id, sum(length(content)) AS characters FROM messages WHERE role = 'assistant' GROUP BY ALL
), own AS (
  SELECT l.success::INTEGER AS success, s.characters, n.steps FROM logged AS l LEFT JOIN said AS s USING (episode_id)
  JOIN (SELECT episode_id, count(*) AS steps FROM logged GROUP BY ALL) AS n USING (episode_id)
  WHERE l.step = 0 AND l.success IS NOT NULL
)
SELECT
  count(*) AS labelled,
  CASE WHEN stddev_pop(success) > 0 AND stddev_pop(ln(1 + characters)) > 0 THEN corr(success, ln(1 + characters)) END AS verbosity,
  CASE WHEN stddev_pop(success) > 0 AND stddev_pop(steps) > 0 THEN corr(success, steps) END AS length
FROM own
"""
_TRIALS = """
WITH :logged, tasks AS (
  SELECT e.format, coalesce(e.group_id, e.task_id) AS task, count(*) AS trials, avg(l.success::INTEGER) AS rate
  FROM logged AS l JOIN episodes AS e USING (episode_id)
  WHERE l.step = 0 AND l.success IS NOT NULL AND coalesce(e.group_id, e.task_id) IS NOT NULL GROUP BY ALL HAVING count(*) > 1
)
SELECT count(*) AS tasks_tried_again, avg((rate BETWEEN 0.0001 AND 0.9999)::INTEGER) AS mixed_tasks FROM tasks
"""


def measure(context: Context) -> Section:
    """Agreement of label sources (Cohen's κ), and correlations of the label with verbosity and length."""
    sources, agreement = context.ask("sources", _SOURCES), context.ask("agreement", _AGREEMENT)
    verbosity, trials = context.ask("verbosity", _VERBOSITY), context.ask("trials", _TRIALS)
    numbers = numbers_of(
        verbosity,
        {
            "labelled": "episodes with a label",
            "verbosity": "correlation of success with what the agent wrote (log characters)",
            "length": "correlation of success with steps",
        },
    ) + numbers_of(
        trials,
        {"tasks_tried_again": "tasks tried more than once", "mixed_tasks": "of them with both outcomes"},
        ("mixed_tasks",),
    )
    return Section(
        "labels",
        "Outcome labels",
        "Cohen's κ = (agreement − by chance) / (1 − by chance) for each two sources of a label: the logged success, a score of at least "
        "0.5 where a format's scores lie between 0 and 1, a positive sum of logged rewards. Many connectors read success from the "
        "score itself: then they agree by construction.",
        (sources, agreement, verbosity, trials),
        numbers,
        (table_of(sources, "Sources of labels"), table_of(agreement, "Agreement")),
        findings=tuple(_findings(agreement, verbosity)),
    )


def _findings(agreement: Query, verbosity: Query) -> Iterator[Finding]:
    for row in agreement.dicts():
        if row["episodes"] >= FEWEST and row["kappa"] is not None and row["kappa"] < POOR:
            yield Finding(
                "alarm",
                f"{row['source_a']} and {row['source_b']} disagree: κ = {row['kappa']:.2f} on {row['episodes']:,} episodes",
            )
    if verbosity.value("labelled") >= FEWEST:
        for name, what in (("verbosity", "what the agent wrote"), ("length", "the number of steps")):
            found = verbosity.value(name)
            if found is not None and abs(found) > STRONG:
                yield Finding(
                    "note",
                    f"success goes with {what} (correlation {found:.2f}): a judge, or a reward, may be paying for length",
                )
    if not agreement.rows:
        yield Finding("note", "there is one source of labels at most: nothing to hold it against")
