"""Conversations in Parquet and Arrow files: what the padding of their types added is gone, and nothing else is."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logforge.connectors.detection import detect
from logforge.connectors.records.base import look
from logforge.connectors.records.source import Source
from logforge.lineage.locate import resolve
from logforge.schemas.episode import Episode, Reject


def read(path: Path) -> list[Any]:
    return list(detect(path)[0].connector.read(Source(path, "log")))


def call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "messages": [
            {"role": "user", "content": "Go."},
            call("1", "forecast", {"city": "Tartu"}),
            {"role": "tool", "tool_call_id": "1", "content": "rain"},
            call("2", "mail", {"to": ["x"], "body": {"text": "rain", "html": None}, "copies": 3}),
            {"role": "tool", "tool_call_id": "2", "content": "sent"},
            call("3", "now", {}),
            {"role": "tool", "tool_call_id": "3", "content": ""},
            {"role": "assistant", "content": "Done."},
        ],
        "tools": [{"name": "forecast"}, {"name": "mail"}, {"name": "now"}],
        "reward": 1.0,
    },
    {"id": "b", "messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hi!"}]},
]


def write(path: Path, rows: list[dict[str, Any]], **more: Any) -> Path:
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        pq.write_table(table, path, **more)
    else:
        opened = pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file
        with opened(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("name", ["x.parquet", "file.arrow", "stream.arrow"])
def test_a_call_has_its_own_arguments_and_no_other_call_s(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS)
    assert [claim.connector.name for claim in detect(path)][:1] == ["openai_messages"]
    first, second = (item for item in read(path) if isinstance(item, Episode))
    assert [json.loads(step.arguments) for step in first.steps if step.kind == "tool"] == [
        {"city": "Tartu"},
        {"to": ["x"], "body": {"text": "rain"}, "copies": 3},
        {},
    ]
    assert (first.tools, first.score, first.locator) == (["forecast", "mail", "now"], 1.0, "log#/0")
    assert (second.native_id, second.tools, second.locator) == ("b", None, "log#/1")
    assert second.metadata == '{"id":"b"}'


@pytest.mark.parametrize("name", ["x.parquet", "file.arrow", "stream.arrow"])
def test_the_rows_are_those_of_json_lines(tmp_path: Path, name: str) -> None:
    lines = tmp_path / "x.jsonl"
    bare = json.loads(json.dumps(ROWS).replace(', "html": null', ""))
    lines.write_text("".join(json.dumps(row) + "\n" for row in bare), "utf-8")
    found = [item.episode_id for item in read(write(tmp_path / name, ROWS)) if isinstance(item, Episode)]
    assert found == [item.episode_id for item in read(lines) if isinstance(item, Episode)]


def test_the_head_shows_the_keys_of_objects_in_columns(tmp_path: Path) -> None:
    head = look(write(tmp_path / "x.parquet", ROWS))
    assert head.keys["messages"] == {"role", "content", "tool_calls", "tool_call_id"}
    assert head.keys["messages.tool_calls.function"] == {"name", "arguments"}
    assert head.top == {"id", "messages", "tools", "reward"}
    assert json.loads(head.data)["messages"][0] == {"role": "user", "content": "Go."}


@pytest.mark.parametrize("name", ["x.parquet", "file.arrow", "stream.arrow"])
def test_a_locator_leads_back_to_the_row(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS)
    assert resolve(path, "log#/1/messages/0/content", "log") == "Hi."
    assert resolve(path, "log#/0/messages/3/tool_calls/0/function/arguments/copies", "log") == 3
    with pytest.raises(LookupError):
        resolve(path, "log#/2/messages", "log")


def test_rows_of_several_groups_are_counted_through(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", ROWS * 5, row_group_size=3)
    assert [where for where, _ in Source(path, "log").records()] == [f"log#/{i}" for i in range(10)]


def test_a_long_row_is_set_aside_alone(tmp_path: Path) -> None:
    long = {"id": "c", "messages": [{"role": "user", "content": "x" * 50_000}]}
    path = write(tmp_path / "x.parquet", [ROWS[1], long, ROWS[1] | {"id": "d"}])
    found = [row for _, row in Source(path, "log", max_record=10_000).records()]
    assert [getattr(row, "rule", None) for row in found] == [None, "element_too_long", None]
    assert isinstance(found[1], Reject)
    assert (found[0]["id"], found[1].locator, found[2]["id"]) == ("b", "log#/1", "d")


@pytest.mark.parametrize("name", ["x.parquet", "file.arrow", "stream.arrow"])
@pytest.mark.parametrize("cut", [7, 60, 400])
def test_a_torn_file_gives_what_is_whole_and_a_reason(tmp_path: Path, name: str, cut: int) -> None:
    path = write(tmp_path / name, ROWS)
    path.write_bytes(path.read_bytes()[:-cut])
    found = [row for _, row in Source(path, "log").records()]
    rules = [row.rule for row in found if isinstance(row, Reject)]
    assert rules == ["malformed_record"] or (
        name == "stream.arrow" and [row["id"] for row in found] == ["a", "b"]
    )
    detect(path)


def test_the_memory_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    row = {"id": "a", "messages": [{"role": "user", "content": "ab" * 50_000}] * 4}
    path = write(tmp_path / "x.parquet", [row | {"id": str(i)} for i in range(200)], row_group_size=200)
    tracemalloc.start()
    for _ in Source(path, "log").records():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20, f"{peak >> 20} MB for rows of 80 MB in all"


def test_values_that_json_has_no_word_for(tmp_path: Path) -> None:
    table = pa.table(
        {
            "map": pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
            "list": pa.array([[None, 1.5, float("nan")]]),
            "none": pa.array([None], pa.string()),
            "bytes": pa.array([b"ab"]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert [row for _, row in Source(tmp_path / "x.parquet", "log").records()] == [
        {"map": {"a": 1}, "list": [None, 1.5, None], "bytes": "ab"}
    ]


def test_runs_of_a_coding_agent_as_the_hub_has_them(tmp_path: Path) -> None:
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    messages = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Mend it."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"role": "tool", "name": "bash", "tool_call_id": "t1", "content": "a.py"},
        {"role": "assistant", "content": "Done."},
    ]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    row = {
        "trajectory_id": "x",
        "instance_id": "org__repo-1",
        "trajectory": messages,
        "tools": tools,
        "model_patch": "diff",
    }
    path = write(tmp_path / "x.parquet", [row | {"resolved": True}])
    (episode,) = read(path)
    assert isinstance(episode, Episode)
    assert next((s.action, s.arguments, s.result) for s in episode.steps) == (
        "bash",
        '{"command":"ls"}',
        "a.py",
    )
    assert (episode.success, episode.tools, episode.native_id) == (True, ["bash"], "org__repo-1")
    assert json.loads(episode.metadata) == {
        "trajectory_id": "x",
        "instance_id": "org__repo-1",
        "model_patch": "diff",
        "resolved": True,
    }
