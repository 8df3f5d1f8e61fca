"""Spans of OpenTelemetry and OpenInference, Langfuse exports, and shapes read by a mapping: what becomes of each."""

from __future__ import annotations

import csv
import json
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.detection import detect
from logforge.connectors.episodes.feedback import Verdict, score_of, success_of
from logforge.connectors.mapping.connector import load_mapping
from logforge.connectors.mapping.paths import BadPath, parse_path
from logforge.connectors.records.base import Source
from logforge.connectors.traces.history import fresh
from logforge.connectors.traces.langfuse import Langfuse
from logforge.connectors.traces.messages import Atom, read_messages
from logforge.connectors.traces.otlp import Otlp
from logforge.lineage.locate import holds
from logforge.schemas.episode import Duplicate, Episode, Skip
from logforge.schemas.errors import SpecError
from logforge.testing.kit import counted
from support.places import DATA, ROOT, SHARED
from support.read_logs import assert_sound, episodes, mutate, rejects, resolve, tool_steps

HERE = DATA
FLAT = HERE / "connectors" / "otlp"
TRACES = HERE / "traces"
EXPORT = TRACES / "langfuse_export"


def spans(path: Path) -> list[Any]:
    return list(Otlp().read(Source(path, "log")))


def skipped(readings: list[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in readings:
        if isinstance(item, Skip):
            found[item.reason] += item.records
    return found


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def rows_of(name: str) -> list[Any]:
    return [json.loads(line) for line in (FLAT / name).read_text("utf-8").splitlines()]


def chat(
    trace: str, span: str, start: int, heard: list[Any], reply: Any, **attributes: Any
) -> dict[str, Any]:
    """A model call of the current conventions."""
    told = {
        "gen_ai.input.messages": json.dumps(heard),
        "gen_ai.output.messages": json.dumps([reply] if reply else []),
    }
    parent = attributes.pop("parent", None)
    return {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": "chat m",
        "startTimeUnixNano": str(10**18 + start * 10**9),
        "endTimeUnixNano": str(10**18 + start * 10**9 + 5 * 10**8),
        "attributes": {"gen_ai.operation.name": "chat", **told, **attributes},
    }


def says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


# --- OpenTelemetry ------------------------------------------------------------------------------------------------


def test_quirk_016_a_repeated_history_counts_once():
    readings = spans(FLAT / "prompts_repeat.jsonl")
    (episode,) = episodes(readings)
    assert [m.role for m in episode.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [(s.tool_call_id, s.action, json.loads(s.arguments), s.result) for s in tool_steps(episode)] == [
        ("ct-1", "calculate", {"expression": "516/43"}, "12"),
        ("ct-2", "calculate", {"expression": "12+3"}, "15"),
    ]
    assert [s.latency_s for s in tool_steps(episode)] == [0.01, None]
    assert not rejects(readings)
    assert (episode.records, episode.ending, episode.model) == (5, "terminal", "m")


@pytest.mark.skipif(not (SHARED / "quirks").is_dir(), reason="the shared quirk cases are not here")
def test_quirk_016_is_the_shared_case():
    (shared,) = (SHARED / "quirks").glob("016-*/input/spans.jsonl")
    assert shared.read_bytes() == (FLAT / "prompts_repeat.jsonl").read_bytes()


def test_the_order_of_lines_means_nothing(tmp_path):
    rows = rows_of("genai.jsonl")
    other = episodes(spans(write(tmp_path / "x.jsonl", list(reversed(rows)))))
    first = episodes(spans(FLAT / "genai.jsonl"))

    def facts(found: list[Episode]) -> Any:
        return {e.episode_id: ([(m.role, m.content) for m in e.messages], e.ending, e.success) for e in found}

    assert facts(other) == facts(first)


def test_a_conversation_of_two_invocations_is_one_episode_and_the_sub_agent_is_its_child():
    readings = spans(FLAT / "genai.jsonl")
    desk, shipping, failed = episodes(readings)
    assert [m.content for m in desk.messages if m.role == "user"] == [
        "Is the blue city bike in stock, and what does shipping to Oslo cost?",
        "Thanks. Which colour did I ask for?",
    ]
    assert desk.session_id == "conv_5j66UpCpwteGg4YSxUnt7lPY"
    assert shipping.parent_episode_id == desk.episode_id
    assert (shipping.task, shipping.model, shipping.tools) == ("price to Oslo", "m-small", None)
    assert (failed.ending, failed.ending_reason) == (
        "truncated",
        "the agent ended with an error: 429 too many requests",
    )
    assert skipped(readings) == {"embeddings_span": 1, "no_agent_attributes": 1}
    assert sum(isinstance(item, Duplicate) for item in readings) == 1
    assert counted(readings) == 16


def test_what_a_model_span_says_goes_where_it_belongs():
    desk = episodes(spans(FLAT / "genai.jsonl"))[0]
    turn = desk.messages[2]
    assert (turn.thought, turn.content) == ("two lookups, independent", None)
    assert (turn.tokens_in, turn.tokens_out, turn.model) == (120, 30, "m-large-0525")
    assert desk.temperature == 0.2
    assert desk.tools == ["ask_shipping", "cancel_order", "find_stock", "quote"]
    assert desk.task == desk.messages[1].content
    assert desk.policy_id == "m-large-0525@t=0.2#prompt:51375719"
    assert json.loads(desk.metadata)["gen_ai.provider.name"] == "acme"


def test_parallel_results_are_paired_by_id_and_tool_spans_add_latency_and_failure():
    desk = episodes(spans(FLAT / "genai.jsonl"))[0]
    stock, quote, ask = tool_steps(desk)
    assert (stock.result, stock.latency_s, stock.parallel_group) == ('{"count":2}', 0.3, 0)
    assert (quote.result, quote.result_status, quote.latency_s, quote.parallel_group) == (
        "service timed out",
        "timeout",
        5.0,
        0,
    )
    assert ask.parallel_group is None


def test_evaluation_events_are_the_runs_outcome_or_a_decisions_reward():
    desk = episodes(spans(FLAT / "genai.jsonl"))[0]
    assert (desk.success, desk.score) == (True, 1.0)
    assert [s.logged_reward for s in desk.steps] == [None, None, None, 4.0, None]
    verdicts = json.loads(desk.metadata)["verdicts"]
    assert {v["name"] for v in verdicts} == {"task_success", "tone", "Relevance"}


def test_the_only_model_call_is_the_run(tmp_path):
    row = chat("t", "a", 0, [says("user", "hi")], says("assistant", "hello"))
    row["events"] = [
        {
            "name": "gen_ai.evaluation.result",
            "attributes": {"gen_ai.evaluation.name": "ok", "gen_ai.evaluation.score.label": "fail"},
        }
    ]
    (episode,) = episodes(spans(write(tmp_path / "x.jsonl", [row])))
    assert (episode.success, episode.score) == (False, None)


def test_older_events_are_messages():
    readings = spans(FLAT / "events.jsonl")
    rome, long, files = episodes(readings)
    assert [m.role for m in rome.messages] == ["system", "user", "assistant", "tool", "assistant"]
    (weather,) = tool_steps(rome)
    assert (weather.action, weather.arguments, weather.result_status) == (
        "get_weather",
        '{"city":"Rome"}',
        "error",
    )
    assert rome.steps[-1].action == "clarify"
    assert [(r.level, r.rule) for r in rejects(readings)] == [("part", "other_candidate")]
    assert long.messages[1].content == "1, 2, 3, 4"
    assert (long.ending, long.ending_reason) == ("truncated", "the model's output limit")
    (shell,) = tool_steps(files)
    assert (shell.arguments, shell.result, shell.latency_s) == ('{"cmd":"ls"}', "a.txt", 0.5)
    assert (files.ending, files.ending_reason) == ("truncated", "still running: the agent's span has no end")


def test_batches_of_typed_attributes_read_like_flat_spans():
    lines, document = spans(TRACES / "batches.jsonl"), spans(TRACES / "document.json")
    (one,), (other,) = episodes(lines), episodes(document)
    assert one.episode_id == other.episode_id
    assert [(m.role, m.content) for m in one.messages] == [(m.role, m.content) for m in other.messages]
    assert (one.success, one.score, one.messages[2].tokens_in) == (False, 0.0, 120)
    assert json.loads(one.metadata)["service.name"] == "bikes"
    assert skipped(lines) == {"empty_batch": 1}
    assert (counted(lines), counted(document)) == (4, 3)


@pytest.mark.parametrize("name", ["batches.jsonl", "document.json"])
def test_locators_lead_into_typed_attributes(name):
    path = TRACES / name
    for episode in episodes(spans(path)):
        for message in episode.messages:
            if message.content:
                found = json.dumps(resolve(path, message.locator), ensure_ascii=False)
                assert any(
                    text in found for text in (message.content, json.dumps(message.content)[1:-1], "count")
                )
        for step in tool_steps(episode):
            assert step.action in json.dumps(resolve(path, step.locator))


def test_a_torn_file_truncates_the_run_it_ends_in(tmp_path):
    text = (FLAT / "prompts_repeat.jsonl").read_bytes()
    path = tmp_path / "x.jsonl"
    path.write_bytes(text[:-50])
    readings = spans(path)
    (episode,) = episodes(readings)
    assert (episode.ending, episode.ending_reason) == ("truncated", "the log is cut off")
    assert [r.rule for r in rejects(readings)] == ["malformed_record"]


def test_a_span_of_the_same_id_is_a_duplicate_or_a_conflict(tmp_path):
    row = chat("t", "a", 0, [says("user", "hi")], says("assistant", "hello"))
    changed = chat("t", "a", 0, [says("user", "hi")], says("assistant", "bye"))
    readings = spans(write(tmp_path / "x.jsonl", [row, row, changed, {"spanId": "b"}, 7]))
    assert Counter(r.rule for r in rejects(readings)) == {"conflicting_span": 1, "not_a_span": 2}
    assert counted(readings) == 5
    assert len(episodes(readings)) == 1


def test_a_trace_that_repeats_a_whole_earlier_one_goes_on_with_it(tmp_path):
    first = chat("t1", "a", 0, [says("user", "hi")], says("assistant", "hello"))
    second = chat(
        "t2",
        "b",
        10,
        [says("user", "hi"), says("assistant", "hello"), says("user", "bye")],
        says("assistant", "bye!"),
    )
    stranger = chat("t3", "c", 20, [says("user", "hi")], says("assistant", "who is it?"))
    found = episodes(spans(write(tmp_path / "x.jsonl", [second, stranger, first])))
    assert [[m.content for m in e.messages] for e in found] == [
        ["hi", "hello", "bye", "bye!"],
        ["hi", "who is it?"],
    ]
    assert [e.records for e in found] == [2, 1]


def test_a_prompt_of_another_kind_beside_the_run_is_an_episode_of_its_own(tmp_path):
    system = {"role": "system", "parts": [{"type": "text", "content": "Help."}]}
    title = {"role": "system", "parts": [{"type": "text", "content": "Make a title."}]}
    rows = [
        chat("t", "a", 0, [system, says("user", "hi")], says("assistant", "hello")),
        chat("t", "b", 1, [title, says("user", "hi")], says("assistant", "Greetings")),
        chat(
            "t",
            "c",
            2,
            [system, says("user", "hi"), says("assistant", "hello"), says("user", "more")],
            says("assistant", "ok"),
        ),
    ]
    main, aside = episodes(spans(write(tmp_path / "x.jsonl", rows)))
    assert [m.content for m in main.messages] == ["Help.", "hi", "hello", "more", "ok"]
    assert [m.content for m in aside.messages] == ["Make a title.", "hi", "Greetings"]
    assert aside.parent_episode_id == main.episode_id


def test_the_same_text_said_twice_counts_twice(tmp_path):
    yes, done = says("user", "yes"), says("assistant", "done")
    rows = [
        chat("t", "a", 0, [yes], done),
        chat("t", "b", 1, [yes, done, yes], done),
        chat("t", "c", 2, [yes, done, yes, done, yes], done),
    ]
    (episode,) = episodes(spans(write(tmp_path / "x.jsonl", rows)))
    assert [m.content for m in episode.messages] == ["yes", "done"] * 3


def test_a_window_over_the_history_adds_only_what_is_new(tmp_path):
    talk = [says("user", "one"), says("assistant", "1"), says("user", "two"), says("assistant", "2")]
    rows = [
        chat("t", "a", 0, talk[:1], talk[1]),
        chat("t", "b", 1, talk[:3], talk[3]),
        chat(
            "t", "c", 2, [says("user", "(summary)"), *talk[2:], says("user", "three")], says("assistant", "3")
        ),
    ]
    (episode,) = episodes(spans(write(tmp_path / "x.jsonl", rows)))
    assert [m.content for m in episode.messages] == ["one", "1", "two", "2", "(summary)", "three", "3"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=6))
def test_a_full_history_is_never_new(known, more):
    atoms = [Atom("user", text) for text in known]
    new = [Atom("user", text) for text in more]
    assert fresh(atoms, atoms + new) == list(range(len(atoms), len(atoms) + len(new)))
    assert fresh(atoms, atoms[: len(atoms) // 2]) == []


def agent(
    trace: str, span: str, start: int, name: str, parent: str | None = None, **more: Any
) -> dict[str, Any]:
    """An agent's invocation of half a second."""
    row = chat(trace, span, start, [], None, parent=parent)
    return row | {
        "name": f"invoke_agent {name}",
        "attributes": {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, **more},
    }


def test_the_client_and_the_server_span_of_one_invocation_are_one(tmp_path):
    rows = [
        agent("t", "caller", 0, "desk"),
        agent("t", "client", 1, "refunds", "caller"),
        agent("t", "server", 2, "refunds", "client"),
        chat("t", "m", 3, [says("user", "pay")], says("assistant", "paid"), parent="server"),
        chat("t", "n", 4, [says("user", "refund, please")], says("assistant", "done"), parent="caller"),
    ]
    desk, refunds = sorted(episodes(spans(write(tmp_path / "x.jsonl", rows))), key=lambda e: e.records)
    assert {e.records for e in (desk, refunds)} == {2, 3}
    assert refunds.parent_episode_id == desk.episode_id
    assert refunds.task == "pay"


def test_spans_that_hang_from_each_other_in_a_ring_do_no_harm(tmp_path):
    rows = [
        agent("t", "a", 0, "x", "b"),
        agent("t", "b", 1, "x", "a"),
        agent("t", "c", 2, "x", "c"),
        agent("t", "d", 2, "y", "e"),
        agent("t", "e", 2, "z", "d"),
    ]
    readings = spans(write(tmp_path / "x.jsonl", rows))
    assert counted(readings) == 5


def test_a_conversation_named_on_some_spans_only_is_that_of_all(tmp_path):
    rows = [
        agent("t", "r", 0, "desk"),
        chat(
            "t",
            "m",
            1,
            [says("user", "hi")],
            says("assistant", "hello"),
            parent="r",
            **{"gen_ai.conversation.id": "c1"},
        ),
    ]
    (episode,) = episodes(spans(write(tmp_path / "x.jsonl", rows)))
    assert (episode.records, episode.session_id, episode.native_id) == (2, "c1", "c1/desk")


def test_an_invocation_without_captured_model_calls_speaks_for_itself(tmp_path):
    row = agent(
        "t",
        "r",
        0,
        "desk",
        **{
            "gen_ai.input.messages": json.dumps([says("user", "hi")]),
            "gen_ai.output.messages": json.dumps([says("assistant", "hello")]),
        },
    )
    silent = chat("t", "m", 0, [], None, parent="r")
    (episode,) = episodes(spans(write(tmp_path / "x.jsonl", [row, silent])))
    assert ([m.content for m in episode.messages], episode.records) == (["hi", "hello"], 2)


def test_made_up_trace_ids_do_not_join_different_runs(tmp_path):
    one = write(tmp_path / "1.jsonl", [chat("run", "a", 0, [says("user", "hi")], says("assistant", "hello"))])
    two = write(tmp_path / "2.jsonl", [chat("run", "a", 99, [says("user", "yo")], says("assistant", "hey"))])
    assert episodes(spans(one))[0].episode_id != episodes(spans(two))[0].episode_id


# --- OpenInference ------------------------------------------------------------------------------------------------


def test_openinference_flattened_messages_and_annotations():
    readings = spans(FLAT / "openinference.jsonl")
    sums, faust = episodes(readings)
    assert [m.role for m in sums.messages] == ["system", "user", "assistant", "tool", "assistant"]
    (multiply,) = tool_steps(sums)
    assert (multiply.arguments, multiply.result, multiply.latency_s, multiply.logged_reward) == (
        '{"a":23,"b":87}',
        "2001",
        0.25,
        0.75,
    )
    assert (sums.success, sums.score, sums.temperature, sums.tools) == (True, 1.0, 0.1, ["multiply"])
    assert (sums.session_id, sums.user_id, sums.messages[2].tokens_in) == ("s-1", "u-7", 229)
    assert sums.cost_usd == 0.004
    assert len(json.loads(sums.metadata)["verdicts"]) == 2
    assert skipped(readings) == {"retriever_span": 1}
    assert (faust.success, faust.records) == (False, 3)


def test_a_tool_run_that_no_captured_turn_asked_for_is_the_call_of_a_turn_without_one():
    faust = episodes(spans(FLAT / "openinference.jsonl"))[1]
    (search,) = faust.steps
    assert (search.action, search.arguments) == ("search", '{"input":"Faust"}')
    assert (search.result, search.result_status, search.error_class) == (
        "ConnectionError: connection refused",
        "error",
        "server",
    )
    assert faust.messages[1].content == "Thought: look it up\nAction: search[Faust]"


def test_a_tool_run_beside_a_turn_that_asked_for_others_is_set_aside(tmp_path):
    call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "a", "arguments": {}}]}
    tool = chat("t", "x", 1, [], None) | {
        "name": "execute_tool b",
        "attributes": {"gen_ai.tool.call.id": "9", "gen_ai.tool.call.result": "?"},
    }
    readings = spans(write(tmp_path / "x.jsonl", [chat("t", "m", 0, [says("user", "go")], call), tool]))
    (episode,) = episodes(readings)
    assert [s.action for s in episode.steps] == ["a"]
    assert [(r.rule, r.episode_id) for r in rejects(readings)] == [("unasked_tool_run", episode.episode_id)]
    assert episode.ending_reason == "last call is unanswered"


def test_nested_attributes_as_phoenix_writes_them(tmp_path):
    row = {
        "name": "llm",
        "context": {"trace_id": "409df945-e058-4829-b240-cfbdd2ff4488", "span_id": "01"},
        "parent_id": None,
        "start_time": "2024-01-11T16:45:17.982858-07:00",
        "end_time": "2024-01-11T16:45:18.517639-07:00",
        "status_code": "OK",
        "attributes": {
            "openinference": {"span": {"kind": "LLM"}},
            "llm": {
                "model_name": "m",
                "input_messages": [{"message": {"role": "user", "content": "what is 23 times 87"}}],
                "output_messages": [
                    {"message": {"role": "assistant", "tool_calls": [{"tool_call": {"function": {"name": "multiply", "arguments": '{"a": 23}'}}}]}}
                ],
            },
        },
    }  # fmt: skip
    path = write(tmp_path / "x.jsonl", [row])
    assert [claim.connector.name for claim in detect(path)] == ["otlp"]
    (episode,) = episodes(spans(path))
    assert (episode.task, episode.steps[0].action, episode.steps[0].arguments) == (
        "what is 23 times 87",
        "multiply",
        '{"a":23}',
    )
    assert resolve(path, episode.messages[0].locator) == "what is 23 times 87"
    assert (episode.ending, episode.ending_reason) == ("truncated", "last call is unanswered")


# --- telling them apart -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "claimed"),
    [
        ({"traceId": "a", "spanId": "b", "attributes": {"http.method": "GET"}}, []),
        ({"traceId": "a", "spanId": "b", "attributes": {"gen_ai.system": "x"}}, ["otlp"]),
        ({"resourceSpans": [{"scopeSpans": []}]}, ["otlp"]),
        ({"trace_id": "a", "type": "GENERATION", "start_time": "2026-01-01"}, []),
        (
            {"trace_id": "a", "type": "GENERATION", "start_time": "2026-01-01", "usage_details": {}},
            ["langfuse"],
        ),
        (
            {"traceId": "a", "type": "GENERATION", "startTime": "2026-01-01", "parentObservationId": None},
            ["langfuse"],
        ),
        ({"name": "score", "value": 1}, []),
    ],
)
def test_only_what_is_surely_a_trace_is_claimed(tmp_path, row, claimed):
    path = write(tmp_path / "x.jsonl", [row, row])
    assert [claim.connector.name for claim in detect(path)] == claimed


