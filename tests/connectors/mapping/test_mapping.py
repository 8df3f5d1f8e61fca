"""The mapping language on shapes that its page alone has to explain: units, unread values, speech, turns, what is kept."""

from __future__ import annotations

import json
import math
import pickle
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.mapping.connector import load_mapping, mapping_of
from logforge.connectors.mapping.fields import without
from logforge.connectors.mapping.values import micros_in
from logforge.connectors.records.base import Connector, Source, look
from logforge.schemas.errors import SpecError
from logforge.testing.kit import counted
from support.read_logs import assert_sound, episodes, rejects

CHAT = "name: chats\nmessages:\n  path: $.data.msgs[*]\n  role: $.by\n  content: $.text\n"
STEPS = "name: acts\nepisode:\n  id: $.run\n  task: $.goal\nsteps:\n  action: $.act\n"


def read(tmp_path: Path, mapping: str, *rows: Any) -> list[Any]:
    (tmp_path / "map.yaml").write_text(mapping, "utf-8")
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    readings = list(load_mapping(tmp_path / "map.yaml").read(Source(path, "log")))
    assert_sound(readings)
    assert counted(readings) == len(rows)
    return readings


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"data": {"msgs": [*messages]}, **more}


def said(by: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {"by": by, "text": text, **more}


def problems(tmp_path: Path, mapping: str) -> str:
    (tmp_path / "map.yaml").write_text(mapping, "utf-8")
    with pytest.raises(SpecError) as caught:
        load_mapping(tmp_path / "map.yaml")
    return str(caught.value)


# --- what is kept -------------------------------------------------------------------------------------------------


def test_only_what_was_read_leaves_the_metadata(tmp_path):
    messages = [said("user", "go"), said("assistant", "ok", mood="glad")]
    row = {"data": {"lang": "en", "msgs": messages}, "id": "r1", "grade": "B", "empty": {}}
    mapping = CHAT + "episode:\n  id: $.id\n  success:\n    path: $.grade\n    values: {A: true, F: false}\n"
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert (episode.native_id, episode.success) == ("r1", None)
    assert json.loads(episode.metadata) == {
        "data": {"lang": "en", "msgs": [None, {"mood": "glad"}]},
        "grade": "B",
        "empty": {},
    }


def test_a_path_that_was_not_needed_was_not_read(tmp_path):
    mapping = CHAT.replace("$.text", '["$.text", "$.html"]')
    row = chat(said("user", "go", html="<b>"), {"by": "user", "html": "x"})
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert [m.content for m in episode.messages] == ["go", "x"]
    assert json.loads(episode.metadata) == {"data": {"msgs": [{"html": "<b>"}, None]}}


def test_what_is_left_of_json_text_and_what_a_message_of_no_role_says(tmp_path):
    row = {"data": json.dumps({"msgs": [said("user", "go"), said("ghost", "boo")], "n": 1})}
    readings = read(tmp_path, CHAT, row)
    (episode,) = episodes(readings)
    assert json.loads(episode.metadata) == {"data": {"msgs": [None, {"by": "ghost", "text": "boo"}], "n": 1}}
    assert [r.rule for r in rejects(readings)] == ["unknown_role"]


def test_results_that_answer_nothing_stay_in_the_metadata(tmp_path):
    readings = read(tmp_path, CHAT, chat(said("user", "go"), said("tool", "done")))
    assert [r.rule for r in rejects(readings)] == ["orphan_result"]
    assert json.loads(episodes(readings)[0].metadata) == {"data": {"msgs": [None, {"text": "done"}]}}


def test_costs_and_tools_of_each_turn(tmp_path):
    mapping = CHAT + "  cost: $.usd\n  tools: $.menu\nepisode:\n  model: $.model\n  policy: $.who\n"
    menu = [{"name": "find"}, "pay"]
    messages = [
        said("user", "go"),
        said("assistant", "ok", usd="0.25", menu=["find"]),
        said("assistant", "so", usd=0.5, menu=menu),
        said("assistant", "no", usd=-1),
    ]
    readings = read(tmp_path, mapping, chat(*messages, model="m", who="prod-v3"), chat(*messages, model="m"))
    one, other = episodes(readings)
    assert ([m.cost_usd for m in one.messages], one.cost_usd) == ([None, 0.25, 0.5, None], 0.75)
    assert one.offered == [["find"], ["find", "pay"], ["find", "pay"], ["find", "pay"]]
    assert {(r.rule, r.reason) for r in rejects(readings)} == {("bad_value", "messages.cost: no cost")}
    assert (one.policy_id, other.policy_id) == ("prod-v3", "m")


def test_a_later_rows_other_word_is_kept(tmp_path):
    rows = [{"run": 1, "goal": goal, "act": "f", "seed": 7} for goal in ("buy", "buy", "sell")]
    (episode,) = episodes(read(tmp_path, STEPS, *rows))
    assert (episode.task, json.loads(episode.metadata)) == ("buy", {"goal": [None, None, "sell"], "seed": 7})


def test_without_goes_along_trails():
    value = {"a": [{"b": 1, "c": 2}, {"b": 3}], "d": 4}
    assert without(value, [("a", 0, "b"), ("a", 1, "b")]) == {"a": [{"c": 2}, None], "d": 4}
    assert without(value, [("a",), ("a", 0, "b"), ("d",), ("no", 1)]) is None
    assert without(value, []) == value
    assert without(value, [()]) is None


# --- values that cannot be read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "block", "value", "says"),
    [
        ("reward", "messages", "0,5", "messages.reward: no number"),
        ("tokens_in", "messages", -3, "messages.tokens_in: no count"),
        ("time", "messages", 1700000000000, "messages.time: no time between 1990 and 2100"),
        ("model", "messages", {"a": 1}, "messages.model: neither text nor a number"),
        ("success", "episode", "perhaps", "episode.success: none of true"),
        ("score", "episode", "NaN", "episode.score: no number"),
        ("started", "episode", 1700000000000, "episode.started: no time between"),
        ("ending", "episode", "bye", "episode.ending: none of terminal, truncated"),
        ("terminated", "episode", "maybe", "episode.terminated: none of true"),
    ],
)
def test_a_value_that_cannot_be_read_is_a_part_set_aside(tmp_path, field, block, value, says):
    mapping = CHAT + (f"  {field}: $.x\n" if block == "messages" else f"episode:\n  {field}: $.x\n")
    mine = {"x": value}
    row = chat(said("user", "go"), said("assistant", "ok", **(mine if block == "messages" else {})))
    readings = read(tmp_path, mapping, row | (mine if block == "episode" else {}))
    (bad,) = rejects(readings)
    (episode,) = episodes(readings)
    assert (bad.level, bad.rule, bad.episode_id) == ("part", "bad_value", episode.episode_id)
    assert bad.reason.startswith(says)
    assert bad.detail == (value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))
    assert bad.locator == ("log:1#/data/msgs/1/x" if block == "messages" else "log:1#/x")
    assert json.dumps(value, separators=(",", ":")) in episode.metadata


