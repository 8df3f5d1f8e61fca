"""The dialogue formats and step tables: what each makes of its rows, what real files hold, and the quirk cases."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.chat.ratings import rating_of
from logforge.connectors.detection import detect, get
from logforge.connectors.records.base import Source, look
from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.schemas.episode import Duplicate, Episode, Reject, Skip
from support.places import DATA
from support.real_counts import EXPECTED, LOGS, counts_in, independent, totals_as_told

FIXTURES = DATA / "connectors"
FORMATS = ("abcd", "llamafactory_v1", "sharegpt_tools", "taskmaster4", "taskmaster_reward")
MINE = {"openai_messages", "rated_chat", "step_table", "trl", *FORMATS}


def read(path: Path, name: str | None = None, label: str = "log") -> list[Any]:
    connector = get(name) if name else detect(path)[0].connector
    return list(connector.read(Source(path, label)))


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any], level: str = "record") -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject) and item.level == level]


def counted(readings: list[Any]) -> int:
    return sum(item.records for item in readings if not isinstance(item, Reject) or item.level == "record")


def by_id(path: Path, name: str | None = None) -> dict[str | None, Episode]:
    return {episode.native_id: episode for episode in episodes(read(path, name))}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def roles(episode: Episode) -> str:
    return " ".join(message.role[0] for message in episode.messages)


def calls(episode: Episode) -> list[tuple[str, str, str | None]]:
    return [(s.action, s.arguments, s.result) for s in episode.steps if s.kind == "tool"]


# --- ShareGPT and LLaMA-Factory -------------------------------------------------------------------------------------


def test_sharegpt_calls_and_observations():
    found = episodes(read(FIXTURES / "sharegpt_tools" / "glaive.cut.json"))
    assert [e.ending for e in found] == ["terminal"] * 4
    call, two, none, _ = found
    assert len(calls(call)) == 1
    assert len(calls(two)) == 2
    assert all(result for _, _, result in calls(call) + calls(two))
    assert call.tools == [call.steps[0].action]
    assert none.tools == []
    assert call.task == call.messages[0].content
    assert {e.policy_id for e in found} == {None}


def test_sharegpt_cases():
    found = by_id(FIXTURES / "sharegpt_tools" / "cases.json")
    both = found["parallel"]
    assert roles(both) == "s u a t t a"
    assert calls(both) == [
        ("weather", '{"city":"Oslo"}', "3 degrees"),
        ("weather", '{"city":"Rome"}', '{"error":"unknown city"}'),
    ]
    assert [s.parallel_group for s in both.steps] == [0, 0, None]
    assert [s.result_status for s in both.steps] == ["ok", "error", None]
    one = found["one-answer"]
    assert [s.result for s in one.steps] == ["both done", "both done", None]
    assert [s.action_valid for s in one.steps] == [True, False, True]
    assert one.steps[2].kind == "clarify"
    assert (found["orphan"].ending, found["orphan"].tools) == ("truncated", None)
    assert (found["rated"].success, found["rated"].ending_reason) == (False, "the outcome is known")
    damaged = found["damaged"]
    assert [s.action for s in damaged.steps] == ["find"]
    assert (damaged.ending, damaged.ending_reason) == ("truncated", "last call is unanswered")
    assert damaged.steps[0].action_valid is False


def test_sharegpt_parts_that_are_wrong_are_set_aside_alone():
    readings = read(FIXTURES / "sharegpt_tools" / "cases.json")
    assert sorted((r.rule, r.locator) for r in rejects(readings, "part")) == [
        ("bad_call", "log#/3/conversations/1/value"),
        ("orphan_result", "log#/2/conversations/1/value"),
        ("orphan_result", "log#/3/conversations/2/value"),
        ("unknown_role", "log#/2/conversations/3"),
    ]
    assert [r.reason for r in readings if isinstance(r, Skip)] == ["empty_conversation"]


def test_one_tool_message_answers_several_calls():
    path = FIXTURES / "llamafactory_v1" / "reason_tool_use.cut.jsonl"
    three, unanswered, plain, single, named = episodes(read(path))
    group = [s for s in three.steps if s.parallel_group == 1]
    assert len(group) == 3
    assert len({s.result_position for s in group}) == 3
    assert [json.loads(s.arguments)["radius"] for s in group] == [2.5, 4, 5.5]
    assert ["'radius': 2.5" in (group[0].result or ""), "'radius': 4.0" in (group[1].result or "")] == [
        True
    ] * 2
    assert len(json.loads(three.metadata)["tool_call_ids"]) == len(
        [s for s in three.steps if s.kind == "tool"]
    )
    assert (unanswered.ending, unanswered.ending_reason) == ("truncated", "last call is unanswered")
    assert {s.result_status for s in unanswered.steps} == {"missing"}
    assert [s.kind for s in plain.steps] == ["clarify"]
    assert single.steps[0].result == single.messages[3].content
    assert named.steps[0].result
    assert all(m.thought for e in (three, plain) for m in e.messages if m.role == "assistant")
    assert not any("tool_call" in (m.content or "") for m in three.messages if m.role == "assistant")


def test_a_text_that_answers_all_calls_is_one_message():
    first, second = episodes(read(FIXTURES / "llamafactory_v1" / "cases.jsonl"))
    assert roles(first) == "u a t a"
    assert first.messages[0].content == "two things\n[image_url]"
    assert (first.messages[1].content, first.messages[1].thought) == ("On it.", "both")
    assert [(s.action, s.result, s.result_position) for s in first.steps[:2]] == [
        ("a", "done, both of them", 2),
        ("b", "done, both of them", 2),
    ]
    assert [s.action_valid for s in first.steps] == [True, False, True]
    assert [(s.kind, s.position) for s in second.steps] == [("clarify", 2)]
    rules = sorted(r.rule for r in rejects(read(FIXTURES / "llamafactory_v1" / "cases.jsonl"), "part"))
    assert rules == ["bad_block", "bad_call", "orphan_result", "unknown_role"]


# --- Taskmaster -----------------------------------------------------------------------------------------------------


def test_taskmaster_calls_follow_the_user_turn_they_hang_on():
    damaged, menu, user, _ = episodes(read(FIXTURES / "taskmaster4" / "data_07.cut.json"))
    assert roles(damaged).startswith("u a t a t a t")
    assert {s.parallel_group for s in damaged.steps} == {None}
    assert [s.tool_call_id for s in damaged.steps if s.kind == "tool"][:3] == [
        "api_call_0",
        "api_call_1",
        "api_call_2",
    ]
    broken = [s for s in damaged.steps if s.arguments_status == "invalid"]
    assert [(s.action, s.arguments) for s in broken] == [
        ("add_order_item", '{"menu_item_id": ""cortado-3621"","quantity": "1"}')
    ]
    assert [s.arguments for s in menu.steps if s.action == "show_menu"] == ["{}"]
    assert (user.ending, user.messages[-1].role) == ("truncated", "tool")
    for episode in (damaged, menu):
        assert (episode.source_kind, episode.policy_id, episode.ending) == ("human_demo", "human", "terminal")
        assert episode.task == episode.messages[0].content
        assert (episode.success, episode.score, episode.tools) == (None, None, None)
        assert all(s.result for s in episode.steps if s.kind == "tool")


def test_taskmaster_instructions_are_not_what_the_agent_knew():
    for episode in episodes(read(FIXTURES / "taskmaster4" / "data_07.cut.json"))[1:]:
        told = json.loads(episode.metadata)["instructions"]
        assert told
        assert told not in (episode.task or "")
        assert not any("SCENARIO" in (m.content or "") for m in episode.messages)
    *_, marked = episodes(read(FIXTURES / "taskmaster4" / "data_07.cut.json"))
    assert json.loads(marked.metadata)["segments"]


def test_taskmaster_identity_is_the_uuid_and_nothing_less(tmp_path):
    row = json.loads((FIXTURES / "taskmaster4" / "data_07.cut.json").read_text())[1]
    changed = row | {"vertical": "Tea"}
    one, other = (
        episodes(read(write(tmp_path / f"{i}.jsonl", [r])))[0] for i, r in enumerate((row, changed))
    )
    assert one.episode_id == other.episode_id
    for i, r in enumerate((row, changed)):
        write(tmp_path / f"{i}.jsonl", [r | {"conversation_id": "dlg-1"}])
    assert len({episodes(read(tmp_path / f"{i}.jsonl"))[0].episode_id for i in (0, 1)}) == 2


def test_taskmaster_exchanges_that_lack_something(tmp_path):
    note = lambda name, value, context: {"name": name, "value": value, "context": context}  # noqa: E731
    listed = [
        note("request", "{}", "api_call_0"),
        note("api_call", "find", "api_call_1"),
        note("api_response", "find", "api_response_1"),
        note("api_response", "find", "api_response_2"),
        note("response", "late", "api_response_9"),
        note("comment", "?", "x"),
        "text",
    ]
    turns = [{"speaker": "user", "text": "hi", "annotations": listed}, {"speaker": "ghost", "text": "boo"}]
    readings = read(
        write(tmp_path / "x.jsonl", [{"conversation_id": "d", "utterances": turns}]), "taskmaster4"
    )
    (episode,) = episodes(readings)
    assert calls(episode) == [("find", "{}", "")]
    assert sorted(r.rule for r in rejects(readings, "part")) == [
        "nameless_call",
        "orphan_result",
        "orphan_result",
        "unknown_annotation",
        "unknown_annotation",
        "unknown_role",
    ]


def test_taskmaster_judged_answers_are_one_decision():
    readings = read(FIXTURES / "taskmaster_reward" / "TM-4_reward_01.cut.json")
    good, bad, _, after_calls, nameless, said, said_badly = episodes(readings)
    assert [(s.action, s.arguments, s.logged_reward) for s in good.steps] == [
        ("get_menu_items", '{"query":"Latte"}', 1.0)
    ]
    assert (good.success, good.score, good.ending, good.source_kind) == (True, None, "terminal", "agent_log")
    assert (bad.success, bad.score, bad.steps[0].logged_reward) == (False, None, 0.0)
    assert roles(after_calls) == "a u a u a u a u a"
    assert after_calls.messages[2].content == '{"get_menu_items":{"query":"Latte"}}'
    assert after_calls.messages[3].content.startswith('{"get_menu_items":{"items":')
    assert [s.position for s in after_calls.steps] == [8]
    assert (nameless.steps, nameless.success) == ([], True)
    assert [r.rule for r in rejects(readings, "part")] == ["nameless_call"]
    assert [e.steps[0].kind for e in (said, said_badly)] == ["respond", "respond"] or said.steps[
        0
    ].kind == "clarify"
    assert good.task == "I'll take a latte"
    assert bad.group_id == readings[2].group_id
    assert len({e.episode_id for e in episodes(readings)}) == 7


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"generation": "{"}, "malformed_record"),
        ({"context": "[1"}, "malformed_record"),
        ({"generation": "[]"}, "not_a_conversation"),
        ({"generation": '{"role": "agent"}'}, "not_a_conversation"),
        ({"context": None}, "not_a_conversation"),
    ],
)
def test_a_judged_answer_without_its_decision_is_set_aside(tmp_path, change, rule):
    row = json.loads((FIXTURES / "taskmaster_reward" / "TM-3_reward_00.cut.json").read_text())[0]
    readings = read(write(tmp_path / "x.jsonl", [row | change, row]), "taskmaster_reward")
    assert [r.rule for r in rejects(readings)] == [rule]
    assert len(episodes(readings)) == 1
    unjudged = read(write(tmp_path / "y.jsonl", [row | {"reward": None}]), "taskmaster_reward")
    assert (episodes(unjudged)[0].ending, episodes(unjudged)[0].success) == ("truncated", None)


# --- ABCD -----------------------------------------------------------------------------------------------------------


def test_abcd_buttons_are_calls_and_the_system_answers():
    (chat,) = episodes(read(FIXTURES / "abcd" / "abcd_sample.second.json"))
    assert calls(chat) == [
        (
            "pull-up-account",
            '{"values":["alessandro phoenix"]}',
            "Account has been pulled up for Alessandro Phoenix.",
        ),
        (
            "validate-purchase",
            '{"values":["aphoenix939","aphoenix939@email.com","7916676427"]}',
            "Purchase validation in progress ...",
        ),
    ]
    assert (chat.source_kind, chat.policy_id, chat.ending, chat.success) == (
        "human_demo",
        "human",
        "terminal",
        None,
    )
    assert (chat.task, chat.task_id, chat.native_id) == (None, "product_defect/refund_status", "9489")
    shown = json.dumps([m.content for m in chat.messages])
    assert "refund_status" not in shown
    assert json.loads(chat.metadata)["scenario"]["subflow"] == "refund_status"
    assert chat.steps[0].kind == "clarify" or chat.messages[0].content.startswith("good afternoon")


def test_an_abcd_action_without_its_label_is_no_decision(tmp_path):
    row = json.loads((FIXTURES / "abcd" / "abcd_sample.second.json").read_text())[0]
    readings = read(write(tmp_path / "x.jsonl", [row | {"delexed": row["delexed"][:6]}]), "abcd")
    (chat,) = episodes(readings)
    assert [s.action for s in chat.steps if s.kind == "tool"] == ["pull-up-account"]
    assert chat.ending == "truncated"
    assert [r.rule for r in rejects(readings, "part")] == ["nameless_call"]


# --- TRL and rated chats --------------------------------------------------------------------------------------------


def test_trl_rows():
    readings = read(FIXTURES / "trl" / "rows.jsonl")
    assert counted(readings) == 7
    text, kto, hi, lo, blue, green, which, dry, hot, sun = episodes(readings)
    assert (text.success, roles(text), text.task) == (True, "u a", "What is 2+2?")
    assert roles(kto) == "s u a u a u a t a"
    assert calls(kto) == [("find", '{"q":"new"}', "new answer")]
    assert [s.position for s in kto.steps] == [6, 8]
    assert (kto.success, kto.tools, kto.native_id, kto.task) == (False, ["find"], "kto-2", "old question")
    assert [e.records for e in (hi, lo)] == [1, 0]
    assert [e.score for e in (hi, lo)] == [8.5, 2.0]
    assert [json.loads(e.metadata)["preference"] for e in (hi, lo)] == ["chosen", "rejected"]
    assert {e.success for e in (hi, lo, blue, green)} == {None}
    assert hi.group_id == lo.group_id != blue.group_id
    assert [roles(e) for e in (blue, green, which, dry, hot)] == ["u a"] * 5
    assert (which.steps[0].kind, sun.steps[0].action) == ("clarify", "find")
    assert [e.locator for e in (which, dry)] == ["log:5#/chosen", "log:5#/rejected"]
    assert [r.locator for r in rejects(readings)] == ["log:7"]


def test_a_preference_of_which_one_answer_is_unusable_is_still_one_record(tmp_path):
    row = {"chosen": [7], "rejected": [{"role": "assistant", "content": "ok"}]}
    readings = read(write(tmp_path / "x.jsonl", [row]), "trl")
    assert counted(readings) == 1
    assert [json.loads(e.metadata)["preference"] for e in episodes(readings)] == ["rejected"]
    assert [r.rule for r in rejects(readings, "part")] == ["unknown_role"]
    assert counted(read(write(tmp_path / "y.jsonl", [{"chosen": [7], "rejected": [7]}]), "trl")) == 1


def test_rated_chats():
    readings = read(FIXTURES / "rated_chat" / "chats.jsonl")
    found = {e.native_id: e for e in episodes(readings)}
    stars = found["r1"]
    assert (stars.score, stars.success, stars.model, stars.ending) == (5.0, None, "m-1", "terminal")
    assert [s.logged_reward for s in stars.steps] == [1.0]
    down = found["r2"]
    assert (down.success, down.score, roles(down), down.steps[0].kind) == (False, None, "u a", "clarify")
    assert json.loads(down.metadata)["feedback"]["comment"] == "slow"
    assert [found[i].success for i in ("r3", "r4", "r5", "r6")] == [True, False, None, None]
    assert found["r5"].ending_reason == "end of conversation"
    assert [r.locator for r in rejects(readings)] == ["log:7"]
    assert [r.locator for r in rejects(readings, "part")] == ["log:6#/conversation/1"]


@pytest.mark.parametrize(
    ("row", "success", "score"),
    [
        ({"rating": 4}, None, 4.0),
        ({"rating": "4"}, None, 4.0),
        ({"rating": "Good"}, True, None),
        ({"rating": "nan"}, None, None),
        ({"thumbs": 1}, True, None),
        ({"thumbs": -1}, False, None),
        ({"thumbs": 0}, None, None),
        ({"thumbs_up": 0}, False, None),
        ({"liked": False}, False, None),
        ({"feedback": "👎"}, False, None),
        ({"feedback": "+1"}, True, None),
        ({"feedback": "thumbs-down"}, False, None),
        ({"feedback": "it was fine I guess"}, None, None),
        ({"feedback": {"score": 0.5, "comment": "x"}}, None, 0.5),
        ({"feedback": {"rating": "up"}}, True, None),
        ({"feedback": {}}, None, None),
        ({"feedback": [1]}, None, None),
        ({"rating": 3, "feedback": "up"}, True, 3.0),
        ({"vote": True}, True, None),
        ({"other": 1}, None, None),
    ],
)
def test_ratings(row, success, score):
    assert rating_of(row)[:2] == (success, score)


@pytest.mark.skipif(not EXPECTED.is_file(), reason="the shared logs are not here")
def test_labels_of_chat_feedback_are_verdicts():
    path = LOGS / "chat_feedback" / "kto_en_demo.json"
    found = episodes(read(path))
    assert {e.format for e in found} == {"openai_messages"}
    labels = [row["label"] for row in json.loads(path.read_text("utf-8"))]
    assert [e.success for e in found] == labels
    assert {e.ending for e in found} == {"terminal"}


# --- step tables ----------------------------------------------------------------------------------------------------


def demos() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / "step_table" / "demos.jsonl").read_text().splitlines()]


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_parquet(path: Path, rows: list[dict[str, Any]], **more: Any) -> Path:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path, **more)
    return path


def outline(found: list[Episode]) -> list[Any]:
    """What a table says, whatever file it lies in."""
    return [
        (
            e.native_id,
            e.ending,
            e.ending_reason,
            e.records,
            [(s.action, s.logged_reward, json.loads(s.result or "null")) for s in e.steps],
        )
        for e in found
    ]


def returns(found: list[Episode]) -> dict[str | None, float]:
    return {e.native_id: sum(s.logged_reward or 0 for s in e.steps) for e in found}


def test_quirk_011_terminal_timeout_one_step():
    readings = read(FIXTURES / "step_table" / "demos.jsonl")
    found = episodes(readings)
    assert len(readings) == 5
    assert [(e.native_id, e.ending) for e in found] == [
        ("A", "terminal"),
        ("B", "truncated"),
        ("C", "terminal"),
        ("D", "truncated"),
        ("E", "terminal"),
    ]
    assert sum(len(e.steps) for e in found) == 11
    assert returns(found) == {"A": 1, "B": 0, "C": 1, "D": 0, "E": 1}
    assert found[2].ending_reason == "terminated (and truncated: termination wins)"
    assert found[3].ending_reason == "the log stops without an end"
    assert calls(found[0]) == [
        ("search", "{}", "[0.1,1.0]"),
        ("open", "{}", "[0.2,1.0]"),
        ("submit", "{}", None),
    ]
    assert {(e.source_kind, e.policy_id) for e in found} == {("human_demo", "human")}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_file_says_the_same(tmp_path, delimiter):
    path = tmp_path / "demos.csv"
    path.write_bytes(b"\xef\xbb\xbf" + as_csv(demos(), delimiter).encode())
    assert [claim.connector.name for claim in detect(path)] == ["step_table"]
    readings = read(path)
    assert outline(episodes(readings)) == outline(episodes(read(FIXTURES / "step_table" / "demos.jsonl")))
    assert [e.locator for e in episodes(readings)] == ["log:2", "log:5", "log:8", "log:10", "log:12"]
    assert episodes(readings)[0].messages[0].locator == "log:2#/observation"


def test_a_parquet_file_says_the_same_and_is_the_same(tmp_path):
    path = as_parquet(tmp_path / "demos.parquet", demos(), row_group_size=2)
    assert [claim.connector.name for claim in detect(path)] == ["step_table"]
    lines, table = episodes(read(FIXTURES / "step_table" / "demos.jsonl")), episodes(read(path))
    assert outline(table) == outline(lines)
    assert [e.episode_id for e in table] == [e.episode_id for e in lines]
    assert [e.locator for e in table] == ["log#/0", "log#/3", "log#/6", "log#/8", "log#/10"]


def test_parquet_nulls_nan_and_times(tmp_path):
    from datetime import UTC, datetime

    when = datetime(2024, 5, 1, 10, tzinfo=UTC)
    rows = [
        {"observation": "a", "action": "x", "reward": float("nan"), "terminated": False, "timestamp": when},
        {"observation": "b", "action": None, "reward": None, "terminated": True, "timestamp": when},
    ]
    (episode,) = episodes(read(as_parquet(tmp_path / "x.parquet", rows)))
    assert [(s.action, s.logged_reward, s.result) for s in episode.steps] == [("x", None, "b")]
    assert (episode.ending, episode.started_at) == ("terminal", 1_714_557_600_000_000)


@pytest.mark.parametrize("cut", [0, 5, 300, -1])
def test_a_damaged_parquet_file_is_set_aside(tmp_path, cut):
    data = as_parquet(tmp_path / "x.parquet", demos()).read_bytes()
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" + data[4:][: cut or None][: len(data) - 5])
    readings = read(tmp_path / "torn.parquet", "step_table")
    assert [r.rule for r in rejects(readings)] == ["malformed_record"]
    assert detect(tmp_path / "torn.parquet") == []


def test_a_parquet_file_of_other_columns_is_not_claimed(tmp_path):
    assert detect(as_parquet(tmp_path / "x.parquet", [{"a": 1, "action": "x"}])) == []


def test_csv_cells_may_hold_anything(tmp_path):
    rows = [
        {
            "observation": 'say "hi",\nplease',
            "action": "search",
            "arguments": '{"q": "x, y"}',
            "reward": "0.5",
        },
        {"observation": "x" * 200_000, "action": "respond", "arguments": "hello", "reward": ""},
        {
            "observation": "",
            "action": '{"name": "fill", "arguments": {"n": 12345678901234567890}}',
            "reward": "nan",
        },
        {"observation": "last", "action": "7", "arguments": "", "reward": "inf"},
    ]
    path = tmp_path / "x.csv"
    path.write_bytes(as_csv([{"arguments": None} | row for row in rows]).replace("\r\n", "\n").encode())
    readings = read(path)
    (episode,) = episodes(readings)
    assert counted(readings) == 4
    assert [(s.action, s.arguments, s.logged_reward) for s in episode.steps] == [
        ("search", '{"q":"x, y"}', 0.5),
        ("respond", "{}", None),
        ("fill", '{"n":12345678901234567890}', None),
        ("7", "{}", None),
    ]
    assert episode.messages[0].content == 'say "hi",\nplease'
    assert len(episode.steps[0].result or "") == 200_000
    assert episode.messages[3].content == "hello"
    assert [s.locator for s in episode.steps] == ["log:2", "log:4#/arguments", "log:5", "log:6"]
    assert [r.rule for r in rejects(readings, "part")] == ["bad_reward"]


def test_a_bad_csv_row_does_not_take_its_neighbours_with_it(tmp_path):
    head = "episode_id,step,observation,action,reward\n"
    rows = [
        b"a,0,see,look,0\n",
        b"a,1,too,many,1,2\n",
        b'a,2,"lost quote,open,1\n',
        b"b,0,\xff\xfe,look,0\n",
        b"\n",
        b"c,0,here,look,1\n",
        b"c,1,torn",
    ]
    path = tmp_path / "x.csv"
    path.write_bytes(head.encode() + b"".join(rows))
    readings = read(path)
    assert [(e.native_id, len(e.steps)) for e in episodes(readings)] == [("a", 1), ("c", 1)]
    assert [(r.locator, r.rule) for r in rejects(readings)] == [
        (f"log:{line}", "malformed_record") for line in (3, 4, 5, 8)
    ]
    assert counted(readings) == 6


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_tables_never_raise(tmp_path_factory, kind, data):
    folder = tmp_path_factory.getbasetemp()
    content = (
        bytearray(as_csv(demos()).encode())
        if kind == "csv"
        else bytearray(as_parquet(folder / "whole.parquet", demos()).read_bytes())
    )
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(
            st.sampled_from([0, 10, 34, 44, 200])
        )
    path = folder / f"damaged.{kind}"
    path.write_bytes(content[: data.draw(st.integers(5, len(content)))])
    get("step_table").sniff(look(path))
    readings = read(path, "step_table")
    assert readings == read(path, "step_table")
    for episode in episodes(readings):
        assert [m.position for m in episode.messages] == list(range(len(episode.messages)))
        assert {s.result_position for s in episode.steps} - {None} == {
            m.position for m in episode.messages if m.role == "tool"
        }


def test_rows_of_several_episodes_may_be_mixed_and_repeated():
    readings = read(FIXTURES / "step_table" / "agent.jsonl")
    x, again, y = episodes(readings)
    assert counted(readings) == 9
    assert [item.records for item in readings if isinstance(item, Duplicate)] == [1]
    assert (x.records, x.ending, x.success, x.task) == (3, "terminal", True, "refund order 7")
    assert [(s.kind, s.action, s.arguments, s.logged_reward) for s in x.steps] == [
        ("tool", "search", '{"q":"7"}', 0.5),
        ("respond", "respond", "{}", None),
        ("clarify", "clarify", '{"text":"Anything more?"}', 1.0),
    ]
    assert (x.steps[0].result, x.steps[0].result_status) == ("Error: not found", "error")
    assert roles(x) == "u a t a u a"
    assert [m.content for m in x.messages if m.role == "assistant"] == [
        None,
        "There is no order 7.",
        "Anything more?",
    ]
    assert x.messages[3].thought == "nothing there"
    assert (x.policy_id, x.started_at) == ("human:ann", 1_714_557_600_000_000)
    assert json.loads(x.metadata)["rows"][0] == {"device": "phone"}
    assert (again.records, again.ending, again.native_id) == (1, "truncated", "x")
    assert [r.rule for r in rejects(readings)] == ["not_a_step", "not_a_step"]
    assert [(s.action, s.result) for s in y.steps] == [("fill", None), ("3", "At the end.")]
    assert (y.ending, roles(y)) == ("truncated", "u a u a t")


def row(**cells: Any) -> dict[str, Any]:
    return {"observation": "o", "action": "a", "reward": 0, "terminated": False, "truncated": False} | cells


@pytest.mark.parametrize(
    ("rows", "sizes", "endings"),
    [
        ([row(), row(terminated=True), row(), row(truncated=True), row()], [2, 2, 1], "ttruncated"),
        ([row(step=0), row(step=1), row(step=0), row(step=1, terminated=True)], [2, 2], "starts over"),
        ([row(episode_id=1, step=1, terminated=True), row(episode_id=1, step=0)], [2], "sorted"),
        ([row(episode_id=1, terminated=True), row(episode_id=1)], [1, 1], "an id used again"),
        ([row(done=True), row()], [2], "terminated wins over done"),
        (
            [row(episode_id=None), row(episode_id=None, truncated=1), row(episode_id="z")],
            [2, 1],
            "ids missing",
        ),
    ],
)
def test_where_episodes_end(tmp_path, rows, sizes, endings):
    readings = read(write(tmp_path / "x.jsonl", rows))
    assert [len(e.steps) for e in episodes(readings)] == sizes, endings
    assert counted(readings) == len(rows)


@pytest.mark.parametrize(
    ("last", "ending", "reason"),
    [
        ({"terminated": "True"}, "terminal", "terminated"),
        ({"terminated": 1, "truncated": "1"}, "terminal", "terminated (and truncated: termination wins)"),
        ({"truncated": "true"}, "truncated", "truncated"),
        ({}, "truncated", "the log stops without an end"),
        ({"terminated": "perhaps"}, "truncated", "the log stops without an end"),
    ],
)
def test_flags_and_endings(tmp_path, last, ending, reason):
    (episode,) = episodes(read(write(tmp_path / "x.jsonl", [row(), row(**last)])))
    assert (episode.ending, episode.ending_reason) == (ending, reason)


def test_an_old_done_flag_may_be_a_time_limit(tmp_path):
    rows = [{"obs": "o", "action": "a", "reward": 1, "done": True, "info": info} for info in ({}, LIMIT)]
    assert [e.ending for e in episodes(read(write(tmp_path / "x.jsonl", rows)))] == ["terminal", "truncated"]


LIMIT = {"TimeLimit.truncated": True}


def test_done_beside_truncated_is_a_time_limit(tmp_path):
    rows = [{"obs": "o", "action": "a", "done": True, "truncated": True}]
    assert episodes(read(write(tmp_path / "x.jsonl", rows)))[0].ending == "truncated"


def test_what_goes_with_an_action(tmp_path):
    rows = [
        row(action={"type": "click", "x": 3}, text="I click."),
        row(action="respond", arguments='{"message": "ok"}', observation=None),
        row(action="respond", arguments={"mood": 1}, text="fine", user_id=7),
        row(action=None, reward=2, terminated=True),
    ]
    readings = read(write(tmp_path / "x.jsonl", rows))
    (episode,) = episodes(readings)
    assert [(s.action, s.arguments) for s in episode.steps] == [
        ("click", '{"x":3}'),
        ("respond", '{"message":"ok"}'),
        ("respond", '{"mood":1}'),
    ]
    said = [(m.content, m.locator) for m in episode.messages if m.role == "assistant"]
    assert said == [
        ("I click.", "log:1#/text"),
        ("ok", "log:2#/arguments#/message"),
        ("fine", "log:3#/text"),
    ]
    assert [r.reason for r in rejects(readings, "part")] == ["reward without an action"]
    assert json.loads(episode.metadata) == {}


def test_a_row_that_is_lost_breaks_the_chain_of_cause(tmp_path):
    rows = [json.dumps(row(observation=f"o{i}")) for i in range(4)]
    rows[1] = rows[1][:-5]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(rows))
    (episode,) = episodes(read(path))
    assert [s.result for s in episode.steps] == [None, "o3", None]
    assert [m.content for m in episode.messages if m.role == "user"] == ["o0", "o2"]


@pytest.mark.parametrize("action", [[0.1, 0.2], True, {"q": 1}, 0.5])
def test_an_action_that_is_no_choice_among_names_is_refused(tmp_path, action):
    readings = read(write(tmp_path / "x.jsonl", [row(action=action), row()]))
    assert [r.rule for r in rejects(readings)] == ["not_a_step"]
    assert len(episodes(readings)) == 1


def test_quirk_012_action_ids_across_shards():
    cases = FIXTURES.parent / "dialogue"
    readings = {day: read(cases / f"{day}.jsonl", label=f"{day}.jsonl") for day in ("day1", "day2")}
    found = [episodes(r) for r in readings.values()]
    assert [[e.native_id for e in day] for day in found] == [["c1", "c2"], ["c3"]]
    assert [r.locator for r in rejects(readings["day2"])] == ["day2.jsonl:2"]
    space = ActionSpace.build(
        (e.format, e.tools, [(s.action, s.kind, s.action_valid) for s in e.steps])
        for day in found
        for e in day
    )
    names = list(space.vocabulary.actions)
    assert [name for name in names if name in ("search", "refund", "escalate", "legacy_ping")] == [
        "escalate",
        "refund",
        "search",
    ]
    assert len(set(names)) == len(names)


# --- telling formats apart ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"messages": [{"role": "user", "content": "x"}], "rating": 1}, "openai_messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "value": "x"}]}]}, "llamafactory_v1"),
        ({"conversations": [{"from": "human", "value": "x"}]}, "sharegpt_tools"),
        (
            {"conversations": [{"from": "gpt", "value": '<tool_call>{"name": 1}</tool_call>'}]},
            "sharegpt_tools",
        ),
        ({"conversations": [{"from": "gpt", "value": "<execute>ls</execute>"}]}, None),
        ({"conversation": [{"role": "user", "content": "x"}]}, "rated_chat"),
        ({"conversation": [{"speaker": "user", "text": "x"}]}, None),
        ({"conversation": "x", "rating": 3}, None),
        ({"input": "x", "output": "y"}, None),
        ({"input": "x", "output": "y", "rating": 3}, "rated_chat"),
        ({"prompt": "x", "completion": "y", "label": True}, "trl"),
        ({"prompt": "x", "chosen": "a", "rejected": "b"}, "trl"),
        ({"chosen": "\n\nHuman: x", "rejected": "\n\nHuman: y"}, None),
        (
            {"chosen": [{"role": "user", "content": "x"}], "rejected": [{"role": "user", "content": "x"}]},
            "trl",
        ),
        ({"observation": "x", "action": "y"}, None),
        ({"observation": "x", "action": "y", "truncated": False}, "step_table"),
        ({"action": "run", "args": {}, "source": "agent", "timestamp": "t", "id": 1}, None),
        ({"conversation_id": "1", "context": "[]", "generation": "{}", "reward": 1}, "taskmaster_reward"),
        ({"conversation_id": "1", "utterances": [{"speaker": "user", "text": "x"}]}, "taskmaster4"),
        ({"convo_id": 1, "original": [], "delexed": []}, "abcd"),
    ],
)
def test_look_alikes_are_told_apart(tmp_path, record, expected):
    for name, text in (("x.jsonl", json.dumps(record)), ("x.json", json.dumps([record], indent=1))):
        path = tmp_path / name
        path.write_text(text + "\n", "utf-8")
        mine = [claim.connector.name for claim in detect(path) if claim.connector.name in MINE]
        assert mine == ([expected] if expected else [])


@pytest.mark.parametrize(
    "text", ["name,age\nann,3\n", "action,reward\na,1\n", "just some words\n", "a;b\n1;2\n"]
)
def test_other_tables_and_texts_are_not_claimed(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_text(text)
    assert get("step_table").sniff(look(path)) == 0


# --- counts on real logs --------------------------------------------------------------------------------------------

DIFFERENCES = {
    ("abcd", "messages"): "the system's reply to a button is a message of its own",
    ("abcd", "tool_results"): "the system's reply to a button is its result",
    (
        "llamafactory_v1",
        "messages",
    ): "one tool message with a result for each of several calls is one message for each",
    (
        "llamafactory_v1",
        "tool_results",
    ): "one tool message with a result for each of several calls is a result for each",
    ("taskmaster4", "messages"): "each call and each response is a message of its own",
    (
        "taskmaster_reward",
        "tool_calls",
    ): "the context's calls are history and no decisions; 2 calls have no name",
    ("taskmaster_reward", "tool_results"): "the context's responses are history; the judged answer has none",
}
"""Why a count differs from the independent one; docs/formats/dialogue.md has the same words."""

real = pytest.mark.skipif(not EXPECTED.is_file(), reason="the shared logs are not here")


def files(name: str) -> list[Path]:
    return sorted((LOGS / name).iterdir()) if (LOGS / name).is_dir() else []


def counts_of(path: Path) -> Counter[str]:
    readings = list(get(path.parent.name).read(Source(path, path.name)))
    for item in readings:
        known = isinstance(item, Reject) and item.rule in ("nameless_call", "reward_without_step")
        assert isinstance(item, Episode) or known, item
    return counts_in(item for item in readings if isinstance(item, Episode))


def adjust(counts: Counter[str], path: Path) -> None:
    """Change the independent counts by what the documented differences come to, counted on the raw file."""
    name, text = path.parent.name, path.read_text("utf-8")
    if name == "abcd":
        pressed = sum(turn[0] == "action" for chat in json.loads(text) for turn in chat["original"])
        counts += Counter(messages=pressed, tool_results=pressed)
    elif name == "llamafactory_v1":
        more = 0
        for chat in map(json.loads, text.splitlines()):
            for turn, after in zip(chat["messages"], chat["messages"][1:], strict=False):
                asked = sum(block["type"] == "tool_call" for block in turn["content"])
                more += asked - 1 if after["role"] == "tool" else 0
        counts.update(messages=more, tool_results=more)
    elif name == "taskmaster4":
        counts.update(messages=counts["tool_calls"] + counts["tool_results"])
    elif name == "taskmaster_reward":
        answers = [json.loads(row["generation"]).get("api", {}) for row in json.loads(text)]
        counts["tool_calls"] = sum(name != "" for answer in answers for name in answer)
        counts["tool_results"] = 0


@real
@pytest.mark.parametrize("path", [p for name in FORMATS for p in files(name)], ids=lambda p: p.name)
def test_counts_agree_with_the_independent_ones(path):
    expected = independent(path)
    adjust(expected, path)
    assert {k: v for k, v in counts_of(path).items() if v} == {k: v for k, v in expected.items() if v}


@real
@pytest.mark.parametrize("name", FORMATS)
def test_differences_are_those_of_the_documentation(name):
    counted = ((independent(path), counts_of(path)) for path in files(name))
    totals_as_told("formats/dialogue.md", name, counted, DIFFERENCES)


# --- calls in what gpt says ------------------------------------------------------------------------------------------


def _talk(tmp_path, *turns, **row):
    path = tmp_path / "rows.json"
    said = [{"from": by, "value": value} for by, value in turns]
    path.write_text(json.dumps([{"conversations": said} | row]), "utf-8")
    assert [claim.connector.name for claim in detect(path)][:1] == ["sharegpt_tools"]
    return read(path)


HERMES = '<tool_call>\n{"name": "find", "arguments": {"n": 1}}\n</tool_call>\n<tool_call>\n{"name": "find", "arguments": {"n": 2}}\n</tool_call>'


def test_hermes_calls_stand_in_tags_and_each_has_its_response(tmp_path):
    answers = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    (episode,) = _talk(tmp_path, ("human", "Find."), ("gpt", HERMES), ("tool", answers), ("gpt", "Both."))
    assert calls(episode) == [("find", '{"n":1}', "one"), ("find", '{"n":2}', "two")]
    assert [step.parallel_group for step in episode.steps] == [0, 0, None]
    assert roles(episode) == "u a t t a"
    assert episode.messages[1].content == HERMES


def test_one_response_to_two_calls_answers_both(tmp_path):
    (episode,) = _talk(
        tmp_path, ("human", "Find."), ("gpt", HERMES), ("tool", "<tool_response>one</tool_response>")
    )
    assert [result for _, _, result in calls(episode)] == ["<tool_response>one</tool_response>"] * 2


def test_toolace_calls_are_in_brackets(tmp_path):
    (episode,) = _talk(
        tmp_path,
        ("user", "Weather?"),
        ("assistant", '[forecast(city="Elva"), Sea Level API(port="Pärnu", deep=true)]'),
        ("tool", '[{"name": "forecast", "results": "sun"}, {"name": "Sea Level API", "results": {"m": 1}}]'),
        ("assistant", "Sun."),
        system="You have functions.",
    )
    assert calls(episode) == [
        ("forecast", '{"city":"Elva"}', "sun"),
        ("Sea Level API", '{"deep":true,"port":"Pärnu"}', '{"m":1}'),
    ]
    assert [step.kind for step in episode.steps] == ["tool", "tool", "respond"]
    assert episode.messages[3].locator == "log#/0/conversations/2/value#/0/results"


def test_a_call_that_cannot_be_read_is_no_answer(tmp_path):
    cut = '<tool_call>\n{"name": "find", "arguments": {"n"'
    readings = _talk(tmp_path, ("human", "Find."), ("gpt", cut), ("tool", "one"), ("gpt", "One."))
    (episode,) = episodes(readings)
    assert [step.kind for step in episode.steps] == ["respond"]
    assert [message.content for message in episode.messages] == ["Find.", cut, "One."]
    assert [(part.rule, part.locator) for part in rejects(readings, "part")] == [
        ("unparsed_call", "log#/0/conversations/1/value"),
        ("orphan_result", "log#/0/conversations/2/value"),
    ]


def test_a_run_that_ends_with_a_call_that_cannot_be_read_has_not_ended(tmp_path):
    (episode,) = episodes(_talk(tmp_path, ("human", "Find."), ("gpt", '<tool_call>{"name"')))
    assert episode.steps == []
    assert (episode.ending, episode.ending_reason) == ("truncated", "last call is unanswered")


def test_a_result_behind_a_lost_call_is_not_given_to_an_older_one(tmp_path):
    open_call = json.dumps({"name": "find", "arguments": {}})
    readings = _talk(
        tmp_path, ("human", "Find."), ("function_call", open_call), ("gpt", "<tool_call>{"), ("tool", "one")
    )
    (episode,) = episodes(readings)
    assert calls(episode) == [("find", "{}", None)]
    assert [part.rule for part in rejects(readings, "part")] == ["unparsed_call", "orphan_result"]


def test_a_hermes_row_and_a_toolace_row():
    (hermes,) = episodes(read(FIXTURES / "sharegpt_tools" / "hermes.json"))
    assert calls(hermes) == [
        ("get_exchange_rate", '{"base":"USD","target":"EUR"}', '{"rate": 0.86}'),
        ("get_exchange_rate", '{"base":"USD","target":"JPY"}', '{"rate": 156.2}'),
    ]
    (toolace,) = episodes(read(FIXTURES / "sharegpt_tools" / "toolace.json"))
    assert calls(toolace) == [
        ("Exchange Rate", '{"base":"USD","target":"EUR"}', '{"rate":0.86}'),
        ("find_user", '{"name":"Ann","note":"[x]"}', "a guest"),
        ("find_user", "{}", None),
    ]
    assert toolace.tools == ["Exchange Rate", "find_user"]


def test_glaive_chats_are_cut_at_their_labels():
    readings = read(FIXTURES / "glaive" / "chats.json")
    rate, user, none, cut = episodes(readings)
    assert roles(rate) == "s u a t a u a"
    assert calls(rate) == [("get_exchange_rate", '{"base":"USD","target":"EUR"}', '{"rate": 0.86}')]
    assert (rate.messages[4].content, rate.tools) == ("A dollar is 0.86 euros.", ["get_exchange_rate"])
    assert calls(user) == [("find_user", '{"name":"O\'Brien","note":"a \\"guest\\""}', '{"users": []}')]
    assert [step.kind for step in user.steps] == ["tool", "respond"]
    assert (none.tools, [step.kind for step in none.steps]) == (None, ["respond"])
    assert (cut.steps, cut.ending) == ([], "truncated")
    assert [part.rule for part in rejects(readings, "part")] == ["unparsed_call"]
    (sample,) = episodes(read(FIXTURES / "glaive" / "sample.jsonl"))
    assert calls(sample) == calls(rate)


def test_xlam_rows_end_with_their_calls():
    readings = read(FIXTURES / "xlam" / "rows.json")
    two, one, none = episodes(readings)
    assert calls(two) == [
        ("live_giveaways_by_type", '{"type":"beta"}', None),
        ("live_giveaways_by_type", '{"type":"game"}', None),
    ]
    assert [step.parallel_group for step in two.steps] == [0, 0]
    assert (one.tools, one.ending_reason) == (
        ["distance", "live_giveaways_by_type"],
        "last call is unanswered",
    )
    assert none.steps == []
    assert [(r.rule, r.locator) for r in rejects(readings)] == [("malformed_record", "log#/3")]