# --- Langfuse -----------------------------------------------------------------------------------------------------


def export(folder: Path = EXPORT) -> list[Any]:
    first = sorted((folder / "observations_v2").iterdir())[0]
    companions = tuple(Langfuse().companions(first))
    return list(Langfuse().read(Source(first, f"e/observations_v2/{first.name}", companions)))


def test_an_export_is_one_source_led_by_its_first_observations_file():
    first, second = sorted((EXPORT / "observations_v2").iterdir())
    others = [path.relative_to(EXPORT).as_posix() for path in Langfuse().companions(first)]
    assert others == [
        "observations_v2/2026-05-28-21.jsonl",
        "scores/2026-05-28-22.jsonl",
        "traces/2026-05-28-20.jsonl",
    ]
    assert (
        Langfuse().companions(second)
        == Langfuse().companions(EXPORT / "scores" / "2026-05-28-22.jsonl")
        == []
    )


def test_files_of_other_tools_are_not_taken_for_an_export(tmp_path):
    (tmp_path / "observations.csv").write_text("episode,observation\n1,2\n")
    (tmp_path / "scores.csv").write_text("episode,score\n1,2\n")
    assert Langfuse().companions(tmp_path / "observations.csv") == []


@pytest.mark.parametrize("text", ["", '{"anything": 1}\n'])
def test_a_file_of_an_export_that_says_nothing_leaves_the_others_together(tmp_path, text):
    copytree(EXPORT, tmp_path, dirs_exist_ok=True)
    (tmp_path / "traces" / "2026-05-28-20.jsonl").write_text(text)
    first, second = sorted((tmp_path / "observations_v2").iterdir())
    assert Langfuse().companions(first) == [second, tmp_path / "scores" / "2026-05-28-22.jsonl"]


