"""What the connectors count in the real logs, against an independent count; every difference has its reason in docs/formats.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import get
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Episode, Reject, Skip
from support.real_counts import EXPECTED, LOGS, counts_in, independent, totals_as_told

FORMATS = ("claude_code", "star", "swe_agent_traj", "tau_bench")

pytestmark = pytest.mark.skipif(not EXPECTED.is_file(), reason="the shared logs are not here")

DIFFERENCES = {
    ("claude_code", "episodes"): "a sub-agent's run in the same file is an episode of its own",
    ("claude_code", "messages"): "one API message over several lines is one message",
    ("star", "episodes"): "a dialogue in which nobody spoke is skipped",
    ("star", "messages"): "instructions, clicks and requests for suggestions are no messages",
    (
        "swe_agent_traj",
        "messages",
    ): "demonstrations are no messages; the last observation is one, also where only `trajectory` has it",
    (
        "tau_bench",
        "labelled",
    ): "a run stopped by the step limit has no outcome, its reward of 0.0 is a placeholder",
}
"""Why a count differs from the independent one; docs/formats.md has the same words."""


def files() -> list[Path]:
    return sorted(path for name in FORMATS if (LOGS / name).is_dir() for path in (LOGS / name).iterdir())


def counts_of(path: Path, name: str) -> Counter[str]:
    readings = list(get(name).read(Source(path, path.name)))
    counts = counts_in(item for item in readings if isinstance(item, Episode))
    for item in readings:
        assert not isinstance(item, Reject), item
        if isinstance(item, Skip):
            counts[f"skipped {item.reason}"] += item.records
    return counts


def adjust(counts: Counter[str], path: Path, name: str) -> None:
    """Change the independent counts by what the documented differences come to, counted on the raw file."""
    if name == "claude_code":
        _adjust_claude(counts, path)
    elif name == "star":
        events = json.loads(path.read_text("utf-8"))["Events"]
        said = [e for e in events if e["Action"] in ("utter", "pick_suggestion", "query", "return_item")]
        counts["messages"] = len(said)
        counts["episodes"] = int(bool(said))
        counts["skipped empty_conversation"] = int(not said)
    elif name == "swe_agent_traj":
        document = json.loads(path.read_text("utf-8"))
        counts["messages"] -= sum(bool(message.get("is_demo")) for message in document["history"])
        counts["messages"] += document["history"][-1]["role"] == "assistant"
    elif name == "tau_bench":
        rows = json.loads(path.read_text("utf-8"))
        counts["labelled"] -= sum(row["info"].get("reward_info", 1) is None for row in rows)


def _adjust_claude(counts: Counter[str], path: Path) -> None:
    text = path.read_text("utf-8")
    rows = (
        json.loads(text)["loglines"]
        if path.suffix == ".json"
        else [json.loads(line) for line in text.splitlines()]
    )
    lines = [row for row in rows if row["type"] in ("user", "assistant")]
    ids = Counter(row["message"]["id"] for row in lines if row["message"].get("id"))
    counts["messages"] -= sum(count - 1 for count in ids.values())
    roots = sum(bool(row.get("isSidechain")) and row["parentUuid"] is None for row in lines)
    counts["episodes"] += roots if any(not row.get("isSidechain") for row in lines) else 0
    counts["skipped summary_line"] = sum(row["type"] == "summary" for row in rows)


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_counts_agree_with_the_independent_ones(path):
    name = path.parent.name
    expected = independent(path)
    adjust(expected, path, name)
    assert {k: v for k, v in counts_of(path, name).items() if v} == {k: v for k, v in expected.items() if v}


TOTALS: dict[str, dict[str, Any]] = {
    "claude_code": {"episodes": 11, "messages": 409, "tool_calls": 186, "tool_results": 186},
    "star": {
        "episodes": 139,
        "messages": 3408,
        "tool_calls": 488,
        "tool_results": 488,
        "success": 110,
        "labelled": 132,
    },
    "swe_agent_traj": {"episodes": 12, "messages": 252, "tool_calls": 114, "tool_results": 114},
    "tau_bench": {
        "episodes": 150,
        "messages": 3916,
        "tool_calls": 862,
        "tool_results": 862,
        "success": 63,
        "labelled": 147,
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_totals_and_their_differences_are_those_of_the_documentation(name):
    files_of_it = (path for path in files() if path.parent.name == name)
    counted = ((independent(path), _without_skips(counts_of(path, name))) for path in files_of_it)
    assert totals_as_told("formats.md", name, counted, DIFFERENCES) == TOTALS[name]


def _without_skips(counts: Counter[str]) -> Counter[str]:
    return Counter({key: count for key, count in counts.items() if not key.startswith("skipped")})


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("chat_feedback/kto_en_demo.json", {"labelled": 300, "success": 150}),
        ("adp_raw/swe-gym_openhands_sampled_trajectories.sample_raw.json", {"labelled": 5, "success": 5}),
    ],
)
def test_other_files_of_openai_messages_are_read_right(path, counts):
    expected = independent(LOGS / path)
    assert {key: expected[key] for key in counts} == counts
    assert {k: v for k, v in counts_of(LOGS / path, "openai_messages").items() if v} == {
        k: v for k, v in expected.items() if v
    }
