"""Exports of chat apps and captured traffic: what is special in each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.captures.trees import branches
from logforge.connectors.detection import detect
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Episode, Skip
from support.places import DATA
from support.read_logs import episodes, rejects, tool_steps

FIXTURES = DATA / "connectors"


def read(path: Path) -> list[Any]:
    return list(detect(path)[0].connector.read(Source(path, "log")))


def written(path: Path, rows: Any) -> list[Any]:
    path.write_text(json.dumps(rows))
    return read(path)


# --- trees ----------------------------------------------------------------------------------------------------------


def test_every_node_is_in_a_branch_and_the_first_way_has_no_fork():
    parents = {"a": None, "b": "a", "c": "a", "d": "c", "e": "c", "x": "y", "y": "x"}
    main, *others = branches(parents, "e")
    assert (main.path, main.fork) == (("a", "c", "e"), "e")
    told = [(branch.path, branch.own, branch.fork) for branch in others]
    assert told[:2] == [(("a", "b"), 1, None), (("a", "c", "d"), 2, "c")]
    assert {node for branch in [main, *others] for node in branch.path} == set(parents)


def test_a_branch_keeps_its_name_when_others_come_and_when_it_is_the_current_one():
    small: dict[str, str | None] = {"a": None, "b": "a", "c": "a"}
    grown = small | {"d": "b", "e": "b", "f": "c"}
    names = {branch.path[:2]: branch.fork for branch in branches(small, "b")}
    for current in ("d", "e", "f"):
        forks = {branch.path[-1]: branch.fork for branch in branches(grown, current)}
        assert forks == {"d": None, "e": "e", "f": names["a", "c"]}


def test_a_conversation_that_went_back_to_an_inner_node_does_not_share_its_name():
    main, other = branches({"a": None, "b": "a", "c": "b"}, "b")
    assert (main.path, main.fork, other.own, other.fork) == (("a", "b"), None, 2, "c")


# --- ChatGPT ----------------------------------------------------------------------------------------------------------


def test_chatgpt_calls_are_messages_to_a_tool_and_results_name_it():
    bread, call = episodes(read(FIXTURES / "chatgpt" / "conversations.json"))
    bio, web, canvas, picture = tool_steps(bread)
    assert (bio.action, json.loads(bio.arguments), bio.result) == (
        "bio",
        {"input": "User bakes rye bread."},
        "Model set context updated.",
    )
    assert json.loads(web.arguments)["search_query"] == [{"q": "weather Ghent today", "recency": 1}]
    # one call, answered in two messages
    assert (web.result or "").startswith("L0: Ghent, 24 degrees, dry until the evening\n{")
    assert "weather.example/ghent" in (web.result or "")
    assert (canvas.action, picture.result) == ("canmore.create_textdoc", "[image_asset_pointer]")
    said = bread.messages[canvas.position]
    assert said.content == "Yes: 24 degrees, and dry until the evening. I write you a plan."
    assert bread.messages[0].role == "system"  # what the app remembers of the user
    assert (bread.ending, bread.ending_reason) == ("truncated", "the user stopped the answer")
    assert [m.content for m in call.messages] == [
        "Hello there.\n[real_time_user_audio_video_asset_pointer]",
        "Hello! How can I help?\n[audio_asset_pointer]",
    ]


def test_chatgpt_branches_that_were_left_are_episodes_and_shared_decisions_have_one_key():
    readings = read(FIXTURES / "chatgpt" / "left_branches.json")
    mean, again, main = episodes(readings)
    assert [e.records for e in (mean, again, main)] == [0, 0, 1]
    assert main.messages[-1].content == "The median is 8.50. Shall I draw it?"
    assert [json.loads(e.metadata).get("left_branch") for e in (mean, again, main)] == [True, True, None]
    keys = [[step.decision_key for step in episode.steps] for episode in (mean, again, main)]
    assert keys[0][:3] == keys[1][:3] == keys[2][:3]
    assert len({key for row in keys for key in row}) == 3 + 1 + 1 + 2
    (asked,) = rejects(readings)
    assert (asked.rule, asked.level, "median, of all rows" in asked.excerpt) == ("other_branch", "part", True)


def test_chatgpt_thoughts_and_failures():
    main = episodes(read(FIXTURES / "chatgpt" / "left_branches.json"))[-1]
    failed, worked, *_ = tool_steps(main)
    turn = main.messages[failed.position]
    assert turn.thought == "Looking at the table\nI have to read the file first."
    assert turn.content == "Let me read the file."
    assert (failed.result_status, worked.result_status, worked.result) == ("error", "ok", "118.4")
    assert main.task == "What is the sum of the column `price`?\n[file]"
    assert main.model == "gpt-5"


def chatgpt(*messages: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    mapping: dict[str, Any] = {}
    for number, (role, more) in enumerate(messages):
        content = more.pop("content", {"content_type": "text", "parts": [more.pop("text", "")]})
        author = {"role": role, "name": more.pop("name", None)}
        mapping[f"n{number}"] = {
            "message": {"author": author, "content": content, "recipient": "all", **more},
            "parent": f"n{number - 1}" if number else None,
            "children": [f"n{number + 1}"] if number + 1 < len(messages) else [],
        }
    return [{"mapping": mapping, "current_node": f"n{len(messages) - 1}", "conversation_id": "c"}]


def test_chatgpt_without_a_recipient_an_assistants_message_may_be_a_call(tmp_path):
    asked = ("user", {"text": "Remember me."})
    for recipient in (None, 7.5, {"name": "bio"}):
        rows = chatgpt(
            asked, ("assistant", {"text": "User is Ann.", "recipient": recipient, "end_turn": False})
        )
        readings = written(tmp_path / "x.json", rows)
        if recipient == 7.5:  # odd, and still the name of somebody else than all
            assert [step.action for step in episodes(readings)[0].steps] == ["7.5"]
            continue
        assert not episodes(readings)
        assert rejects(readings)[0].rule == "unknown_part"


def test_chatgpt_results_of_one_tool_go_to_the_calls_of_the_latest_turn(tmp_path):
    call = {"recipient": "python", "content": {"content_type": "code", "text": "1"}}
    rows = chatgpt(
        ("user", {"text": "Go"}),
        ("assistant", dict(call)),
        ("user", {"text": "Again"}),
        ("assistant", dict(call)),
        ("tool", {"name": "python", "text": "one"}),
        ("tool", {"name": "python", "text": "two"}),
        ("tool", {"name": "browser", "text": "of nobody"}),
    )
    readings = written(tmp_path / "x.json", rows)
    (episode,) = episodes(readings)
    assert [step.result for step in episode.steps] == [None, "one\ntwo"] or episode.steps[0].result == "two"
    assert [reject.rule for reject in rejects(readings)] == ["orphan_result"]


def test_chatgpt_with_a_current_node_that_is_not_there_reads_the_newest_end(tmp_path):
    rows = json.loads((FIXTURES / "chatgpt" / "left_branches.json").read_text())
    rows["current_node"] = "gone"
    readings = written(tmp_path / "x.json", rows)
    assert episodes(readings)[-1].messages[-1].content == "The median is 8.50. Shall I draw it?"
    assert "bad_node" in [reject.rule for reject in rejects(readings)]


@pytest.mark.parametrize(
    ("more", "ending"),
    [
        ({"end_turn": True}, "terminal"),
        ({"end_turn": None}, "terminal"),
        ({"end_turn": False}, "truncated"),
        ({"metadata": {"finish_details": {"type": "max_tokens"}}}, "truncated"),
        ({"status": "in_progress"}, "truncated"),
    ],
)
def test_chatgpt_endings(tmp_path, more, ending):
    rows = chatgpt(("user", {"text": "Go"}), ("assistant", {"text": "Gone", **more}))
    assert episodes(written(tmp_path / "x.json", rows))[0].ending == ending


# --- Claude.ai --------------------------------------------------------------------------------------------------------


def test_claude_ai_messages_hold_several_turns():
    left, free, haiku, cut = episodes(read(FIXTURES / "claude_ai" / "conversations.json"))
    assert [step.action for step in free.steps] == [
        "Calendar:list_calendars",
        "Calendar:list_events",
        "Calendar:list_events",
        "clarify",
        "Calendar:add",
        "respond",
    ]
    assert [s.result for s in tool_steps(free)][1:3] == ["17:00 swimming", "Error: no such day"]
    assert tool_steps(free)[2].result_status == "error"
    assert free.messages[0].content == "When am I free tomorrow?\nI work from nine to five.\n[file]"
    assert free.messages[1].thought == "First the calendars."
    assert (free.ending, free.messages[-1].content) == ("truncated", "Never mind.")
    assert (left.records, left.messages[-1].content) == (0, "Done: 19:00 to 20:00.")
    shared = {step.decision_key for step in left.steps} & {step.decision_key for step in free.steps}
    assert len(shared) == 4
    assert [m.role for m in haiku.messages] == ["user", "assistant", "user"]
    assert (cut.ending_reason, cut.model) == ("the user stopped the answer", "claude-sonnet-4-5")


def test_claude_ai_of_an_unknown_sender_nothing_is_kept(tmp_path):
    messages = [
        {"sender": "human", "text": "Hello", "content": []},
        {"sender": "agent", "text": "Hello!", "content": []},
    ]
    readings = written(tmp_path / "x.json", [{"uuid": "u", "chat_messages": messages}])
    assert not any(isinstance(reading, Episode) for reading in readings)
    assert rejects(readings)[0].rule == "unknown_part"


# --- HAR --------------------------------------------------------------------------------------------------------------

HAR = FIXTURES / "har" / "traffic.har"


def test_har_exchanges_of_four_apis_become_conversations():
    readings = read(HAR)
    failed, chat, messages, responses, gemini = episodes(readings)
    assert (failed.steps, failed.ending_reason) == ([], "the last model call failed: Rate limit reached")
    told = [
        (e.model, [(s.action, s.result) for s in tool_steps(e)], e.messages[-1].content, e.tools)
        for e in (chat, messages, responses, gemini)
    ]
    assert told == [
        ("gpt-4o-2024-08-06", [("find_order", "shipped")], "It was shipped.", ["find_order"]),
        ("claude-sonnet-4-5", [("read", "blue")], "It says blue.", ["list", "read"]),
        ("gpt-5-2025-08-07", [("add", "5")], "5, of course.", ["add"]),
        ("gemini-2.5-flash", [("weather", '{"output":"sunny"}')], "It is sunny.", ["weather"]),
    ]
    assert [e.messages[2].thought for e in (messages, responses, gemini)] == [
        "I read it.",
        "Use the tool.",
        "Ask the tool.",
    ]
    assert all(e.ending == "terminal" and e.records == 2 for e in (chat, messages, responses, gemini))
    assert [(item.reason, item.records) for item in readings if isinstance(item, Skip)] == [
        ("other_traffic", 1)
    ]


def test_har_keeps_no_key():
    kept = str(read(HAR))
    assert "not-a-real-key" in HAR.read_text()
    assert "not-a-real-key" not in kept


def test_a_har_stream_that_stops_is_cut(tmp_path):
    har = json.loads(HAR.read_text())
    content = har["log"]["entries"][3]["response"]["content"]
    content["text"] = "\n\n".join(content["text"].split("\n\n")[:2]) + "\n\n"
    chat = next(e for e in episodes(written(tmp_path / "x.har", har)) if e.model == "gpt-4o-2024-08-06")
    assert (chat.messages[-1].content, chat.ending) == ("It was ", "truncated")


def test_a_har_response_of_another_shape_makes_no_utterance(tmp_path):
    har = json.loads(HAR.read_text())
    har["log"]["entries"] = har["log"]["entries"][5:6]
    content = har["log"]["entries"][0]["response"]["content"]
    content["text"] = content["text"].replace('"content"', '"inhalt"')
    readings = written(tmp_path / "x.har", har)
    assert not episodes(readings)
    assert rejects(readings)[0].rule == "unknown_part"


# --- MLflow -----------------------------------------------------------------------------------------------------------


def test_mlflow_traces_of_both_generations_are_one_shape():
    (old,) = episodes(read(FIXTURES / "mlflow" / "mlflow_2.json"))
    clerk, graph, broken = episodes(read(FIXTURES / "mlflow" / "mlflow_3.jsonl"))
    for episode in (old, clerk):
        assert [(s.action, s.result_status) for s in tool_steps(episode)] == [
            ("find_order", "ok"),
            ("refund", "error"),
        ]
        assert episode.tools == ["find_order", "refund"]
    assert (old.success, clerk.success, clerk.session_id, clerk.user_id) == (None, True, "session-1", "ann")
    assert old.messages[2].thought == "Look it up first."
    assert round(clerk.cost_usd or 0, 6) == 0.0009
    assert [m.tokens_out for m in clerk.messages if m.role == "assistant"] == [5, 5, 5]
    assert (graph.model, [s.action for s in graph.steps], graph.messages[0].content) == (
        "gpt-4o-mini",
        ["find_order"],
        "Answer briefly.",
    )
    assert (broken.ending, broken.steps) == ("truncated", [])


def test_mlflow_rows_of_search_traces_hold_the_trace_as_text(tmp_path):
    trace = json.loads((FIXTURES / "mlflow" / "mlflow_2.json").read_text())
    (whole,) = episodes(read(FIXTURES / "mlflow" / "mlflow_2.json"))
    for row in (
        {"trace_id": "x", "trace": json.dumps(trace)},
        {"spans": trace["data"]["spans"], "trace_id": "x"},
    ):
        path = tmp_path / "rows.json"
        path.write_text(json.dumps([row]))
        (episode,) = episodes(read(path))
        assert [m.content for m in episode.messages] == [m.content for m in whole.messages]


# --- Weave ------------------------------------------------------------------------------------------------------------

WEAVE = FIXTURES / "weave" / "calls.jsonl"


def weave_calls() -> list[dict[str, Any]]:
    return [json.loads(line) for line in WEAVE.read_text().splitlines()]


def test_calls_of_weave_are_one_run_of_the_agent():
    readings = read(WEAVE)
    (run,) = episodes(readings)
    assert [(s.action, s.arguments, s.result, s.latency_s) for s in run.steps] == [
        ("find_order", '{"order":7}', "shipped", 2.0),
        ("respond", "{}", None, None),
    ]
    assert (run.model, run.tools, run.cost_usd, run.task) == (
        "gpt-4o",
        ["find_order"],
        0.0003,
        "Where is order 7?",
    )
    assert (run.messages[4].thought, run.messages[2].tokens_in, run.records) == ("Tell it.", 30, 4)
    assert Skip(reason="other_span") in readings


def test_an_op_of_ones_own_is_a_model_call_when_it_talks_and_holds_no_other(tmp_path, write_jsonl):
    rows = weave_calls()
    rows[1]["op_name"] = rows[3]["op_name"] = "ask_model"
    (run,) = episodes(read(write_jsonl(tmp_path / "leaf.jsonl", rows)))
    assert [s.action for s in run.steps] == ["find_order", "respond"]
    wrapper = {**rows[3], "id": "w", "op_name": "wrapper", "started_at": "2026-01-05T10:00:05Z"}
    rows[3]["parent_id"] = "w"
    readings = read(write_jsonl(tmp_path / "wrapped.jsonl", [*rows, wrapper]))
    (run,) = episodes(readings)
    assert [s.action for s in run.steps] == ["find_order", "respond"]
    assert readings.count(Skip(reason="other_span")) == 2


def test_an_answer_that_the_export_only_names_is_no_decision(tmp_path, write_jsonl):
    rows = weave_calls()
    rows[3]["output"] = "weave:///acme/shop/object/answer:v1"
    readings = read(write_jsonl(tmp_path / "x.jsonl", rows))
    assert episodes(readings) == []
    assert "unknown_part" in [r.rule for r in rejects(readings) if r.level == "record"]


def test_feedback_of_weave_is_told(tmp_path, write_jsonl):
    rows = weave_calls()
    rows[1]["summary"]["weave"]["feedback"] = [
        {"feedback_type": "wandb.reaction.1", "payload": {"emoji": "x"}}
    ]
    assert [r.rule for r in rejects(read(write_jsonl(tmp_path / "x.jsonl", rows)))] == ["unknown_annotation"]