def test_a_trace_over_two_files_is_one_episode_with_its_scores():
    readings = export()
    refunds, failed = episodes(readings)
    assert [(s.action, s.result, s.latency_s) for s in refunds.steps] == [
        ("refund", '{"ok": true}', 0.5),
        ("respond", None, None),
    ]
    assert (refunds.success, refunds.score, refunds.user_id, refunds.session_id) == (
        True,
        0.8,
        "u-3",
        "sess-1",
    )
    assert (refunds.model, refunds.temperature, refunds.prompt_version) == ("m-lf", 0.5, "refund-desk:4")
    assert refunds.tools == ["lookup", "refund"]
    assert (refunds.messages[2].tokens_in, refunds.messages[2].tokens_out) == (50, 12)
    metadata = json.loads(refunds.metadata)
    assert metadata["metadata"] == {"channel": "mail"}
    assert {v["name"] for v in metadata["verdicts"]} == {
        "resolved",
        "reward",
        "tool_choice",
        "latency",
        "tone",
    }
    assert (failed.ending, failed.ending_reason) == (
        "truncated",
        "the last model call failed: context length exceeded",
    )


def test_two_different_scores_of_one_decision_are_no_reward():
    refunds = episodes(export())[0]
    assert refunds.steps[0].logged_reward is None


