"""What fuzzing found, each as the smallest log that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logforge.connectors.detection import get
from logforge.connectors.mapping.spec import parse_mapping
from logforge.connectors.records.base import HEAD_BYTES, Source, look
from logforge.lineage.locate import resolve
from logforge.schemas.episode import Episode, Reject
from logforge.schemas.errors import SpecError
from logforge.testing.soundness import counted, episodes_in, unsound
from support.fuzzing import limited
from support.places import DATA

FIXTURES = DATA / "connectors"


def read(path: Path, name: str) -> list[Any]:
    with limited(5):
        readings = list(get(name).read(Source(path, "log")))
    assert list(unsound(readings)) == []
    return readings


def with_value(value: Any, way: str, new: Any = ...) -> Any:
    """A JSON value with the value at a path changed, or taken out."""
    *before, last = way.split("/")
    at = value
    for key in before:
        at = at[int(key) if isinstance(at, list) else key]
    if new is ...:
        del at[last]
    else:
        at[int(last) if isinstance(at, list) else last] = new
    return value


def fixture(name: str) -> Any:
    text = (FIXTURES / name).read_text("utf-8")
    return (
        json.loads(text) if not name.endswith(".jsonl") else [json.loads(line) for line in text.splitlines()]
    )


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": "' + b'\\"' * HEAD_BYTES,
        b'{"a": "' + b"\\\\" * HEAD_BYTES,
        b'{"a": "x' + b'\\\\\\"{' * HEAD_BYTES,
        b"text" + b"\n" * HEAD_BYTES,
        b"text" + b"\n \t\r" * HEAD_BYTES,
    ],
    ids=["quotes", "backslashes", "both", "line_ends", "blanks"],
)
def test_a_head_is_looked_at_in_linear_time(tmp_path, data):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with limited(2):
        look(path)


def test_a_head_of_nothing_but_nesting_takes_little_memory(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a":' * (HEAD_BYTES // 5))
    assert sum(map(len, look(path).keys)) < 1_000_000


def test_a_date_that_python_has_no_room_for_costs_no_row_of_a_parquet_file(tmp_path):
    rows = {
        "episode_id": pa.array(["a", "a"]),
        "step_id": pa.array([0, 1]),
        "observation": pa.array(["seen", "seen again"]),
        "action": pa.array(["go", "stop"]),
        "timestamp": pa.array([2**53, 0], pa.timestamp("s")),
        "day": pa.array([[2**31 - 1], [0]], pa.list_(pa.date32())),
        "reward": pa.array([0.0, 1.0]),
        "done": pa.array([False, True]),
    }
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    readings = read(tmp_path / "x.parquet", "step_table")
    (episode,) = episodes_in(readings)
    assert [step.action for step in episode.steps] == ["go", "stop"]
    assert not any(isinstance(item, Reject) for item in readings)
    assert resolve(tmp_path / "x.parquet", "log#/0/observation", "log") == "seen"


def test_a_header_that_is_no_utf8_is_read(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"episode_id,step_id,action,not\xc3e,reward\na,0,go,n,1\na,1,stop,n,2\n")
    (episode,) = episodes_in(read(path, "step_table"))
    assert [step.action for step in episode.steps] == ["go", "stop"]
    json.dumps(episode.metadata).encode()


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_place_of_a_cell_is_found_whatever_ends_the_lines(tmp_path, ends):
    rows = [
        "episode_id,step_id,observation,action",
        "a,0,one\u2028line\x85,go",
        'a,1,"two\x0b\x1c",stop',
        "a,2,three,go",
    ]
    path = tmp_path / "x.csv"
    path.write_bytes(ends.join(rows).encode())
    (episode,) = episodes_in(read(path, "step_table"))
    seen = [
        resolve(path, message.locator, "log") for message in episode.messages if message.role != "assistant"
    ]
    assert seen == ["one\u2028line\x85", "two\x0b\x1c", "three"]


def test_runs_of_which_no_message_can_be_kept_are_set_aside_once(tmp_path):
    rows = fixture("langsmith_runs/langsmith_py_wrap_openai_.json")
    rows = with_value(rows, "post/0/inputs/messages/0/role", "ghost")
    rows = with_value(rows, "patch/0", json.dumps(rows["patch"][0]))
    (tmp_path / "x.json").write_text(json.dumps(rows))
    readings = read(tmp_path / "x.json", "langsmith_runs")
    assert not episodes_in(readings)
    assert counted(readings) == 1


def test_a_message_whose_id_is_an_object_costs_nothing(tmp_path):
    whole = fixture("inspect_json/cases.json")
    wanted = len(episodes_in(read(FIXTURES / "inspect_json" / "cases.json", "inspect_json")))
    (tmp_path / "x.json").write_text(json.dumps(with_value(whole, "samples/0/messages/0/id", {"a": 1})))
    assert len(episodes_in(read(tmp_path / "x.json", "inspect_json"))) == wanted


def test_a_session_that_names_itself_as_its_parent_has_none(tmp_path):
    rows = fixture("codex_rollout/fc_args_1.jsonl")
    own = "0196f4a0-1b2c-7d3e-8f4a-5b6c7d8e9f00"
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": own}}}
    rows[0]["payload"] |= {"id": own, "forked_from_id": own, "source": spawned}
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (episode,) = episodes_in(read(tmp_path / "x.jsonl", "codex_rollout"))
    assert episode.parent_episode_id is None
    assert episode.continues_episode_id is None


@pytest.mark.parametrize(
    ("name", "file", "way"),
    [
        ("sharegpt_tools", "sharegpt_tools/glaive.cut.json", "0/conversations/1/value"),
        ("swe_agent_traj", "swe.traj", "trajectory/0/response"),
        ("adp_std", "adp_std/std.json", "0/content/0/content"),
        ("adk_session", "adk_session/camel.json", "events/2/content/parts/1/functionResponse/response"),
        (
            "tooleval",
            "tooleval/gpt-3.5-turbo_CoT__G1_tool.one_query.json",
            "85296/answer/answer_details/0/message",
        ),
        ("openhands_events", "openhands_events/delegate.json", "0/args/content"),
        ("llamafactory_v1", "llamafactory_v1/cases.jsonl", "0/messages/1/content/0/value"),
    ],
)
def test_the_place_of_what_is_not_there_is_that_of_what_should_hold_it(tmp_path, name, file, way):
    path = tmp_path / Path(file).name
    path.write_text(json.dumps(with_value(fixture(file), way)))
    for episode in episodes_in(read(path, name)):
        for item in (*episode.messages, *episode.steps):
            resolve(path, item.locator, "log")


def test_a_return_code_of_thousands_of_digits_is_none(tmp_path):
    rows = fixture("mini_swe_agent/github_issue.traj.json")
    for message in rows if isinstance(rows, list) else rows["messages"]:
        if message["role"] == "user" and isinstance(message["content"], str):
            message["content"] = "<returncode>" + "9" * 5000 + "</returncode>" + message["content"]
    (tmp_path / "x.traj.json").write_text(json.dumps(rows))
    assert len(episodes_in(read(tmp_path / "x.traj.json", "mini_swe_agent"))) == 1


def test_a_session_whose_number_has_thousands_of_digits_continues_nothing(tmp_path):
    row = fixture("atif/terminus.json")
    row["session_id"] = "0196f4a0-1b2c-7d3e-8f4a-5b6c7d8e9f00-cont-" + "9" * 5000
    row.pop("trajectory_id", None)
    (tmp_path / "x.json").write_text(json.dumps(row))
    episodes = [item for item in read(tmp_path / "x.json", "atif") if isinstance(item, Episode)]
    assert [episode.continues_episode_id for episode in episodes] == [None]


def test_a_mapping_of_nothing_but_brackets_is_refused_at_once():
    with limited(5), pytest.raises(SpecError, match="nested too deeply"):
        parse_mapping("name: x\nmessages: " + "[" * 20_000, "map.yaml")


def test_labels_are_found_at_once_however_many_line_breaks_stand_before_them(tmp_path):
    path = tmp_path / "chats.json"
    breaks = "\n" * 200_000
    path.write_text(
        json.dumps([{"system": breaks, "chat": f"USER: Hi{breaks}ASSISTANT: Hello\nUSER: no label"}])
    )
    (episode,) = episodes_in(read(path, "glaive"))
    assert [m.content for m in episode.messages] == ["Hi", "Hello\nUSER: no label"]


@pytest.mark.parametrize("role", [None, "Assistant", ["assistant"], {}, "user"])
def test_an_answer_of_another_role_is_no_decision(tmp_path, role):
    row = fixture("bedrock_converse/invocation_log.jsonl")[0]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(with_value(row, "output/outputBodyJson/output/message/role", role)))
    readings = read(path, "bedrock_converse")
    assert not episodes_in(readings)
    assert {item.rule for item in readings if isinstance(item, Reject)} == {"unknown_part"}


def test_a_result_under_a_name_that_nobody_knows_is_no_empty_result(tmp_path):
    rows = fixture("goose/legacy.jsonl")
    block = rows[3]["content"][0]
    block["answer"] = block.pop("toolResult")
    path = tmp_path / "legacy.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    readings = read(path, "goose")
    assert "unknown_part" in {item.rule for item in readings if isinstance(item, Reject)}
    for episode in episodes_in(readings):
        for message in episode.messages:
            resolve(path, message.locator, "log")


def test_words_of_a_tool_that_answer_no_call_are_no_message(tmp_path):
    row = fixture("vercel_ai/ui_v5.json")
    row = row if isinstance(row, dict) else {"messages": row}
    row["messages"][0]["role"] = "tool"
    path = tmp_path / "ui.json"
    path.write_text(json.dumps(row))
    readings = read(path, "vercel_ai")
    assert "unknown_part" in {item.rule for item in readings if isinstance(item, Reject)}


def test_an_answer_that_took_longer_than_any_clock_has_no_end(tmp_path):
    har = fixture("har/traffic.har")
    for entry in har["log"]["entries"]:
        entry["time"] = 9.2e18
    path = tmp_path / "traffic.har"
    path.write_text(json.dumps(har))
    assert episodes_in(read(path, "har"))


def test_a_goal_that_is_not_there_is_no_message(tmp_path):
    rows = fixture("adp_raw/androidcontrol.json")
    del rows[0]["goal"]
    path = tmp_path / "androidcontrol.json"
    path.write_text(json.dumps(rows))
    for episode in episodes_in(read(path, "adp_raw")):
        for message in episode.messages:
            resolve(path, message.locator, "log")


@pytest.mark.parametrize(("place", "damage"), [(0, {"kind": []}), (4, {"kind": [], "action": "x"})])
def test_one_damaged_event_does_not_change_what_the_others_are(tmp_path, place, damage):
    rows = fixture("openhands_events/sdk.jsonl")
    rows[place] |= damage
    path = tmp_path / "sdk.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    readings = read(path, "openhands_events")
    (episode,) = episodes_in(readings)
    assert episode.records == len(rows) - 1
    rejected = [item.rule for item in readings if isinstance(item, Reject)]
    assert rejected.count("not_a_conversation") == 1
