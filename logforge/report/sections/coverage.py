"""Which tasks, tools and states the dataset covers, and which it does not."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import (
    Context,
    Finding,
    Heat,
    Level,
    Number,
    Query,
    Section,
    Table,
    numbers_of,
    plain,
    table_of,
)

THIN = 5
"""Fewer train episodes than this say little of a task family."""
SINGLE = 0.5
_LACKS = {
    "uncovered": "without a train episode",
    "no success": "without a success in train",
    "thin": f"with fewer than {THIN} train episodes",
}
_FAMILIES = """
families AS (
  SELECT episode_id, format, nullif(regexp_replace(coalesce(task_id, ''), '[^A-Za-z]*[0-9][^A-Za-z]*$', ''), '') AS name FROM episodes
), sizes AS (
  SELECT format, count(DISTINCT name) AS names FROM families GROUP BY format
), family_of AS (
  SELECT f.episode_id, f.format || CASE WHEN f.name IS NULL OR s.names > 60 THEN '' ELSE '/' || f.name END AS family
  FROM families AS f JOIN sizes AS s USING (format)
)"""
_TABLE = f"""
WITH :logged, {_FAMILIES}, firsts AS (SELECT * FROM logged WHERE step = 0)
SELECT
  family, count(*) AS stored, count(*) FILTER (t.split = 'train') AS train, count(*) FILTER (t.split = 'validation') AS validation,
  count(*) FILTER (t.split = 'test') AS test, count(*) FILTER (t.split = 'held_out') AS held_out,
  count(*) FILTER (t.split IS NULL) AS left_out,
  count(*) FILTER (t.split = 'train' AND t.success) AS train_successes,
  CASE
    WHEN count(*) FILTER (t.split = 'train') = 0 AND count(*) FILTER (t.split = 'held_out') > 0 THEN 'held out'
    WHEN count(*) FILTER (t.split = 'train') = 0 THEN 'uncovered'
    WHEN count(*) FILTER (t.split = 'train' AND t.success) = 0 AND count(t.success) > 0 THEN 'no success'
    WHEN count(*) FILTER (t.split = 'train') < {THIN} THEN 'thin'
    ELSE 'covered'
  END AS coverage
FROM family_of LEFT JOIN firsts AS t USING (episode_id) GROUP BY family ORDER BY train, stored DESC, family LIMIT 60
"""
_MATRIX = f"""
WITH :logged, {_FAMILIES}, uses AS (
  SELECT family, action FROM logged JOIN family_of USING (episode_id) WHERE split = 'train'
), top_families AS (
  SELECT family FROM uses GROUP BY family ORDER BY count(*) DESC, family LIMIT 15
), top_actions AS (
  SELECT action FROM uses GROUP BY action ORDER BY count(*) DESC, action LIMIT 20
)
SELECT f.family, a.action, count(u.family) AS decisions
FROM top_families AS f CROSS JOIN top_actions AS a LEFT JOIN uses AS u ON u.family = f.family AND u.action = a.action
GROUP BY ALL ORDER BY ALL
"""
_STATES = """
WITH :logged, states AS (
  SELECT state_key_canonical, count(*) AS visits, count(DISTINCT action) AS actions FROM logged WHERE split = 'train' GROUP BY ALL
)
SELECT
  sum(visits)::BIGINT AS train_decisions, count(*) AS canonical_states, count(*) FILTER (visits > 1) AS visited_again,
  avg((actions = 1)::INTEGER) FILTER (visits > 1) AS single_action
FROM states
"""


def measure(context: Context) -> Section:
    """Families against tools, and clusters of states."""
    families, matrix, states = (
        context.ask("families", _TABLE),
        context.ask("matrix", _MATRIX),
        context.ask("states", _STATES),
    )
    numbers = numbers_of(
        states,
        {
            "train_decisions": "train decisions",
            "canonical_states": "canonical states",
            "visited_again": "of them visited again",
            "single_action": "of those with one action",
        },
        ("single_action",),
    )
    found = _clusters(context) if not context.missing else ((), ())
    return Section(
        "coverage",
        "Coverage",
        "A task family is a format and its task ids without their last number (all tasks of a format where it has more than 60). "
        f"Uncovered: no train episode. Held out: none, on purpose. Thin: fewer than {THIN}. No success: known outcomes, and none of train succeeded.",
        (families, matrix, states),
        numbers + found[0],
        (table_of(families, "Episodes by task family, least covered first"), *found[1]),
        (_heat(matrix),) if matrix.rows else (),
        tuple(_findings(families, {n.name: n.value for n in found[0]}, context.missing)),
    )


def _heat(matrix: Query) -> Heat:
    rows = tuple(sorted(set(matrix.column("family"))))
    columns = tuple(sorted(set(matrix.column("action"))))
    counts = {(family, action): float(n) for family, action, n in matrix.rows if isinstance(n, int)}
    values = tuple(tuple(counts[row, column] for column in columns) for row in rows)
    return Heat(
        "Train decisions by task family and action (the 15 and 20 most frequent)", rows, columns, values
    )


def _clusters(context: Context) -> tuple[tuple[Number, ...], tuple[Table, ...]]:
    clusters, told = context.clusters, context.train.told
    method = f"k-means on the train split's observations, seed {context.seed}, {told}; clusters of fewer than 5 are not judged"
    figures = (
        ("clusters", "state clusters", clusters.total, False),
        ("judged_clusters", "of them judged", len(clusters.told), False),
        ("single_action_clusters", "clusters with a single action", clusters.single, True),
        ("cluster_entropy", "bits: action entropy in a cluster", clusters.entropy, False),
    )
    numbers = tuple(
        Number(name, label, plain(value), "states", method=method, percent=percent)
        for name, label, value, percent in figures
    )
    names = context.manifest.vocabulary.actions
    rows = tuple(
        (
            place,
            c.decisions,
            c.actions,
            plain(c.entropy),
            names[c.commonest],
            plain(c.share),
            plain(c.success_rate),
        )
        for place, c in enumerate(clusters.told[:20], 1)
    )
    columns = (
        "cluster",
        "decisions",
        "actions",
        "entropy_bits",
        "commonest_action",
        "its_share",
        "success_rate",
    )
    return numbers, (Table("State clusters, largest first (20 at most)", "states", columns, rows, method),)


def _findings(families: Query, numbers: dict[str, object], missing: str) -> Iterator[Finding]:
    for kind, text in _LACKS.items():
        found = [row for row in families.dicts() if row["coverage"] == kind]
        if found:
            named = ", ".join(str(row["family"]) for row in found[:8])
            more = f" and {len(found) - 8} more" if len(found) > 8 else ""
            level: Level = "alarm" if kind == "uncovered" and found[0]["stored"] >= THIN else "note"
            yield Finding(level, f"task families {text} ({len(found)}): {named}{more}")
    single = numbers.get("single_action_clusters")
    if isinstance(single, float) and single > SINGLE:
        yield Finding("note", f"in {single:.0%} of the state clusters one action alone was ever taken")
    if missing:
        yield Finding("note", f"no state clusters: {missing}")