def test_every_row_of_an_export_is_counted_once():
    readings = export()
    assert counted(readings) == 6 + 9 + 1
    assert skipped(readings) == {
        "score_of_a_session_of_several_traces": 1,
        "score_of_a_dataset_run": 1,
        "span_observation": 1,
    }
    assert [(r.rule, r.locator) for r in rejects(readings)] == [
        ("verdict_without_run", "e/scores/2026-05-28-22.jsonl:6")
    ]
    assert sum(isinstance(item, Duplicate) for item in readings) == 1
    assert_sound(readings)


def test_a_row_exported_again_replaces_the_older_one(tmp_path):
    rows = [
        json.loads(line)
        for line in (HERE / "connectors" / "langfuse" / "observations.jsonl").read_text("utf-8").splitlines()
    ]
    newer = {**rows[1], "updated_at": "2026-06-01", "provided_model_name": "m-new"}
    readings = list(Langfuse().read(Source(write(tmp_path / "x.jsonl", [newer, *rows]), "log")))
    again = list(Langfuse().read(Source(write(tmp_path / "y.jsonl", [*rows, newer]), "log")))
    for found in (readings, again):
        assert episodes(found)[0].model == "m-new"
        assert (counted(found), sum(isinstance(item, Duplicate) for item in found)) == (7, 1)


