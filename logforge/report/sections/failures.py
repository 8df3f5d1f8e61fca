"""Why episodes failed: one label each, by a rule that looks at the steps alone."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.connectors.episodes import SOFT_REFUSAL
from logforge.report.page import Context, Finding, Query, Section, numbers_of, stacked, table_of
from logforge.rewards.sql import input_stages

RULE = (
    ("cut off", "the log stops before the end", "ending = 'truncated'"),
    ("loop", "a call came back, unchanged, within the detector's reach, twice or more", "loops >= 2"),
    ("no progress", "the detector `no_progress` fired: calls in a row brought nothing new", "idle > 0"),
    ("premature close", "it ended though its last call failed, or none ever worked", "premature"),
    ("invalid tool", "a tool was called that was not offered", "ghosts > 0"),
    ("error", "a call failed; the detail is the class of the first error", "first_error IS NOT NULL"),
    ("no call", "no tool was called at all", "calls = 0"),
    ("wrong result", "none of these: it ended in order, and failed", "TRUE"),
)
"""The labels, what each means, and its condition; the first that holds is the episode's."""
_JUDGED = """
judged AS (
  SELECT
    episode_id, count(*) FILTER (loop) AS loops, count(*) FILTER (no_progress) AS idle, bool_or(premature_close) AS premature,
    count(*) FILTER (invalid_tool) AS ghosts, arg_min(error_class, step) FILTER (error_class NOT IN ('none', '{soft}')) AS first_error,
    any_value(ending) AS ending, any_value(ending_reason) AS ending_reason, any_value(calls) AS calls, count(*) AS steps
  FROM steps_seen WHERE success = FALSE GROUP BY episode_id
), labelled AS (
  SELECT *, CASE {cases} END AS label FROM judged
)"""
_LABELS = """
SELECT
  label, count(*) AS episodes, count(*) / sum(count(*)) OVER () AS share, avg(steps) AS mean_steps,
  avg(t.return_to_go) AS mean_return, min(e.locator) AS example
FROM labelled JOIN episodes AS e USING (episode_id)
JOIN transitions AS t ON t.dataset = :dataset AND t.episode_id = e.episode_id AND t.step = 0
GROUP BY label ORDER BY episodes DESC, label
"""
_DETAILS = """
SELECT
  label, CASE WHEN label = 'error' THEN first_error ELSE ending_reason END AS detail, coalesce(first_error, '—') AS first_error,
  count(*) AS episodes
FROM labelled GROUP BY ALL ORDER BY episodes DESC, label, detail, first_error LIMIT 25
"""
_PREMATURE = """
SELECT
  (SELECT count(*) FROM labelled) AS failed,
  count(DISTINCT episode_id) FILTER (premature_close) AS closed_early,
  count(DISTINCT episode_id) FILTER (premature_close AND success) AS closed_early_successes
FROM steps_seen
"""

_EARLY = """
SELECT s.episode_id, any_value(s.ending_reason) AS ending_reason, any_value(s.last_call_status) AS last_call, any_value(e.locator) AS locator
FROM steps_seen AS s JOIN episodes AS e USING (episode_id) WHERE s.premature_close AND s.success
GROUP BY s.episode_id ORDER BY s.episode_id LIMIT 20
"""


def labelled(context: Context) -> str:
    """Common table expressions that end with `labelled`: every failed episode of the dataset with its label."""
    cases = " ".join(f"WHEN {condition} THEN '{label}'" for label, _, condition in RULE)
    return f"{detected(context)},{_JUDGED.format(cases=cases, soft=SOFT_REFUSAL)}"


def measure(context: Context) -> Section:
    """The taxonomy of failed episodes."""
    stages = f"WITH {labelled(context)}"
    labels = context.ask("labels", stages + _LABELS)
    details, closed = context.ask("details", stages + _DETAILS), context.ask("closed", stages + _PREMATURE)
    early = context.ask("early", stages + _EARLY)
    told = "; ".join(f"{label}: {meaning}" for label, meaning, _ in RULE)
    return Section(
        "failures",
        "Failures",
        f"One label per failed episode, the first that fits. {told}.",
        (labels, details, closed, early),
        numbers_of(
            closed,
            {
                "failed": "failed episodes",
                "closed_early": "episodes closed too early",
                "closed_early_successes": "of them logged as successes",
            },
        ),
        (
            table_of(labels, "Failed episodes by label"),
            table_of(details, "In detail"),
            table_of(early, "Logged as successes, though closed too early"),
        ),
        (stacked(labels, "label", ("episodes",), "Failed episodes"),) if labels.rows else (),
        tuple(_findings(labels, closed)),
    )


def _findings(labels: Query, closed: Query) -> Iterator[Finding]:
    early = closed.value("closed_early_successes")
    if early:
        yield Finding(
            "note",
            f"{early:,} episodes count as successes though they were closed too early: pay `success AND NOT premature_close`",
        )
    for row in labels.dicts()[:1]:
        if row["share"] > 0.5:
            yield Finding("note", f"{row['share']:.0%} of the failures are of one kind: {row['label']}")


_COLUMNS = ("loop", "no_progress", "premature_close", "error_class", "invalid_tool")


def detected(context: Context) -> str:
    """Common table expressions that end with `steps_seen`: every logged step of the dataset, with what the detectors say.

    `is_news` says whether a call brought something: it worked, and its result was not seen before in the episode.
    """
    stages, last = input_stages(_COLUMNS, context.detectors, final=False)
    within = "SELECT episode_id FROM transitions WHERE dataset = :dataset AND parent_id IS NULL AND step = 0"
    return ",\n".join([*stages, f"steps_seen AS (\n  SELECT * FROM {last} WHERE episode_id IN ({within})\n)"])