def test_blanks_are_no_value(tmp_path):
    mapping = CHAT + "  reward: $.r\nepisode:\n  success: $.s\n"
    readings = read(tmp_path, mapping, chat(said("assistant", "ok", r=" "), s=""))
    assert rejects(readings) == []
    assert episodes(readings)[0].metadata == "{}"


def test_bad_values_of_rows(tmp_path):
    mapping = STEPS + "  reward: $.r\n  observation: $.o\n  observation_role: $.who\n  terminated: $.done\n"
    row = {"run": "a", "act": "f", "r": "x", "o": "hi", "who": "robot", "done": "nearly"}
    readings = read(tmp_path, mapping, row)
    assert Counter(r.reason.split(":")[0] for r in rejects(readings)) == {
        "steps.reward": 1,
        "steps.observation_role": 1,
        "steps.terminated": 1,
    }
    assert episodes(readings)[0].messages[0].role == "user"


# --- times --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "value", "micros"),
    [
        (None, 1700000000, 1700000000_000000),
        (None, "2023-11-14T22:13:20Z", 1700000000_000000),
        (None, 1700000000000, None),
        ("s", "1700000000.123456", 1700000000_123456),
        ("ms", 1700000000123, 1700000000_123000),
        ("ms", 1700000000, None),
        ("us", 1700000000123456, 1700000000_123456),
        ("ns", "1700000000123456789", 1700000000_123456),
        ("ms", "2023-11-14T22:13:20+00:00", 1700000000_000000),
        ("iso", 1700000000, None),
        ("iso", "2023-11-14", 1699920000_000000),
        ("iso", "20231114", 1699920000_000000),
        ("iso", "1889-11-14", None),
        ("s", "soon", None),
        ("s", True, None),
        ("s", math.inf, None),
        ("s", "1e999999999", None),
    ],
)
def test_time_units(unit, value, micros):
    assert micros_in(value, unit) == micros