def test_scores_without_observations_are_set_aside():
    path = EXPORT / "scores" / "2026-05-28-22.jsonl"
    assert [claim.connector.name for claim in detect(path)] == ["langfuse"]
    readings = list(Langfuse().read(Source(path, "log")))
    assert counted(readings) == 9
    assert {r.rule for r in rejects(readings)} == {"verdict_without_run"}


def as_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    def cell(value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value)

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({key: cell(value) for key, value in row.items()} for row in rows)
    return path


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    typed = [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows]
    pq.write_table(pa.Table.from_pylist(typed), path)
    return path


@pytest.mark.parametrize("form", [as_csv, as_parquet])
def test_csv_and_parquet_say_the_same_as_json(tmp_path, form):
    source = HERE / "connectors" / "langfuse" / "observations.jsonl"
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
    path = form(tmp_path / f"observations.{'csv' if form is as_csv else 'parquet'}", rows)
    assert [claim.connector.name for claim in detect(path)] == ["langfuse"]
    readings = list(Langfuse().read(Source(path, "log")))
    expected = list(Langfuse().read(Source(source, "log")))

    def facts(found: list[Any]) -> Any:
        return [
            (
                e.episode_id,
                [(m.role, m.content, m.tokens_in) for m in e.messages],
                e.tools,
                e.temperature,
                e.ending,
            )
            for e in episodes(found)
        ]

    assert facts(readings) == facts(expected)
    assert counted(readings) == 6
    where = episodes(readings)[0].messages[0].locator
    assert where == ("log:3#/input#/0/content" if form is as_csv else "log#/1/input#/0/content")


def test_a_label_or_a_typed_truth_is_success_and_a_number_is_not():
    def verdict(name: str, score: float | None = None, label: str | None = None, **more: Any) -> Verdict:
        return Verdict(name, score, label, None, None, "", **more)

    assert success_of([verdict("x", 1.0)]) is None
    assert success_of([verdict("x", label="Pass"), verdict("y", label="fail")]) is None
    assert success_of([verdict("tone", label="pass"), verdict("resolved", label="no")]) is False
    assert success_of([verdict("x", 1.0, passed=True)]) is True
    assert score_of([verdict("a", 1.0), verdict("b", 2.0)]) is None
    assert score_of([verdict("a", 1.0), verdict("reward", 2.0)]) == 2.0


