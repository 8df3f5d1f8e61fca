"""A log that is exported again, has grown, or lies in two files counts once, in whatever order it arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logforge.ingestion import ingest
from logforge.store import Store
from test_ingest import assert_conserved

DATA = Path(__file__).parent / "data" / "connectors"
LOGS = [
    "anthropic_api/growing.jsonl",
    "claude_split.jsonl",
    "codex_rollout/full.jsonl",
    "gemini_cli/appended.jsonl",
    "langfuse/observations.jsonl",
    "langsmith_runs/agent.jsonl",
    "openai_requests/litellm.jsonl",
    "openai_requests/proxy.jsonl",
    "openhands_events/sdk.jsonl",
    "otlp/events.jsonl",
    "otlp/genai.jsonl",
    "otlp/logs.jsonl",
    "otlp/openinference.jsonl",
    "otlp/prompts_repeat.jsonl",
]


def decisions(store: Store) -> list[tuple[object, ...]]:
    """What was decided, with the text around it, and nothing of where it was read."""
    query = (
        "SELECT s.action, s.arguments, s.result, m.content FROM steps s "
        "JOIN messages m ON m.episode_id = s.episode_id AND m.position = s.position ORDER BY ALL"
    )
    return store.con.sql(query).fetchall()


def after(tmp_path: Path, name: str, *groups: list[Path]) -> list[tuple[object, ...]]:
    with Store(tmp_path / f"{name}.duckdb") as store:
        for group in groups:
            ingest(store, group)
            assert_conserved(store)
        return decisions(store)


def rows_of(name: str) -> list[bytes]:
    """The records that are whole."""
    found = []
    for line in (DATA / name).read_bytes().splitlines():
        try:
            json.loads(line)
        except ValueError:
            continue
        found.append(line)
    return found


def written(path: Path, rows: list[bytes]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_was_exported_again_counts_once(name, tmp_path):
    """The second export has other bytes: other blanks, and keys in another order."""
    rows = rows_of(name)
    again = [json.dumps(json.loads(row), sort_keys=True, indent=None).encode() for row in rows]
    one, two = written(tmp_path / "a" / "one.jsonl", rows), written(tmp_path / "b" / "two.jsonl", again)
    once = after(tmp_path, "once", [one])
    assert once
    assert after(tmp_path, "twice", [one], [two]) == once
    assert after(tmp_path, "turned", [two], [one]) == once


# Not otlp/prompts_repeat: its spans stand in no order of time, so that an early part has prompts without the calls before them.
@pytest.mark.parametrize("name", [name for name in LOGS if name != "otlp/prompts_repeat.jsonl"])
def test_a_log_that_grew_counts_once(name, tmp_path):
    rows = rows_of(name)
    whole = written(tmp_path / "a" / "whole.jsonl", rows)
    once = after(tmp_path, "once", [whole])
    for cut in {len(rows) // 3, len(rows) // 2, len(rows) - 1} - {0}:
        early = written(tmp_path / f"b{cut}" / "early.jsonl", rows[:cut])
        assert after(tmp_path, f"grown{cut}", [early], [whole]) == once
        assert after(tmp_path, f"turned{cut}", [whole], [early]) == once


def test_a_request_log_that_was_split_over_files_counts_once(tmp_path):
    """The second file's request shows the first one's decision as history."""
    rows = rows_of("openai_requests/litellm.jsonl")
    whole = written(tmp_path / "a" / "whole.jsonl", rows)
    days = [written(tmp_path / "b" / f"day{number}.jsonl", [row]) for number, row in enumerate(rows)]
    once = after(tmp_path, "once", [whole])
    assert len(once) == 2
    assert after(tmp_path, "days", *([day] for day in days)) == once
    assert after(tmp_path, "turned", *([day] for day in reversed(days))) == once
    assert after(tmp_path, "together", days) == once