def test_relative_times_count_from_the_start(tmp_path):
    mapping = "time_unit: relative\n" + CHAT + "  time: $.t\nepisode:\n  started: $.at\n  ended: $.end\n"
    row = chat(said("user", "go", t=0), said("assistant", "ok", t="2.5"), at="2023-11-14T22:13:20Z", end=4)
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert [m.created_at for m in episode.messages] == [1700000000_000000, 1700000002_500000]
    assert (episode.started_at, episode.ended_at) == (1700000000_000000, 1700000004_000000)


def test_relative_times_without_a_start_are_not_read(tmp_path):
    readings = read(tmp_path, "time_unit: relative\n" + CHAT + "  time: $.t\n", chat(said("user", "go", t=3)))
    assert (episodes(readings)[0].messages[0].created_at, rejects(readings)) == (None, [])
    assert json.loads(episodes(readings)[0].metadata) == {"data": {"msgs": [{"t": 3}]}}


def test_times_that_order_rows_but_cannot_be_read_are_kept(tmp_path):
    rows = [{"run": 1, "act": "f", "t": time} for time in (2, 1)]
    mapping = STEPS + "  order: $.t\n  time: $.t\n"
    for text in ("time_unit: relative\n" + mapping, mapping):
        (episode,) = episodes(read(tmp_path, text, *rows))
        assert json.loads(episode.metadata) == {"t": [1, 2]}


# --- values, speech, turns, messages to ignore --------------------------------------------------------------------


def test_a_star_stands_for_every_other_value(tmp_path):
    mapping = STEPS.replace("action: $.act", 'action: {path: $.act, values: {speak: respond, "*": same}}')
    mapping += "  say: $.words\n  result: $.back\n  arguments: $.args\n"
    rows = [
        {"run": 1, "act": "find", "args": {"n": 1}, "back": "found"},
        {"run": 1, "act": "speak", "words": "Here it is.", "back": "thanks", "args": {"tone": "kind"}},
        {"run": 1, "act": "clarify", "words": "Anything else", "back": None},
    ]
    (episode,) = episodes(read(tmp_path, mapping, *rows))
    assert [(s.kind, s.action, s.arguments, s.result) for s in episode.steps] == [
        ("tool", "find", '{"n":1}', "found"),
        ("respond", "respond", '{"tone":"kind"}', None),
        ("clarify", "clarify", "{}", None),
    ]
    assert [(m.role, m.content) for m in episode.messages][2:4] == [
        ("assistant", "Here it is."),
        ("user", "thanks"),
    ]
    assert episode.metadata == "{}"


def test_a_star_may_be_a_constant_and_a_default_is_for_nothing(tmp_path):
    role = 'role: {path: $.by, values: {bot: assistant, "*": user}, default: system}'
    row = chat(said("bot", "a"), said("ann", "b"), {"text": "c"})
    (episode,) = episodes(read(tmp_path, CHAT.replace("role: $.by", role), row))
    assert [m.role for m in episode.messages] == ["assistant", "user", "system"]


def test_one_column_of_speech_and_tools_without_a_mark(tmp_path):
    mapping = STEPS.replace("action: $.act", "action: {path: $.act, values: {find: find}}\n  say: $.act")
    (episode,) = episodes(read(tmp_path, mapping, {"run": 1, "act": "find"}, {"run": 1, "act": "Good day."}))
    expected = [("find", None), ("respond", "Good day.")]
    assert [(s.action, episode.messages[s.position].content) for s in episode.steps] == expected
    mapping = CHAT + "  calls:\n    name: {path: $.text, values: {find: find}}\n"
    row = chat(said("assistant", "find"), said("assistant", "Good day."))
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert [(s.action, episode.messages[s.position].content) for s in episode.steps] == expected