# --- laws ---------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_batches_never_raise(tmp_path_factory, data):
    choose = data.draw(st.randoms(use_true_random=False))
    value = json.loads((TRACES / "document.json").read_text("utf-8"))
    for _ in range(choose.randrange(1, 6)):
        value = mutate(value, choose)
    path = tmp_path_factory.getbasetemp() / "otlp-document.json"
    path.write_text(json.dumps(value, indent=1), "utf-8")
    assert_sound(spans(path))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_exports_count_every_row_once(tmp_path_factory, data):
    choose = data.draw(st.randoms(use_true_random=False))
    folder = tmp_path_factory.mktemp("export")
    total = 0
    for name in ("observations_v2", "scores", "traces"):
        (folder / name).mkdir()
        for file in (EXPORT / name).iterdir():
            rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            index = choose.randrange(len(rows))
            rows[index] = mutate(rows[index], choose)
            if isinstance(rows[0], list):
                rows[0] = {}  # an array on a line of its own is an array, not a row
            total += len(rows)
            write(folder / name / file.name, rows)
    first = folder / "observations_v2" / "2026-05-28-20.jsonl"
    others = sorted(path for path in folder.rglob("*.jsonl") if path != first)
    readings = list(Langfuse().read(Source(first, "log", tuple(others))))
    assert counted(readings) == total
    assert_sound(readings)


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        ('{"answer": 5}', ['{"answer": 5}']),
        ('[{"type": "flight", "id": 7}]', ['[{"type": "flight", "id": 7}]']),
        ("[1, 2]", ["[1, 2]"]),
        ([{"type": "text", "content": "one"}, {"type": "text", "content": "two"}], ["one\ntwo"]),
        ('[{"text": "one"}]', ["one"]),
        ([{"role": "user", "content": '[{"type": "flight"}]'}], ['[{"type": "flight"}]']),
        ({"role": "user", "content": [{"type": "blob", "content": "x"}, {"type": "odd"}]}, ["[blob]"]),
        ({"choices": [{"message": {"role": "assistant", "content": "hi"}}]}, ["hi"]),
        ({"content": "hi"}, ["hi"]),
        ({"order": 1}, ['{"order":1}']),
        ("", []),
        (None, []),
    ],
)
def test_a_payload_is_messages_or_the_text_that_it_is(payload, texts):
    rejected: list[Any] = []
    found = read_messages(payload, lambda pointer: pointer, "user", rejected)
    assert [said.text for said in found] == texts
    assert rejected == []


def test_a_tools_result_in_json_stays_as_it_was():
    message = {"role": "tool", "tool_call_id": "1", "content": '[{"type": "text", "text": "x"}]'}
    (said,) = read_messages(message, lambda pointer: pointer, "user", [])
    assert said.answers[0].text == '[{"type": "text", "text": "x"}]'


# --- the mapping language -----------------------------------------------------------------------------------------

TICKETS = [
    {
        "ticket": "T-1",
        "state": "solved",
        "bot": {"model": "m-1", "can": ["find", "pay"]},
        "extra": 7,
        "turns": [
            {"by": "rules", "text": "Be kind."},
            {"by": "customer", "text": "Where is order 9007199254740993?", "at": 1772000000},
            {"by": "bot", "why": "look it up", "does": [{"fn": "find", "with": {"n": 9007199254740993}, "ref": "a"}, {"fn": "pay", "with": {}, "ref": "b"}]},
            {"by": "bot-tools", "out": [{"ref": "b", "said": "refused", "bad": True}, {"ref": "a", "said": "shipped"}]},
            {"by": "bot", "text": "It is on its way."},
            {"by": "narrator", "text": "?"},
        ],
    },
    {"ticket": "T-2", "state": "open", "turns": [{"by": "customer", "text": "Hello?"}]},
    {"ticket": "T-3", "state": "void"},
    "nonsense",
]  # fmt: skip

TICKET_MAP = """\
name: tickets
episode:
  id: $.ticket
  success: {path: $.state, values: {solved: true, failed: false}}
  model: $.bot.model
  tools: $.bot.can[*]
  ending: {path: $.state, values: {open: truncated}}
messages:
  path: $.turns[*]
  role: {path: $.by, values: {rules: system, customer: user, bot: assistant, bot-tools: user}}
  content: $.text
  thought: $.why
  time: $.at
  calls:
    path: $.does[*]
    name: $.fn
    arguments: $.with
    id: $.ref
  results:
    path: $.out[*]
    id: $.ref
    content: $.said
    error: $.bad
"""


def mapped(tmp_path: Path, mapping: str, data: Path) -> list[Any]:
    (tmp_path / "map.yaml").write_text(mapping, "utf-8")
    readings = list(load_mapping(tmp_path / "map.yaml").read(Source(data, "log")))
    assert_sound(readings)
    return readings


def test_a_mapping_reads_conversations(tmp_path):
    path = write(tmp_path / "x.jsonl", TICKETS)
    readings = mapped(tmp_path, TICKET_MAP, path)
    first, second = episodes(readings)
    assert [m.role for m in first.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    find, pay, answer = first.steps
    assert (find.arguments, find.result, find.parallel_group) == ('{"n":9007199254740993}', "shipped", 0)
    assert (pay.result, pay.result_status) == ("refused", "error")
    assert answer.action == "respond"
    assert first.messages[2].thought == "look it up"
    assert (first.success, first.model, first.tools, first.native_id) == (True, "m-1", ["find", "pay"], "T-1")
    assert (first.ending, first.ending_reason) == ("terminal", "the outcome is known")
    assert first.messages[1].created_at == 1772000000_000000
    assert json.loads(first.metadata) == {
        "extra": 7,
        "turns": [None] * 5 + [{"by": "narrator", "text": "?"}],
    }
    assert (second.ending, second.success) == ("truncated", None)
    assert Counter((r.level, r.rule) for r in rejects(readings)) == {
        ("part", "unknown_role"): 1,
        ("record", "not_a_conversation"): 2,
    }
    assert counted(readings) == 4
    assert resolve(path, first.messages[3].locator) == "refused"
    assert resolve(path, find.locator)["fn"] == "find"


def test_records_inside_a_document(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"meta": {}, "data": {"items": TICKETS[:2]}}, indent=1), "utf-8")
    readings = mapped(tmp_path, "records: $.data.items[*]\n" + TICKET_MAP, path)
    assert [e.locator for e in episodes(readings)] == ["log#/data/items/0", "log#/data/items/1"]
    assert resolve(path, episodes(readings)[0].messages[0].locator) == "Be kind."
    alone = mapped(tmp_path, TICKET_MAP, write(tmp_path / "y.jsonl", TICKETS[:1]))
    assert episodes(alone)[0].episode_id == episodes(readings)[0].episode_id


