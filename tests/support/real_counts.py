"""Counts of real logs: what connectors make of them, what was counted without connectors, and what the pages tell of both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from logforge.schemas.episode import Episode
from support.places import ROOT, SHARED

LOGS = SHARED / "logs"
EXPECTED = LOGS / "expected_counts.json"


def counts_in(episodes: Iterable[Episode]) -> Counter[str]:
    """What is in the episodes that a connector gave."""
    counts: Counter[str] = Counter()
    for episode in episodes:
        counts["episodes"] += 1
        counts["messages"] += len(episode.messages)
        counts["tool_calls"] += sum(step.kind == "tool" for step in episode.steps)
        counts["tool_results"] += sum(step.result_position is not None for step in episode.steps)
        counts["labelled"] += episode.success is not None
        counts["success"] += episode.success is True
    return counts


def independent(path: Path) -> Counter[str]:
    """What the count without connectors found in a file of the shared logs."""
    entry = json.loads(EXPECTED.read_text("utf-8"))[path.relative_to(LOGS).as_posix()]
    same = {key: entry[key] or 0 for key in ("episodes", "messages", "tool_calls", "tool_results")}
    labels = {"labelled": entry["episodes_with_terminal_reward"], "success": entry["episodes_success"] or 0}
    return Counter(same | labels)


def totals_as_told(
    page: str,
    name: str,
    counted: Iterable[tuple[Counter[str], Counter[str]]],
    differences: Mapping[tuple[str, str], str],
) -> Counter[str]:
    """The sums of what a connector found in a format's files. `counted` has the independent counts first.

    Fails unless both differ where the page says so, by what it says and for the reason that it gives.
    """
    plain: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for expected, found in counted:
        plain += expected
        total += found
    document = (ROOT / "docs" / page).read_text("utf-8")
    differing = {key for key in plain | total if plain[key] != total[key]}
    assert differing == {key for folder, key in differences if folder == name}
    for key in differing:
        assert f"| {name} | {key} | {plain[key]} | {total[key]} | {differences[name, key]} |" in document
    return total
