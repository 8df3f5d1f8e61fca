"""Exports of chat apps and captured traffic: what is special in each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.captures.trees import branches
from logforge.connectors.detection import detect
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Episode
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