STEP_MAP = """\
name: clicks
source_kind: human_demo
episode:
  id: $.run
  task: $.goal
  policy: $.who
  score: $.points
steps:
  order: $.t
  observation: $.screen
  action: {path: $.button, values: {ok: confirm, x: cancel}}
  arguments: $.args
  result: $.after
  reward: $.r
  terminated: $.done
"""

STEPS = [
    {"run": "a", "t": "2", "goal": "buy", "who": "ann", "screen": "cart", "button": "x", "args": '{"n": 1}', "after": "shop", "r": "-1", "done": "0", "points": "", "browser": "f"},
    {"run": "a", "t": "1", "goal": "buy", "who": "ann", "screen": "shop", "button": "ok", "args": "", "after": "cart", "r": "0.5", "done": "0", "points": "", "browser": "f"},
    {"run": "a", "t": "10", "goal": "buy", "who": "ann", "screen": "shop", "button": "ok", "args": "", "after": "paid", "r": "1", "done": "1", "points": "", "browser": "g"},
    {"run": "b", "t": "1", "goal": "buy", "who": "bob", "screen": "shop", "button": "??", "args": "", "after": "", "r": "", "done": "", "points": "", "browser": "f"},
    {"run": "", "t": "1", "goal": "buy", "who": "bob", "screen": "shop", "button": "ok", "args": "", "after": "", "r": "", "done": "", "points": "", "browser": "f"},
]  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_mapping_reads_step_tables(tmp_path, form):
    makers = {"csv": as_csv, "jsonl": write, "parquet": as_parquet}
    path = makers[form](tmp_path / f"x.{form}", STEPS)
    readings = mapped(tmp_path, STEP_MAP, path)
    (bought, empty) = episodes(readings)
    assert [(s.action, s.arguments, s.result, s.logged_reward) for s in bought.steps] == [
        ("confirm", "{}", "cart", 0.5),
        ("cancel", '{"n":1}', "shop", -1.0),
        ("confirm", "{}", "paid", 1.0),
    ]
    assert [m.role for m in bought.messages] == ["user", *["assistant", "tool"] * 3]
    assert (bought.source_kind, bought.policy_id, bought.task, bought.records) == (
        "human_demo",
        "ann",
        "buy",
        3,
    )
    assert (bought.ending, bought.ending_reason) == ("terminal", "the field mapped to `terminated` says so")
    assert json.loads(bought.metadata) == {"browser": ["f", "f", "g"]}
    assert (empty.steps, empty.ending) == ([], "truncated")
    assert Counter(r.rule for r in rejects(readings)) == {"no_action": 1, "not_a_conversation": 1}
    assert counted(readings) == 5
    assert bought.steps[0].locator == {"csv": "log:3", "jsonl": "log:2", "parquet": "log#/1"}[form]


def test_a_torn_step_table_truncates_its_last_episode(tmp_path):
    path = as_csv(tmp_path / "x.csv", STEPS[:3])
    path.write_bytes(path.read_bytes()[:-8])
    (episode,) = episodes(mapped(tmp_path, STEP_MAP, path))
    assert (episode.records, episode.ending_reason) == (2, "the log is cut off")


def test_messages_in_json_text_and_legacy_tool_roles(tmp_path):
    talk = [
        {"from": "user", "value": "go"},
        {"from": "assistant", "value": "", "call": {"name": "f", "arguments": "{}"}},
        {"from": "tool", "value": "done", "for": None},
    ]
    mapping = (
        "name: chats\nskip: {path: $.kind, values: {header: true}}\n"
        "messages:\n  path: $.chat[*]\n  role: $.from\n  content: $.value\n  call_id: $.for\n  reward: $.r\n"
        "  calls: {name: $.call.name, arguments: $.call.arguments}\n"
    )
    path = write(tmp_path / "x.jsonl", [{"kind": "header"}, {"chat": json.dumps(talk)}])
    readings = mapped(tmp_path, mapping, path)
    (episode,) = episodes(readings)
    assert [(s.action, s.result) for s in episode.steps] == [("f", "done")]
    assert skipped(readings) == {"skipped_by_the_mapping": 1}
    assert episode.messages[0].locator == "log:2#/chat#/0/value"
    assert resolve(path, episode.messages[0].locator) == "go"


@pytest.mark.parametrize(
    ("mapping", "line", "what"),
    [
        ("name: x\nmessages:\n  path: $.a\n  rol: $.b\n", 4, "unknown key 'rol'; did you mean role?"),
        ("name: x\nmessages:\n  path: $.a\n  role: $..b\n", 4, "not understood from '..b' on"),
        (
            "name: x\nmessages:\n  path: $.a\n  role: {path: $.r, values: {bot: asistant}}\n",
            4,
            "'asistant' is none of",
        ),
        ("name: x\n", 1, "exactly one of messages and steps"),
        ("name: x\nsteps:\n  action: $.a\n", 1, "episode.id is missing"),
        ("name: x\nmessages:\n  role: $.r\n", 2, "path is missing"),
        ("messages:\n  path: $.a\n  role: $.r\n", 1, "name is missing"),
        ("name: x\nsource_kind: robot\nmessages:\n  path: $.a\n  role: $.r\n", 2, "source_kind is none of"),
        ("name: x\nmessages:\n  path: 7\n  role: $.r\n", 3, "a path is needed"),
        ("name: x\nmessages: [1]\n", 2, "must be a mapping"),
        ("name: x\nname: y\n", 2, "key 'name' is there twice"),
        ("name: [\n", 2, "not valid YAML"),
    ],
)
def test_errors_of_a_mapping_name_file_line_and_the_valid_words(tmp_path, mapping, line, what):
    path = tmp_path / "map.yaml"
    path.write_text(mapping, "utf-8")
    with pytest.raises(SpecError) as caught:
        load_mapping(path)
    assert any(p.line == line and what in p.what and p.path == str(path) for p in caught.value.problems), (
        caught.value
    )