def test_consecutive_calls_of_one_turn_are_parallel(tmp_path):
    mapping = CHAT + "  turn: $.t\n  call_id: $.id\n  reward: $.r\n  tokens_out: $.n\n"
    mapping += "  calls:\n    name: $.fn\n    arguments: $.args\n    id: $.id\n"
    row = chat(
        said("user", "go"),
        said("assistant", "both", t=1, fn="a", id="1", r=0.1),
        said("assistant", t=1, fn="b", id="2", r=0.2, n=5),
        said("tool", "B", id="2"),
        said("tool", "A", id="1"),
        said("assistant", t=1, fn="c", id="3"),
        said("assistant", t=2, fn="d", id="4"),
        said("assistant", "done"),
    )
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert [(s.action, s.result, s.parallel_group, s.logged_reward) for s in episode.steps] == [
        ("a", "A", 0, 0.1),
        ("b", "B", 0, 0.2),
        ("c", None, None, None),
        ("d", None, None, None),
        ("respond", None, None, None),
    ]
    both = episode.messages[episode.steps[0].position]
    assert (both.content, both.tokens_out) == ("both", 5)
    assert episode.metadata == "{}"


def test_consecutive_rows_of_one_turn_are_parallel(tmp_path):
    mapping = STEPS + "  turn: $.t\n  observation: $.o\n  result: $.back\n  reward: $.r\n"
    rows = [
        {"run": 1, "t": 1, "o": "start", "act": "a", "back": "A", "r": 1},
        {"run": 1, "t": 1, "o": "start", "act": "b", "back": "B", "r": 2},
        {"run": 1, "t": 1, "o": "other"},
        {"run": 1, "o": "B", "act": "c"},
        {"run": 1, "act": "d"},
    ]
    readings = read(tmp_path, mapping, *rows)
    (episode,) = episodes(readings)
    assert [(s.action, s.result, s.parallel_group, s.logged_reward) for s in episode.steps] == [
        ("a", "A", 0, 1.0),
        ("b", "B", 0, 2.0),
        ("c", None, None, None),
        ("d", None, None, None),
    ]
    assert [m.role for m in episode.messages] == "user assistant tool tool assistant assistant".split()
    assert [r.rule for r in rejects(readings)] == ["no_action"]
    assert json.loads(episode.metadata) == {"o": [None, None, "other", None, None]}


def test_messages_to_ignore_are_counted_by_what_said_so(tmp_path):
    mapping = CHAT + '  turn: $.t\n  skip: {path: $.by, values: {beat: true, ad: true, "*": false}}\n'
    mapping += "  calls:\n    name: $.fn\n"
    beat, ad = said("beat", "x"), said("ad", "buy")
    calls = [said("assistant", t=1, fn=name) for name in "ab"]
    readings = read(tmp_path, mapping, chat(beat, said("user", "go"), calls[0], beat, ad, calls[1]))
    (episode,) = episodes(readings)
    assert rejects(readings) == []
    assert [s.parallel_group for s in episode.steps] == [0, 0]
    assert json.loads(episode.metadata) == {"$skipped_messages": {"beat": 2, "ad": 1}}


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["  path: {path: $.m[*]}", "  path: [$.m[*], $.n]", "  path: {default: x, path: $$.m[0].a}"]
)
def test_a_bare_path_in_braces_gives_a_hint(tmp_path, line):
    found = problems(tmp_path, f"name: x\nmessages:\n{line}\n  role: $.r\n")
    assert "not valid YAML" in found
    assert 'needs quotes: "$.name[*]"' in found
    assert "map.yaml:3" in found


def test_no_hint_where_none_helps(tmp_path):
    assert "quotes" not in problems(tmp_path, 'name: x\nmessages: {path: "$.m[*]", role: [}\n')


def test_other_mistakes(tmp_path):
    rest = "messages:\n  path: $.m[*]\n  role: $.r\n"
    assert "format logforge knows" in problems(tmp_path, "name: tau_bench\n" + rest)
    assert "time_unit is none of s, ms" in problems(tmp_path, "name: x\ntime_unit: m\n" + rest)
    assert "parent needs" in problems(tmp_path, "name: x\nepisode:\n  parent: $.p\n" + rest)
    robots = rest.replace("$.r", '{path: $.r, values: {"*": robot}}')
    assert "'robot' is none of" in problems(tmp_path, "name: x\n" + robots)


