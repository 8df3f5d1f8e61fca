"""A log that is exported again, has grown, or lies in two files counts once, in whatever order it arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.places import DATA
from support.stored import assert_conserved
from support.thoroughness import enough

FIXTURES = DATA / "connectors"
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
    """What was decided, with the text around it and how its run ended, and nothing of where it was read."""
    query = (
        "SELECT s.action, s.arguments, s.result, m.content, e.ending, e.ending_reason FROM steps s "
        "JOIN messages m ON m.episode_id = s.episode_id AND m.position = s.position "
        "JOIN episodes e ON e.episode_id = s.episode_id ORDER BY ALL"
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
    for line in (FIXTURES / name).read_bytes().splitlines():
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


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_grew_counts_once(name, tmp_path):
    rows = rows_of(name)
    whole = written(tmp_path / "a" / "whole.jsonl", rows)
    once = after(tmp_path, "once", [whole])
    cuts = len(rows) // 2, len(rows) // 3, len(rows) - 1
    for cut in set(cuts[: enough(1, 3)]) - {0}:
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


# --- forks of Gemini CLI's sessions ------------------------------------------------------------------------------------


def gemini_session(own: int, messages: list[dict[str, object]]) -> list[bytes]:
    name = f"{own:08}-2222-4333-8444-555555555555"
    header = {"sessionId": name, "projectHash": "abc", "startTime": "2026-01-02T10:00:00Z", "kind": "main"}
    return [json.dumps(row).encode() for row in (header, *messages)]


def gemini_said(number: int, text: str, *calls: str, fork: int = 0) -> dict[str, object]:
    own = f"{number:08}-0000-4000-8000-{fork:012}"
    made = [{"id": call, "name": "list", "args": {"dir": call}, "status": "success"} for call in calls]
    told = [
        {**call, "result": [{"functionResponse": {"id": call["id"], "response": {"output": "a.txt"}}}]}
        for call in made
    ]
    kind = "user" if number % 2 == 0 else "gemini"
    return {"id": own, "type": kind, "content": text} | ({"toolCalls": told} if told else {})


@pytest.mark.parametrize("ids", ["of messages", "of calls"])
def test_a_fork_of_a_gemini_session_counts_what_it_copied_once(ids, tmp_path):
    """A copy keeps its messages' ids, or only those of its calls: what stands before the first call is then named by nothing."""
    fork = 7 if ids == "of calls" else 0
    calls = ["list-1767348000-1a2b", "list-1767348001-3c4d"] if ids == "of calls" else ["0", "1"]
    begin = [
        (0, "Look."),
        (1, "", calls[0]),
        (2, "And there."),
        (3, "", calls[1]),
        (4, "So?"),
        (5, "Two files."),
    ]
    first = [*(gemini_said(*row) for row in begin), gemini_said(6, "Thanks."), gemini_said(7, "Bye.")]
    other = [gemini_said(6, "No.", fork=9), gemini_said(7, "Then not.", fork=9)]
    second = [*(gemini_said(*row, fork=fork) for row in begin), *other]
    main = written(tmp_path / "a" / "session-1.jsonl", gemini_session(1, first))
    copy = written(tmp_path / "b" / "session-2.jsonl", gemini_session(2, second))
    both = after(tmp_path, "both", [main], [copy])
    assert [row[0] for row in both].count("list") == 2
    assert sorted(row[3] for row in both if row[0] == "respond") == ["Bye.", "Then not.", "Two files."]
    assert after(tmp_path, "turned", [copy], [main]) == both
    assert after(tmp_path, "together", [main, copy]) == both


def test_a_gemini_session_that_was_resumed_counts_once(tmp_path):
    """It is written on under its own id."""
    messages = [gemini_said(n, f"text {n}") for n in range(6)]
    early = written(tmp_path / "a" / "session-1.jsonl", gemini_session(1, messages[:4]))
    late = written(tmp_path / "b" / "session-1.jsonl", gemini_session(1, messages))
    once = after(tmp_path, "once", [late])
    assert len(once) == 3
    assert after(tmp_path, "grown", [early], [late]) == once
    assert after(tmp_path, "turned", [late], [early]) == once


# --- LangSmith and Langfuse --------------------------------------------------------------------------------------------


def langsmith_trace(number: int, heard: list[dict[str, object]], said: dict[str, object]) -> bytes:
    own = f"d0000000-0000-4000-8000-{number:012}"
    named = {"id": own, "trace_id": own, "dotted_order": f"2026010210000{number}", "run_type": "llm"}
    times = {"start_time": f"2026-01-02T10:00:0{number}Z", "end_time": f"2026-01-02T10:00:0{number}.5Z"}
    answer = {"choices": [{"message": said, "finish_reason": "stop"}]}
    return json.dumps({**named, **times, "inputs": {"messages": heard}, "outputs": answer}).encode()


def test_a_langsmith_trace_that_goes_on_with_another_counts_the_others_decisions_once(tmp_path):
    """In a thread each turn of the user is a trace, whose runs are sent all that was said before."""
    call = {"id": "call_0123456789ab", "function": {"name": "find", "arguments": "{}"}}
    talk: list[dict[str, object]] = [
        {"role": "user", "content": "find it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0123456789ab", "content": "here"},
        {"role": "assistant", "content": "It is here."},
        {"role": "user", "content": "thanks"},
        {"role": "assistant", "content": "Any time."},
    ]
    first = written(tmp_path / "a" / "one.jsonl", [langsmith_trace(1, talk[:3], talk[3])])
    second = written(tmp_path / "b" / "two.jsonl", [langsmith_trace(2, talk[:5], talk[5])])
    both = after(tmp_path, "both", [first], [second])
    assert [row[0] for row in both] == ["find", "respond", "respond"]
    assert after(tmp_path, "turned", [second], [first]) == both
    assert after(tmp_path, "together", [first, second]) == both


def langfuse_export(folder: Path, rows: list[bytes], windows: int) -> list[Path]:
    """The folders of an export, its observations in files of several time windows."""
    scores = [row for row in rows if b'"data_type"' in row]
    seen = [row for row in rows if row not in scores]
    size = -(-len(seen) // windows)
    for number in range(windows):
        written_below(
            folder / "observations_v2", f"{number}.jsonl", seen[number * size : (number + 1) * size]
        )
    written_below(folder / "scores", "0.jsonl", scores)
    return sorted(path for path in folder.rglob("*.jsonl"))


def written_below(folder: Path, name: str, rows: list[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if rows:
        (folder / name).write_bytes(b"\n".join(rows) + b"\n")


def test_a_langfuse_export_that_was_made_again_counts_once(tmp_path):
    """The second export has other windows, and more: the first was made before the trace's last scores and observations."""
    rows = rows_of("langfuse/observations.jsonl")
    whole = langfuse_export(tmp_path / "whole", rows, 1)
    again = langfuse_export(tmp_path / "again", rows, 3)
    early = langfuse_export(tmp_path / "early", rows[: len(rows) // 2], 1)
    once = after(tmp_path, "once", whole)
    assert once
    assert after(tmp_path, "twice", whole, again) == once
    assert after(tmp_path, "turned", again, whole) == once
    assert after(tmp_path, "grown", early, again) == once
    assert after(tmp_path, "late", again, early) == once