def test_a_missing_mapping_is_an_error_of_its_own(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        load_mapping(tmp_path / "no.yaml")


def test_a_mapping_connector_is_one_like_others(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text(TICKET_MAP, "utf-8")
    connector = load_mapping(path)
    assert pickle.loads(pickle.dumps(connector)) == connector
    assert connector.name == "tickets"
    path.write_text(TICKET_MAP + "# changed\n", "utf-8")
    assert load_mapping(path).version != connector.version


@pytest.mark.parametrize("text", ["a", "$.", "$.a..b", "$[", "$['a]", "$.a[x]", ""])
def test_bad_paths_are_refused(text):
    with pytest.raises(BadPath):
        parse_path(text)


def test_paths_take_quoted_names_indices_and_stars():
    assert parse_path("$$['a.b'][-1][*].c").steps == ("a.b", -1, None, "c")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_mapped_records_never_raise_and_count_once(tmp_path_factory, data):
    choose = data.draw(st.randoms(use_true_random=False))
    folder = tmp_path_factory.mktemp("mapped")
    for rows, mapping in ((TICKETS, TICKET_MAP), (STEPS, STEP_MAP)):
        rows = [mutate(row, choose) if choose.random() < 0.6 else row for row in rows]
        readings = mapped(folder, mapping, write(folder / "x.jsonl", rows))
        assert counted(readings) == len(rows)


# --- the pages ----------------------------------------------------------------------------------------------------


def test_the_mapping_page_runs(tmp_path):
    text = (ROOT / "docs" / "formats" / "mapping.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert {"bash", "python"} <= {language for language, _ in blocks}
    for language, block in blocks:
        if language == "bash":
            block = "\n".join(line for line in block.splitlines() if not line.startswith("logforge "))
        command = ["bash", "-euc", block] if language == "bash" else [sys.executable, "-c", block]
        if language in ("bash", "python"):
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


def test_texts_of_the_flat_fixtures_are_found_again():
    for path in sorted(FLAT.iterdir()):
        for episode in episodes(spans(path)):
            for message in episode.messages:
                if message.content:
                    assert holds(resolve(path, message.locator), message.content, False)


# --- log records and the AI SDK ---------------------------------------------------------------------------------------


def test_genai_events_that_are_log_records_make_the_calls_they_were_written_in():
    readings = spans(FLAT / "logs.jsonl")
    weather, hello = episodes(readings)
    assert [(m.role, m.content) for m in weather.messages] == [
        ("system", "Answer briefly."),
        ("user", "Weather in Oslo?"),
        ("assistant", None),
        ("tool", "rain, 4 C"),
        ("assistant", "Rain, 4 degrees."),
    ]
    assert [(s.action, s.arguments, s.result) for s in weather.steps] == [
        ("get_weather", '{"city":"Oslo"}', "rain, 4 C"),
        ("respond", "{}", None),
    ]
    assert (weather.steps[1].logged_reward, weather.records, weather.ending) == (0.9, 9, "terminal")
    assert (hello.model, hello.temperature, hello.tools) == ("m-1-0525", 0.3, ["find"])
    assert (hello.messages[-1].content, hello.messages[-1].tokens_in) == ("Hello, friend.", 20)
    assert [item.reason for item in readings if isinstance(item, Skip)] == ["other_log_record"]
    assert [item.records for item in readings if isinstance(item, Duplicate)] == [1]
    assert [(r.rule, r.reason) for r in rejects(readings)] == [
        ("not_a_span", "a GenAI event that names no span")
    ]


def test_spans_and_their_log_records_in_one_file_are_one_episode(tmp_path):
    """The span tells model, time and usage; the records what was said."""
    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-9", "gen_ai.usage.input_tokens": 33}
    values = [
        {"key": k, "value": {"intValue": v} if isinstance(v, int) else {"stringValue": v}}
        for k, v in told.items()
    ]
    logs = (FLAT / "logs.jsonl").read_text("utf-8").splitlines()[0]
    record = json.loads(logs)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    own = {key: record[key] for key in ("traceId", "spanId")} | {"name": "chat m-9", "attributes": values}
    times = {"startTimeUnixNano": "1780000000000000000", "endTimeUnixNano": "1780000003000000000"}
    span = {"resourceSpans": [{"scopeSpans": [{"spans": [own | times]}]}]}
    for number, lines in enumerate([[json.dumps(span), logs], [logs, json.dumps(span)]]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("\n".join(lines), "utf-8")
        (episode,) = episodes(spans(path))
        assert [m.role for m in episode.messages] == ["system", "user", "assistant"]
        assert (episode.model, episode.messages[2].tokens_in, episode.records) == ("m-9", 33, 4)


def test_spans_of_the_vercel_ai_sdk():
    (shop,) = episodes(spans(FLAT / "vercel.json"))
    assert [(m.role, m.content) for m in shop.messages] == [
        ("system", "You sell bikes."),
        ("user", "Is the blue bike in stock?"),
        ("assistant", None),
        ("tool", '{"count":3}'),
        ("assistant", "Yes, three of them."),
    ]
    find, said = shop.steps
    assert (find.action, find.arguments, find.latency_s, find.result_status) == (
        "findStock",
        '{"colour":"blue"}',
        0.3,
        "ok",
    )
    assert shop.offered == [["findStock"], ["findStock", "order"], ["findStock", "order"]]
    assert (shop.messages[2].thought, shop.messages[2].tokens_in, shop.user_id) == ("I must look.", 80, "u-7")
    assert (shop.model, shop.temperature) == ("gpt-5-mini-2025-08-07", 0.4)
    assert shop.policy_id == f"gpt-5-mini-2025-08-07@t=0.4#prompt:{shop.prompt_version[:8]}"
    assert (shop.records, shop.ending, said.kind) == (4, "terminal", "respond")