def test_a_mapping_says_what_it_fills(tmp_path):
    (tmp_path / "map.yaml").write_text(CHAT + "  time: $.t\nepisode:\n  success: $.s\n", "utf-8")
    connector = load_mapping(tmp_path / "map.yaml")
    assert isinstance(connector, Connector)
    assert connector.fills == ("outcome", "times")
    assert pickle.loads(pickle.dumps(connector)) == connector


# --- rows that are messages, and several messages in one place -----------------------------------------------------

ROWS = "name: rows\nepisode:\n  id: $.chat\n  success: $.ok\n  task: $.goal\nmessages:\n  rows: episode\n  order: $.n\n  role: $.by\n  content: $.text\n  calls:\n    name: $.tool\n    arguments: $.args\n"


def test_rows_of_one_id_are_one_conversation_in_their_order(tmp_path):
    rows = [
        {"chat": "a", "n": 2, "by": "assistant", "tool": "find", "args": {"q": 1}},
        {"chat": "b", "n": 1, "by": "user", "text": "hi", "mood": "glad"},
        {"chat": "a", "n": 1, "by": "user", "text": "go"},
        {"chat": "a", "n": 10, "by": "assistant", "text": "done", "ok": True, "goal": "later"},
        {"chat": "a", "n": 3, "by": "tool", "text": "7"},
    ]
    one, other = episodes(read(tmp_path, ROWS, *rows))
    assert [(m.role, m.content) for m in one.messages] == [
        ("user", "go"),
        ("assistant", None),
        ("tool", "7"),
        ("assistant", "done"),
    ]
    assert [(s.action, s.arguments, s.result) for s in one.steps] == [
        ("find", '{"q":1}', "7"),
        ("respond", "{}", None),
    ]
    assert (one.success, one.task, one.records, one.locator) == (True, "go", 4, "log:3")
    assert json.loads(one.metadata) == {"goal": [None, None, None, "later"]}, "a later row is the future"
    assert (other.ending, other.success, json.loads(other.metadata)) == ("truncated", None, {"mood": "glad"})


def test_all_rows_of_a_file_are_one_conversation(tmp_path):
    mapping = ROWS.replace(
        "rows: episode", "rows: file\n  skip:\n    path: $.event\n    values: {start: true}"
    )
    rows = [
        {"event": "start", "chat": "a"},
        {"by": "user", "text": "go", "n": 1},
        {"by": "assistant", "text": "ok", "n": 2},
    ]
    (episode,) = episodes(read(tmp_path, mapping.replace("  order: $.n\n", ""), *rows))
    assert ([m.role for m in episode.messages], episode.native_id) == (["user", "assistant"], "a")
    assert json.loads(episode.metadata)["$skipped_messages"] == {"start": 1}


def test_two_conversations_that_begin_alike_are_two_episodes(tmp_path):
    rows = [{"chat": 1, "by": "user", "text": "hi"}, {"chat": 1, "by": "assistant", "text": "hello"}]
    (one,) = episodes(read(tmp_path, ROWS, *rows))
    (other,) = episodes(read(tmp_path, ROWS, rows[0], {**rows[1], "text": "good day"}))
    assert one.episode_id != other.episode_id


EACH = """
name: pairs
episode:
  system: $.rules
messages:
  path: $.turns[*]
  each:
    - {role: user, content: $.q, time: $.at}
    - role: assistant
      content: $.a
      calls: {path: "$.used[*]", name: $.api, arguments: $.in}
      results: {path: "$.used[*]", content: $.out}
"""


def test_each_place_holds_several_messages(tmp_path):
    used = [{"api": "find", "in": {}, "out": "7"}]
    turns = [
        {"q": "go", "used": used, "at": 1700000000},
        {"q": "so?", "a": "done"},
        {"q": "thanks"},
        {"z": 1},
    ]
    readings = read(tmp_path, EACH, {"rules": "Be brief.", "turns": turns})
    (episode,) = episodes(readings)
    assert [(m.role, m.content) for m in episode.messages] == [
        ("system", "Be brief."),
        ("user", "go"),
        ("assistant", None),
        ("tool", "7"),
        ("user", "so?"),
        ("assistant", "done"),
        ("user", "thanks"),
    ]
    assert [(s.action, s.result) for s in episode.steps] == [("find", "7"), ("respond", None)]
    assert json.loads(episode.metadata) == {"turns": [None, None, None, {"z": 1}]}
    assert rejects(readings) == []


