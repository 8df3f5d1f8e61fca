"""What agent SDKs keep of their conversations: turns, pairing, endings, and what is not understood."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import detect
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Duplicate, Episode, Reject, Skip
from support.places import DATA

FIXTURES = DATA / "connectors"


def read(path: Path) -> list[Any]:
    return list(detect(path)[0].connector.read(Source(path, "log")))


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def by_id(path: Path) -> dict[str | None, Episode]:
    return {episode.native_id: episode for episode in episodes(read(path))}


def told(episode: Episode) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in episode.messages]


def did(episode: Episode) -> list[tuple[str, str, str | None, str | None]]:
    return [(step.action, step.arguments, step.result, step.result_status) for step in episode.steps]


def refused(tmp_path: Path, row: Any) -> list[tuple[str, str]]:
    """What is set aside of a row of which nothing is kept: levels and rules."""
    path = tmp_path / "row.json"
    path.write_text(json.dumps(row))
    readings = read(path)
    assert episodes(readings) == []
    return [(item.level, item.rule) for item in readings if isinstance(item, Reject)]


# --- the Vercel AI SDK --------------------------------------------------------------------------------------------------

RAIN = '{"city":"Tartu","sky":"rain"}'


def test_what_the_ai_sdk_saved_has_its_turns_calls_and_results():
    (ui,) = episodes(read(FIXTURES / "vercel_ai" / "ui_v5.json"))
    (model,) = episodes(read(FIXTURES / "vercel_ai" / "model_v5.json"))
    assert [m.role for m in ui.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [m.role for m in model.messages] == ["system", *(m.role for m in ui.messages)]
    assert [s[:2] for s in did(ui)] == [s[:2] for s in did(model)]
    assert did(ui)[:2] == [
        ("forecast", '{"city":"Tartu"}', RAIN, "ok"),
        ("forecast", '{"city":"Narva"}', "An error occurred.", "error"),
    ]
    assert did(model)[1][2:] == ("no station in Narva", "error")
    assert [s.parallel_group for s in ui.steps] == [0, 0, None]
    assert ui.messages[1].thought == "Two cities."
    assert (ui.ending, model.ending, model.records) == ("terminal", "terminal", 5)


def test_version_4_says_its_words_and_calls_twice_and_they_count_once():
    (episode,) = episodes(read(FIXTURES / "vercel_ai" / "ui_v4.json"))
    said = [content for role, content in told(episode) if role != "tool"]
    assert said == ["Weather in Tartu and Narva?", "Looking.", "Sun in both."]
    assert [step.tool_call_id for step in episode.steps] == ["call_a", "call_b", None]


def test_states_of_calls_in_the_ai_sdk():
    found = by_id(FIXTURES / "vercel_ai" / "cases.jsonl")
    states = found["states"]
    assert did(states) == [
        ("book", '{"day":1}', "not today", "refused"),
        ("book", '{"day":2}', None, "missing"),
    ]
    assert (states.success, states.score, states.ending, states.model) == (True, 0.5, "truncated", "m-1")
    assert found["streaming"].steps == []
    assert found["streaming"].ending_reason == "the stream stops before its end"
    assert told(found["unanswered"])[1] == ("assistant", "Shall I pay?")
    assert [role for role, _ in told(found["unsteady"])] == ["user", "assistant", "tool", "assistant"]
    assert [role for role, _ in told(found["ran_there"])] == ["user", "assistant", "tool", "assistant"]
    assert did(found["old"]) == [("go", "{}", "no way", "error")]
    assert "data-weather" in found["asides"].metadata


def test_rows_that_are_messages_of_several_chats():
    found = by_id(FIXTURES / "vercel_ai" / "message_rows.jsonl")
    assert {name: episode.records for name, episode in found.items()} == {"x": 2, "y": 2}
    assert did(found["y"])[0] == ("forecast", '{"city":"Riga"}', '{"sky":"sun"}', "ok")


@pytest.mark.parametrize(
    "message",
    [
        {"parts": [{"type": "tool-forecast", "callId": "c", "state": "output-available"}]},
        {"parts": [{"type": "text", "text": "Rain."}], "toolCalls": [{"toolName": "forecast", "args": {}}]},
        {"parts": [{"type": "text", "text": "Rain."}, {"type": "invocation", "call": {"tool": "forecast"}}]},
        {"parts": [{"type": "text", "words": "Rain."}]},
        {"content": "It rained.", "parts": [{"type": "text", "text": "Rain."}]},
    ],
)
def test_a_message_of_the_ai_sdk_that_is_not_understood_makes_no_decision(tmp_path, message):
    asked = {"role": "user", "parts": [{"type": "text", "text": "Weather?"}]}
    row = {"id": "x", "messages": [asked, {"role": "assistant", **message}]}
    assert ("record", "unknown_part") in refused(tmp_path, row)


# --- Bedrock's Converse API and Strands -----------------------------------------------------------------------------------


def test_a_strands_session_is_one_episode_whether_in_one_file_or_in_several():
    folder = DATA / "strands_session"
    connector = detect(folder / "message_0.json")[0].connector
    others = tuple(connector.companions(folder / "message_0.json"))
    assert [path.name for path in others] == ["message_1.json", "message_2.json", "message_3.json"]
    (whole,) = episodes(list(connector.read(Source(folder / "message_0.json", "log", others[::-1]))))
    (listed,) = episodes(read(FIXTURES / "bedrock_converse" / "strands_messages.json"))
    assert (whole.records, listed.records) == (4, 4)
    assert told(whole) == told(listed)
    assert did(whole) == did(listed)
    assert did(whole)[:2] == [
        ("forecast", '{"city":"Tartu"}', RAIN, "ok"),
        ("forecast", '{"city":"Narva"}', "Error: no station in Narva", "error"),
    ]
    assert whole.messages[1].tokens_out == 5
    assert (whole.started_at or 0) < (whole.ended_at or 0)


def test_blocks_of_the_converse_api():
    found = by_id(FIXTURES / "bedrock_converse" / "cases.jsonl")
    whole = found["all"]
    assert told(whole) == [
        ("system", "Be brief."),
        ("user", "What is it?\n[image]"),
        ("assistant", None),
        ("tool", whole.steps[0].result),
        ("user", "Well?"),
        ("assistant", "A cat."),
    ]
    assert (whole.messages[2].thought, whole.tools, whole.temperature) == ("Look first.", ["look"], 0.2)
    assert (whole.success, whole.score, whole.model, whole.ending) == (True, 1.0, "m-1", "terminal")
    assert (found["cut"].ending, found["open"].ending) == ("truncated", "truncated")
    assert found["nameless"].steps == []


@pytest.mark.parametrize(
    "blocks",
    [
        [{"text": "Rain."}, {"tool_use": {"toolUseId": "u", "name": "forecast", "input": {}}}],
        [{"toolUse": {"useId": "u", "name": "forecast", "input": {}}}],
        [{"words": "Rain."}],
    ],
)
def test_a_block_of_the_converse_api_that_is_not_understood_makes_no_decision(tmp_path, blocks):
    messages = [{"role": "user", "content": [{"text": "Hi"}]}, {"role": "assistant", "content": blocks}]
    asked = [{"role": "user", "content": [{"text": "Hi"}, {"toolResult": {"toolUseId": "z", "content": []}}]}]
    assert ("record", "unknown_part") in refused(tmp_path, {"messages": asked + messages})


def test_bedrocks_own_log_of_invocations_is_one_conversation():
    (episode,) = episodes(read(FIXTURES / "bedrock_converse" / "invocation_log.jsonl"))
    assert told(episode) == [
        ("system", "Be brief."),
        ("user", "Riga?"),
        ("assistant", None),
        ("tool", "rain"),
        ("assistant", "Rain."),
    ]
    assert (episode.messages[2].thought, episode.messages[2].tokens_out) == ("Look.", 3)
    assert (episode.records, episode.tools, episode.temperature) == (2, ["w"], 0.1)
    assert (episode.model, episode.ending) == ("m-1", "terminal")


# --- OpenAI's Responses API -----------------------------------------------------------------------------------------------


def test_the_items_that_the_agents_sdk_gives():
    (episode,) = episodes(read(FIXTURES / "openai_items" / "agents_input_list.json"))
    assert [m.role for m in episode.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [step[:2] for step in did(episode)][:2] == [
        ("forecast", '{"city":"Tartu"}'),
        ("forecast", '{"city":"Narva"}'),
    ]
    assert [step.parallel_group for step in episode.steps] == [0, 0, None]
    assert (episode.messages[1].content, episode.messages[1].thought) == ("Looking at both.", "Two cities.")
    assert (episode.records, episode.ending) == (8, "terminal")


def test_items_among_chat_messages_and_tools_that_the_api_runs():
    found = by_id(FIXTURES / "openai_items" / "cases.jsonl")
    mixed, hosted = found["mixed"], found["hosted"]
    assert did(mixed)[:2] == [
        ("w", '{"city":"Riga"}', "rain", "ok"),
        ("w", '{"city":"Riga"}', "rain\n[input_image]", "ok"),
    ]
    assert mixed.messages[4].thought == "Ask again."
    assert (mixed.success, mixed.score, mixed.tools) == (False, 0.25, ["w"])
    assert [(step.action, step.result_status) for step in hosted.steps if step.kind == "tool"] == [
        ("web_search", "missing"),
        ("code_interpreter", "ok"),
        ("look", "error"),
        ("patch", "ok"),
        ("local_shell", "missing"),
    ]
    assert ("assistant", "Not found.") in told(hosted)


def test_requests_that_go_on_with_one_another_are_one_episode():
    readings = read(FIXTURES / "openai_responses" / "requests.jsonl")
    repeated, linked = episodes(readings)
    assert [sum(isinstance(item, kind) for item in readings) for kind in (Duplicate, Reject)] == [1, 1]
    assert [m.role for m in repeated.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert (repeated.messages[2].thought, repeated.messages[2].tokens_out) == ("Look it up.", 5)
    assert (repeated.success, repeated.score, repeated.records) == (True, 1.0, 2)
    assert told(linked)[1:] == [
        ("user", "Narva?"),
        ("assistant", None),
        ("tool", "sun"),
        ("assistant", "Su"),
    ]
    assert (linked.ending, linked.records) == ("truncated", 2)
    assert "max_output_tokens" in linked.ending_reason
    refused = next(item for item in readings if isinstance(item, Reject))
    assert (refused.rule, refused.locator) == ("unsupported_shape", "log:6")


def test_a_request_that_branches_off_repeats_no_decision(tmp_path):
    call = {"type": "function_call", "call_id": "call_abcdefghijkl", "name": "w", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "call_abcdefghijkl", "output": "rain"}

    def row(number: int, asked: list[Any], text: str) -> dict[str, Any]:
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        return {"request": {"input": asked}, "response": {"id": f"resp_{number:012}", "output": [said]}}

    asked = [{"role": "user", "content": "Riga?"}, call, answer]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row(i, asked, text)) + "\n" for i, text in enumerate(("Rain", "Wet"))))
    first, second = episodes(read(path))
    keys = [{step.decision_key for step in episode.steps} for episode in (first, second)]
    assert len(keys[0] & keys[1]) == 1
    assert len(keys[0] | keys[1]) == 3


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "function_call", "call_id": "c", "name": "w"},
        {"type": "tool_invocation", "call_id": "c", "name": "w", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_words", "words": "Rain"}]},
        {"role": "bot", "content": "Rain"},
    ],
)
def test_an_item_that_is_not_understood_makes_no_decision(tmp_path, item):
    known = {"type": "reasoning", "id": "rs", "summary": []}
    row = {"input": [{"role": "user", "content": "Riga?"}, known, item]}
    assert ("record", "unknown_part") in refused(tmp_path, row)


def test_a_list_of_items_that_begins_on_the_server_makes_no_decision(tmp_path):
    items = [{"role": "user", "content": "Go"}, {"type": "reasoning", "id": "rs", "summary": []}]
    row = {"input": items, "previous_response_id": "resp_1"}
    assert ("record", "unknown_part") in refused(tmp_path, row)


def test_a_session_store_of_the_agents_sdk_holds_what_it_gives():
    (stored,) = episodes(read(FIXTURES / "openai_agents" / "session.db"))
    (given,) = episodes(read(FIXTURES / "openai_items" / "agents_input_list.json"))
    assert told(stored) == told(given)
    assert did(stored) == did(given)
    assert (stored.native_id, stored.records, stored.ending) == ("s-1", 8, "terminal")
    assert stored.started_at is not None


# --- LangChain ------------------------------------------------------------------------------------------------------------


def test_three_dumps_of_langchain_are_one_conversation():
    folder = FIXTURES / "langchain"
    found = [
        episodes(read(folder / f"{name}.json"))[0] for name in ("messages_to_dict", "dumps", "model_dump")
    ]
    assert [told(episode) for episode in found] == [told(found[0])] * 3
    assert [did(episode) for episode in found] == [did(found[0])] * 3
    assert did(found[0])[:2] == [
        ("forecast", '{"city":"Tartu"}', RAIN, "ok"),
        ("forecast", '{"city":"Narva"}', "no station in Narva", "error"),
    ]
    answer = found[1].messages[2]
    assert (answer.content, answer.model, answer.tokens_out) == ("Looking at both.", "mock-1", 5)
    assert found[1].messages[5].thought == "So be it."
    assert [episode.ending for episode in found] == ["terminal"] * 3


def test_calls_of_langchain_wherever_they_stand():
    found = by_id(FIXTURES / "langchain" / "cases.jsonl")
    assert did(found["legacy"])[0] == ("w", '{"city":"Riga"}', "rain", "ok")
    assert (found["legacy"].success, found["legacy"].score) == (True, 0.75)
    assert did(found["raw"]) == [("w", '{"city":"Riga"}', "Error: no station", "error")]
    (invalid,) = found["invalid"].steps
    assert (invalid.action, invalid.arguments_status, invalid.result_status) == ("go", "invalid", "missing")
    assert (found["invalid"].messages[1].thought, found["invalid"].ending) == ("So.", "truncated")
    assert did(found["blocks"])[0] == ("web_search", '{"q":"it"}', "found", "ok")
    assert found["blocks"].messages[1].thought == "Search."
    assert told(found["blocks"])[1:4] == [("assistant", None), ("tool", "found"), ("assistant", "Found.")]
    (thread,) = episodes(read(FIXTURES / "langchain" / "thread.json"))
    assert told(thread) == [("user", "Riga?"), ("assistant", "Rain.")]
    assert '"topic":"rain"' in thread.metadata


@pytest.mark.parametrize(
    "message",
    [
        {"type": "ai", "content": [{"type": "invocation", "name": "w", "args": {}}]},
        {"type": "ai", "content": "Rain.", "toolCalls": [{"name": "w", "args": {}, "id": "c"}]},
        {
            "type": "ai",
            "content": "Rain.",
            "additional_kwargs": {"tools": [{"name": "w", "arguments": "{}"}]},
        },
        {"type": "robot", "content": "Rain."},
        {"type": "ai", "words": "Rain."},
    ],
)
def test_a_message_of_langchain_that_is_not_understood_makes_no_decision(tmp_path, message):
    asked = {"type": "human", "content": "Riga?", "additional_kwargs": {}, "response_metadata": {}}
    assert ("record", "unknown_part") in refused(tmp_path, {"messages": [asked, message]})


def test_threads_of_langgraph_are_read_from_their_last_checkpoint(tmp_path):
    path = FIXTURES / "langgraph_checkpoints" / "threads.db"
    first, second = episodes(read(path))
    assert (first.native_id, second.native_id, first.records, second.records) == ("t-1", "t-2", 5, 2)
    assert [step.result_status for step in first.steps] == ["ok", "error", None]
    assert (told(second), second.ending) == ([("user", "Hello?")], "truncated")
    assert (first.ending, first.model, first.messages[1].tokens_out) == ("terminal", "mock-1", 5)
    other = tmp_path / "forked.db"
    shutil.copy(path, other)
    with closing(sqlite3.connect(other)) as store:
        store.execute(
            """UPDATE checkpoints SET parent_checkpoint_id = (SELECT parent_checkpoint_id FROM checkpoints
            WHERE rowid = 4) WHERE rowid = 5"""
        )
        store.commit()
    readings = [episode for episode in episodes(read(other)) if episode.native_id == "t-1"]
    assert [episode.records for episode in readings] == [4, 1]
    assert len({episode.episode_id for episode in readings}) == 2
    assert readings[0].episode_id == first.episode_id


def test_a_checkpoint_that_cannot_be_read_is_set_aside_alone(tmp_path):
    path = tmp_path / "damaged.db"
    shutil.copy(FIXTURES / "langgraph_checkpoints" / "threads.db", path)
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE checkpoints SET checkpoint = x'c1' WHERE rowid = 2")
        store.execute("UPDATE checkpoints SET type = 'pickle', checkpoint = x'80' WHERE rowid = 3")
        store.commit()
    readings = read(path)
    assert [item.rule for item in readings if isinstance(item, Reject)] == ["malformed_record"] * 2
    # The first state of its thread has no message yet, and what followed it is lost.
    assert [episode.records for episode in episodes(readings)] == [2, 2]
    assert Skip(reason="no_conversation") in readings


# --- Pydantic AI ----------------------------------------------------------------------------------------------------------


def test_a_history_that_pydantic_ai_wrote():
    (episode,) = episodes(read(FIXTURES / "pydantic_ai" / "all_messages.json"))
    roles = ["system", "system", "user", "assistant", "tool", "tool", "assistant"]
    assert [m.role for m in episode.messages] == roles
    assert did(episode)[:2] == [
        ("forecast", '{"city":"Tartu"}', RAIN, "ok"),
        ("forecast", '{"city":"Narva"}', "no station in Narva", "error"),
    ]
    answer = episode.messages[3]
    assert (answer.content, answer.thought, answer.tokens_in, answer.tokens_out) == (
        "Looking at both.",
        "Two cities.",
        60,
        17,
    )
    assert (episode.records, episode.ending, episode.model) == (4, "terminal", "function:f:")


def test_prompts_to_try_again_results_and_endings_of_pydantic_ai():
    found = by_id(FIXTURES / "pydantic_ai" / "cases.jsonl")
    retry = found["retry"]
    assert [step.action for step in retry.steps] == ["book", "clarify", "final_result"]
    assert [step.result_status for step in retry.steps] == ["error", None, "ok"]
    assert ("user", "Plain text is no result.") in told(retry)
    assert (retry.success, retry.score) == (True, 0.5)
    assert [role for role, _ in told(found["builtin"])] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [found[name].ending for name in ("cut", "denied")] == ["truncated", "truncated"]
    assert found["denied"].steps[0].result_status == "refused"


def test_a_run_of_pydantic_ai_ends_with_its_result(tmp_path):
    rows = [json.loads(line) for line in (FIXTURES / "pydantic_ai" / "cases.jsonl").read_text().splitlines()]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"messages": rows[0]["messages"]}))
    (episode,) = episodes(read(path))
    assert (episode.ending, episode.ending_reason) == ("terminal", "the result was given")


@pytest.mark.parametrize(
    "part",
    [
        {"part_kind": "tool-use", "tool_name": "w", "args": {}, "tool_call_id": "c"},
        {"part_kind": "tool-call", "tool_name": "w", "args": {}, "id": "c"},
        {"part_kind": "text", "words": "Rain."},
        {"kind": "text", "content": "Rain."},
    ],
)
def test_a_part_of_pydantic_ai_that_is_not_understood_makes_no_decision(tmp_path, part):
    asked = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Riga?"}]}
    row = {"messages": [asked, {"kind": "response", "parts": [part]}]}
    assert ("record", "unknown_part") in refused(tmp_path, row)


# --- Gemini's contents ----------------------------------------------------------------------------------------------------


def test_contents_in_either_spelling_are_one_conversation():
    folder = FIXTURES / "gemini_contents"
    found = [episodes(read(folder / name))[0] for name in ("history_snake.json", "history_camel_nulls.json")]
    assert told(found[0]) == told(found[1])
    assert did(found[0]) == did(found[1])
    assert did(found[0])[:2] == [
        ("forecast", '{"city":"Tartu"}', RAIN, "ok"),
        ("forecast", '{"city":"Narva"}', "no station in Narva", "error"),
    ]
    assert (found[0].messages[1].content, found[0].messages[1].thought) == ("Looking at both.", "Two cities.")


def test_contents_with_what_stands_beside_them():
    found = by_id(FIXTURES / "gemini_contents" / "contents.jsonl")
    whole = found["whole"]
    assert told(whole)[:2] == [("system", "Be brief."), ("user", "Riga and Narva?\n[inline_data]")]
    assert [step.result_status for step in whole.steps] == ["ok", "error", None]
    assert (whole.tools, whole.temperature, whole.success, whole.score) == (["w"], 0.3, True, 0.5)
    assert (found["open"].ending, found["nameless"].steps) == ("truncated", [])


def test_requests_of_gemini_that_repeat_what_was_said():
    readings = read(FIXTURES / "gemini_contents" / "requests.jsonl")
    whole, cut = episodes(readings)
    assert told(whole) == [
        ("user", "Riga?"),
        ("assistant", None),
        ("tool", '{"sky":"rain"}'),
        ("assistant", "Rain."),
    ]
    assert (whole.messages[1].thought, whole.messages[1].tokens_out, whole.records) == ("Look.", 6, 2)
    assert (whole.success, cut.ending) == (False, "truncated")
    assert [item.rule for item in readings if isinstance(item, Reject)] == ["other_choice"]


@pytest.mark.parametrize(
    "content",
    [
        {"role": "model", "parts": [{"text": "Rain."}, {"functioncall": {"name": "w", "args": {}}}]},
        {"role": "model", "parts": [{"words": "Rain."}]},
        {"role": "model", "parts": [{"text": "Rain."}], "calls": [{"name": "w", "args": {}}]},
        {"role": "bot", "parts": [{"text": "Rain."}]},
    ],
)
def test_a_content_of_gemini_that_is_not_understood_makes_no_decision(tmp_path, content):
    row = {"contents": [{"role": "user", "parts": [{"text": "Riga?"}]}, content]}
    assert ("record", "unknown_part") in refused(tmp_path, row)


# --- smolagents -----------------------------------------------------------------------------------------------------------


def test_steps_that_smolagents_took():
    (calling,) = episodes(read(FIXTURES / "smolagents" / "tool_calling.succinct.json"))
    assert [(step.action, step.result_status) for step in calling.steps] == [
        ("forecast", "ok"),
        ("forecast", "error"),
        ("final_answer", "ok"),
    ]
    assert (calling.ending, calling.ending_reason, calling.records) == ("terminal", "the final answer", 4)
    assert calling.messages[1].tokens_out == 5
    (code,) = episodes(read(FIXTURES / "smolagents" / "code_agent.cut.json"))
    assert [m.role for m in code.messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert [step.arguments for step in code.steps] == ['{"code":"print(1+1)"}', '{"code":"final_answer(2)"}']
    assert all(step.arguments_status == "ok" for step in code.steps)


def test_a_capped_run_of_smolagents():
    readings = read(FIXTURES / "smolagents" / "runs.jsonl")
    (run,) = episodes(readings)
    assert (run.ending, run.ending_reason, run.success) == ("truncated", "the limit of turns", False)
    assert [(step.action, step.result, step.parallel_group) for step in run.steps] == [
        ("look", "nothing\nnothing", 0),
        ("look", "nothing\nnothing", 0),
        ("python_interpreter", "Execution logs:\n", None),
    ]
    assert run.steps[2].result_status == "error"
    assert told(run)[-1] == ("user", "division by zero")
    assert [item.rule for item in readings if isinstance(item, Reject)] == ["unparsed_call"]


def test_a_step_of_smolagents_with_calls_elsewhere_makes_no_decision(tmp_path):
    step = {"step_number": 1, "model_output": "Go", "observations": "gone", "is_final_answer": False}
    calls = [{"id": "c", "function": {"name": "go", "arguments": {}}}]
    assert ("record", "unknown_part") in refused(tmp_path, {"steps": [{**step, "toolCalls": calls}]})


# --- AutoGen --------------------------------------------------------------------------------------------------------------


def test_a_run_of_autogen_and_what_its_agent_remembers_are_alike():
    (run,) = episodes(read(FIXTURES / "autogen" / "task_result.json"))
    (state,) = episodes(read(FIXTURES / "autogen" / "agent_state.json"))
    assert told(run) == told(state)
    assert did(run) == did(state)
    assert [step.result_status for step in run.steps] == ["ok", "error", None]
    assert (run.messages[1].thought, run.messages[1].tokens_out) == ("Two cities.", 5)
    assert (run.ending, run.ending_reason) == ("terminal", "Text 'TERMINATE' mentioned")


def test_what_autogen_writes_in_an_agents_name_is_no_decision():
    found = by_id(FIXTURES / "autogen" / "runs.jsonl")
    capped = found["capped"]
    assert [step.action for step in capped.steps] == ["look", "respond"]
    assert told(capped)[-3:] == [
        ("assistant", "a cat"),
        ("assistant", "Transferred to b."),
        ("assistant", "It is a cat."),
    ]
    assert (capped.ending, capped.success, capped.score) == ("truncated", False, 0.5)
    assert '"agents":["a","b"]' in capped.metadata
    assert found["thinking"].steps == []
    assert found["thinking"].messages[-1].thought == "Which way?"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "ToolCallRequestEvent", "source": "a", "content": [{"callId": "c", "name": "go"}]},
        {"type": "CodeGenerationEvent", "source": "a", "content": "run", "code_blocks": [{"code": "1"}]},
        {
            "type": "TextMessage",
            "source": "a",
            "content": "Go",
            "toolCalls": [{"name": "go", "arguments": "{}"}],
        },
    ],
)
def test_a_message_of_autogen_that_is_not_understood_makes_no_decision(tmp_path, message):
    asked = {"type": "TextMessage", "source": "user", "content": "Go"}
    assert ("record", "unknown_part") in refused(tmp_path, {"messages": [asked, message]})


# --- goose ----------------------------------------------------------------------------------------------------------------


def test_three_ways_to_keep_a_session_of_goose():
    folder = FIXTURES / "goose"
    found = [episodes(read(folder / name))[0] for name in ("export.json", "sessions.db", "legacy.jsonl")]
    assert told(found[0]) == told(found[1])
    assert told(found[0])[:5] == told(found[2])
    assert told(found[0])[-2:] == [("system", "A summary of what was said"), ("assistant", "Anything else?")]
    for episode in found:
        assert [step[2:] for step in did(episode)][:2] == [
            ("rain", "ok"),
            ("-32603: no station in Narva", "error"),
        ]
        assert episode.messages[1].thought == "Two cities."
    assert [episode.records for episode in found] == [1, 6, 4]
    assert (found[0].success, found[0].native_id, found[1].native_id) == (True, "20250601_1", "20250601_1")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "toolCall", "id": "c", "toolCall": {"status": "success", "value": {"name": "w"}}},
        {"type": "toolRequest", "id": "c", "call": {"name": "w", "arguments": {}}},
        {"type": "text", "words": "Rain."},
    ],
)
def test_a_block_of_goose_that_is_not_understood_makes_no_decision(tmp_path, block):
    asked = {"role": "user", "created": 1, "content": [{"type": "text", "text": "Riga?"}]}
    row = {"conversation": [asked, {"role": "assistant", "created": 2, "content": [block]}]}
    assert ("record", "unknown_part") in refused(tmp_path, row)
