"""The proof that no group lies in two splits, and what a random split would have leaked."""

from __future__ import annotations

from logforge.report.page import (
    Context,
    Finding,
    Number,
    Query,
    Section,
    numbers_of,
    plain,
    stacked,
    table_of,
)
from logforge.splits import PROOF, TaskLeak, task_leak

_OWN = """
WITH splits AS (SELECT * FROM main.splits WHERE dataset = :dataset),
episodes AS (SELECT * FROM main.episodes WHERE episode_id IN (SELECT episode_id FROM splits)),
near_duplicates AS (SELECT * FROM main.near_duplicates WHERE dataset = :dataset),
"""
_PROOF = _OWN + PROOF.strip().removeprefix("WITH ")
_SIZES = """
SELECT
  s.split, count(DISTINCT s.group_key) AS groups, count(*) AS episodes, count(t.episode_id) AS used,
  count(*) FILTER (t.success) AS success, count(*) FILTER (NOT t.success) AS failure,
  count(*) FILTER (t.episode_id IS NOT NULL AND t.success IS NULL) AS unknown, avg(t.success::INTEGER) AS success_rate
FROM splits AS s
LEFT JOIN transitions AS t ON t.dataset = s.dataset AND t.episode_id = s.episode_id AND t.step = 0 AND t.parent_id IS NULL
WHERE s.dataset = :dataset GROUP BY s.split ORDER BY s.split
"""
_REASONS = """
SELECT reason AS joined_by, count(DISTINCT group_key) AS groups, count(*) AS episodes
FROM splits WHERE dataset = :dataset GROUP BY ALL ORDER BY episodes DESC, joined_by
"""
_GROUPS = """
SELECT count(DISTINCT group_key) AS groups, max(episodes) AS largest_group, count(*) FILTER (splits > 1) AS groups_in_two_splits
FROM (SELECT group_key, count(*) AS episodes, count(DISTINCT split) AS splits FROM splits WHERE dataset = :dataset GROUP BY group_key)
"""


def measure(context: Context) -> Section:
    """The proof, run again on what the store holds now."""
    proof, sizes = context.ask("proof", _PROOF), context.ask("sizes", _SIZES)
    groups, reasons = context.ask("groups", _GROUPS), context.ask("reasons", _REASONS)
    return Section(
        "splits",
        "Split proof",
        "Episodes that belong together are on one side. The proof is a query that shares no code with the splitting: it has no rows.",
        (proof, sizes, groups, reasons),
        _numbers(proof, groups, _leak(context)),
        (
            table_of(proof, "What crosses"),
            table_of(sizes, "By split"),
            table_of(reasons, "What joined groups"),
        ),
        (stacked(sizes, "split", ("success", "failure", "unknown"), "Episodes by split and outcome"),),
        tuple(_findings(proof, sizes)),
    )


def _numbers(proof: Query, groups: Query, leak: TaskLeak) -> tuple[Number, ...]:
    return (
        Number(
            "crossing",
            "keys in two splits, or episodes in none",
            len(proof.rows),
            "proof",
            method="rows of the proof",
        ),
        *numbers_of(
            groups,
            {
                "groups": "groups",
                "largest_group": "episodes in the largest",
                "groups_in_two_splits": "groups in two splits",
            },
        ),
        Number(
            "random",
            "test tasks also in train, random 80/20 split",
            plain(leak.random),
            "sizes",
            method="logforge.splits.report.task_leak",
            percent=True,
        ),
        Number(
            "ours",
            "test tasks also in train, this split",
            plain(leak.ours),
            "sizes",
            method="logforge.splits.report.task_leak",
            percent=True,
        ),
    )


def _findings(proof: Query, sizes: Query) -> list[Finding]:
    shares = [row["success_rate"] for row in sizes.dicts() if row["success_rate"] is not None]
    findings = [
        Finding(
            "alarm", f"{len(proof.rows)} keys lie in two splits, or episodes in none: build the dataset again"
        )
        if proof.rows
        else Finding("good", "no task, group, session, user, parent or near-duplicate lies in two splits")
    ]
    if shares and max(shares) - min(shares) > 0.25:
        findings.append(
            Finding(
                "note", f"success rates of the splits lie between {min(shares):.0%} and {max(shares):.0%}"
            )
        )
    missing = {"train", "validation", "test"} - {row["split"] for row in sizes.dicts() if row["used"]}
    if missing:
        findings.append(Finding("alarm", f"no episode in {', '.join(sorted(missing))}"))
    return findings


def _leak(context: Context) -> TaskLeak:
    """The shares of test tasks that train has too, under a random split and under ours."""
    own = context.con.sql("SELECT episode_id, split FROM splits WHERE dataset = ?", params=[context.dataset])
    episodes = context.con.sql("SELECT episode_id, format, task_id, task FROM episodes")
    return task_leak(episodes.pl(), own.pl())