def test_a_record_that_is_a_question_with_its_answer(tmp_path):
    mapping = EACH.replace("$.turns[*]", "$")
    assert [
        len(e.messages) for e in episodes(read(tmp_path, mapping, {"q": "go", "a": "ok"}, {"q": "hm"}))
    ] == [2, 1]


def test_the_first_value_counts_that_the_table_translates(tmp_path):
    mapping = CHAT.replace(
        "role: $.by",
        "role:\n    path: [$.kind, $.by]\n    values: {result: tool, user: user, bot: assistant}",
    )
    row = chat(
        said("user", "go", kind="message"),
        said("bot", "ok", kind="message"),
        said("bot", "7", kind="result"),
    )
    readings = read(tmp_path, mapping, row)
    assert [m.role for m in episodes(readings)[0].messages] == ["user", "assistant"]
    assert [r.rule for r in rejects(readings)] == ["orphan_result"], "it was read as a tool's"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rows: episode", "rows: chat", "rows is none of episode, file @"),
        ("  id: $.chat\n", "", "episode.id is missing: it tells which messages belong together"),
        ("  role: $.by\n", "", "role is missing"),
        ("rows: episode", "rows: episode\n  each: []", "each is a list of messages"),
    ],
)
def test_what_is_wrong_with_rows(tmp_path, old, new, says):
    assert says in problems(tmp_path, ROWS.replace(old, new))


def test_what_is_wrong_with_each(tmp_path):
    wrong = (
        EACH.replace("role: assistant", "rôle: assistant").replace("name: $.api, ", "") + "  content: $.x\n"
    )
    told = problems(tmp_path, wrong)
    assert "unknown key 'rôle'; did you mean role?" in told
    assert "map.yaml:9 $.messages.each.1" in told
    assert "map.yaml:11 $.messages.each.1.calls" in told
    assert "content belongs into the messages that each lists" in told


def test_places_are_read_in_their_order_and_parts_of_a_text_are_joined(tmp_path):
    mapping = CHAT.replace("$.text", "$.parts[*].t") + "  order: $.n\n"
    row = chat(
        {"by": "assistant", "n": 2, "parts": [{"t": "so"}, {"img": "x"}, {"t": "it is"}]},
        {"by": "user", "n": 1, "parts": [{"t": "go"}]},
    )
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert [m.content for m in episode.messages] == ["go", "so\nit is"]
    assert json.loads(episode.metadata) == {"data": {"msgs": [{"parts": [None, {"img": "x"}, None]}, None]}}


def database(path: Path, rows: list[tuple[Any, ...]]) -> Source:
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE talk (chat TEXT, n INTEGER, by TEXT, data TEXT)")
        made.execute("CREATE TABLE other (x)")
        made.executemany("INSERT INTO talk VALUES (?, ?, ?, ?)", rows)
    return Source(path, "chat.db")


def test_rows_of_a_database(tmp_path):
    text = ROWS.replace("$.text", "$.data.text").replace("name: rows", "name: rows\nrecords: $.talk[*]")
    rows = [("a", 2, "assistant", '{"text": "ok"}'), ("a", 1, "user", '{"text": "go"}')]
    source = database(tmp_path / "chat.db", rows)
    connector = mapping_of(text, "map.yaml")
    assert connector.sniff(look(source.path)) == 0.99
    (episode,) = episodes(connector.read(source))
    assert [(m.role, m.content, m.locator) for m in episode.messages] == [
        ("user", "go", "chat.db#/talk/2/data#/text"),
        ("assistant", "ok", "chat.db#/talk/1/data#/text"),
    ]
    (wrong,) = mapping_of(text.replace("$.talk", "$.talks"), "map.yaml").read(source)
    assert (wrong.rule, wrong.detail) == ("not_a_conversation", "its tables: other, talk")


