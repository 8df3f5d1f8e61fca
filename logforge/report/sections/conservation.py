"""Nothing is lost in silence: records of the logs, episodes of the store, episodes of the dataset."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.report.page import Context, Finding, Query, Section, numbers_of, table_of

_LAW = """
SELECT
  count(*) AS sources, sum(records)::BIGINT AS records, sum(kept)::BIGINT AS kept, sum(duplicates)::BIGINT AS duplicates,
  sum(quarantined)::BIGINT AS quarantined, sum(skipped)::BIGINT AS skipped,
  (sum(records) - sum(kept) - sum(duplicates) - sum(quarantined) - sum(skipped))::BIGINT AS difference
FROM sources
"""
_BROKEN = """
SELECT path, records, kept, duplicates, quarantined, skipped FROM sources
WHERE records <> kept + duplicates + quarantined + skipped ORDER BY path LIMIT 20
"""
_EPISODES = """
SELECT
  (SELECT count(*) FROM episodes) AS stored,
  (SELECT count(DISTINCT episode_id) FROM transitions WHERE dataset = :dataset AND parent_id IS NULL) AS used,
  (SELECT count(DISTINCT q.episode_id) FROM quarantine AS q JOIN episodes AS e USING (episode_id)
   WHERE q.dataset = :dataset AND q.level = 'transition') AS left_out,
  (SELECT count(*) FROM episodes WHERE episode_id NOT IN (SELECT episode_id FROM transitions WHERE dataset = :dataset)
   AND episode_id NOT IN (SELECT episode_id FROM quarantine WHERE dataset = :dataset AND episode_id IS NOT NULL)) AS unaccounted
"""
_REASONS = """
SELECT level, rule, reason, count(*) AS rows, sum(records)::BIGINT AS records, min(locator) AS first
FROM quarantine WHERE dataset IS NULL OR dataset = :dataset
GROUP BY ALL ORDER BY rows DESC, level, rule, reason LIMIT 20
"""
_SKIPPED = """
SELECT entry.key AS reason, sum(entry.value)::BIGINT AS records, count(*) AS sources
FROM (SELECT unnest(map_entries(skip_reasons)) AS entry FROM sources) GROUP BY ALL ORDER BY records DESC, reason LIMIT 20
"""


def measure(context: Context) -> Section:
    """The conservation law, and what was left out with its reason."""
    law, broken = context.ask("law", _LAW), context.ask("broken", _BROKEN)
    episodes = context.ask("episodes", _EPISODES)
    reasons, skipped = context.ask("reasons", _REASONS), context.ask("skipped", _SKIPPED)
    numbers = numbers_of(law, {name: name for name in law.columns})
    numbers += numbers_of(
        episodes,
        {
            "stored": "episodes in the store",
            "used": "in the dataset",
            "left_out": "left out with a reason",
            "unaccounted": "in neither (ingested after the build)",
        },
    )
    return Section(
        "conservation",
        "Conservation",
        "For every source: records = kept + duplicates + quarantined + skipped. Every stored episode is in the dataset or left "
        "out with a reason.",
        (law, broken, episodes, reasons, skipped),
        numbers,
        (
            table_of(broken, "Sources that break the law"),
            table_of(reasons, "Set aside, by reason"),
            table_of(skipped, "Skipped, by reason"),
        ),
        findings=tuple(_findings(broken, episodes)),
    )


def _findings(broken: Query, episodes: Query) -> Iterator[Finding]:
    if broken.rows:
        yield Finding("alarm", f"{len(broken.rows)} sources do not add up: records are lost or counted twice")
    else:
        yield Finding("good", "every record of every source is accounted for")
    unaccounted, left = episodes.value("unaccounted"), episodes.value("left_out")
    if unaccounted:
        yield Finding("note", f"{unaccounted:,} episodes were ingested after the build: build again")
    if left and left * 5 > episodes.value("stored"):
        yield Finding("note", f"{left:,} of {episodes.value('stored'):,} stored episodes are left out")