def test_rows_that_hold_several_messages_each(tmp_path):
    mapping = ROWS.replace("rows: episode", "rows: episode\n  path: $.said[*]")
    mapping = mapping.replace("  order: $.n\n", "")
    one = {"chat": 1, "said": [{"by": "user", "text": "go"}, {"by": "assistant", "text": "ok"}]}
    (episode,) = episodes(read(tmp_path, mapping, one, {"chat": 1, "said": [{"by": "user", "text": "bye"}]}))
    assert [m.content for m in episode.messages] == ["go", "ok", "bye"]


def test_blank_text_gives_way_to_what_is_said_elsewhere(tmp_path):
    mapping = CHAT.replace("$.text", "[$.text, $.html]")
    row = chat(said("user", " ", html="<b>"), said("assistant", ""))
    (episode,) = episodes(read(tmp_path, mapping, row))
    assert [m.content for m in episode.messages] == ["<b>", ""]


def test_a_place_where_no_speaker_is_known_is_set_aside_once(tmp_path):
    mapping = EACH.replace("role: user,", "role: {path: $.by, values: {u: user}},").replace(
        "role: assistant", "role: {path: $.by, values: {b: assistant}}"
    )
    row = {"turns": [{"by": "u", "q": "go", "a": "x"}, {"by": "b", "a": "ok"}, {"by": "z", "q": "who"}]}
    readings = read(tmp_path, mapping, row)
    assert [(m.role, m.content) for m in episodes(readings)[0].messages] == [
        ("user", "go"),
        ("assistant", "ok"),
    ]
    assert [(r.rule, r.locator) for r in rejects(readings)] == [("unknown_role", "log:1#/turns/2")]


def test_calls_that_are_turns_of_their_own(tmp_path):
    mapping = CHAT + (
        '  calls: {path: "$.steps[*]", apart: true, name: $.tool, arguments: $.in, thought: $.why}\n'
        '  results: {path: "$.steps[*]", content: $.out}\n'
    )
    steps = [
        {"tool": "find", "in": {"n": 1}, "why": "look", "out": "7"},
        {"tool": "pay", "in": {}, "out": "ok"},
        {"x": 1},
    ]
    readings = read(tmp_path, mapping, chat(said("user", "go"), said("assistant", "First", steps=steps)))
    (episode,) = episodes(readings)
    assert [(m.role, m.content, m.thought) for m in episode.messages] == [
        ("user", "go", None),
        ("assistant", "First", "look"),
        ("tool", "7", None),
        ("assistant", None, None),
        ("tool", "ok", None),
    ]
    assert [(s.action, s.result, s.parallel_group) for s in episode.steps] == [
        ("find", "7", None),
        ("pay", "ok", None),
    ]
    assert [r.rule for r in rejects(readings)] == ["nameless_call"]


def test_an_agents_message_that_is_no_text_makes_no_decision(tmp_path):
    call = {"toolUse": {"name": "find", "input": {}}}
    readings = read(
        tmp_path,
        CHAT,
        chat(said("user", "go"), {"by": "assistant", "text": [call]}),
        chat(said("user", "go")),
    )
    assert [len(e.steps) for e in episodes(readings)] == [0], "the other record is set aside whole"
    assert [(r.level, r.rule, r.locator) for r in rejects(readings)] == [
        ("record", "unknown_part", "log:1"),
        ("part", "unknown_part", "log:1#/data/msgs/1/text"),
    ]


def test_what_a_user_or_a_tool_gives_beside_words_costs_no_record(tmp_path):
    parts = [{"type": "text", "text": "look"}, {"blob": 1}]
    calls = "  calls: {path: $.does, name: $.fn}\n"
    row = chat(
        {"by": "user", "text": parts},
        {"by": "assistant", "does": {"fn": "find"}},
        {"by": "tool", "text": {"found": 7}},
        said("assistant", "7"),
    )
    readings = read(tmp_path, CHAT + calls, row)
    (episode,) = episodes(readings)
    assert [m.content for m in episode.messages] == ["look", None, '{"found":7}', "7"]
    assert [(r.level, r.rule) for r in rejects(readings)] == [("part", "unknown_part")]
    assert json.loads(episode.metadata) == {"data": {"msgs": [{"text": parts}, None, None, None]}}
