"""Which tools were on offer at a decision: from the builder and the logs to masks and shards."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors.detection import get
from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.records.base import Source
from logforge.core.frames import episodes_of, tables_of
from logforge.dataset.actions.vocabulary import ActionSpace, seen_in
from logforge.dataset.build.transitions import Member, split_arrays, transition_rows
from logforge.dataset.states.builder import StateBuilder
from logforge.dataset.states.config import StateConfig
from logforge.rewards.pipeline import score
from logforge.schemas.episode import Episode
from support.made_episodes import finish
from support.made_rewards import spec_of

LISTS = st.sampled_from([None, [], ["a"], ["a", "b"], ["respond", "b"]])


def offering(*lists, calls="a", **more) -> Episode:
    """One call of `calls` after each list is offered."""
    builder = EpisodeBuilder()
    builder.message("user", "go", "x")
    for index, names in enumerate(lists):
        builder.offer(names)
        builder.turn("", [Call(calls, "{}", f"c{index}")], "x")
        builder.result(f"c{index}", "ok", "x")
    return finish(builder, **more)


def test_the_episode_has_the_first_list_and_steps_what_differs():
    episode = offering(["a"], None, ["a", "b"], ["a"], [])
    assert episode.tools == ["a"]
    assert [step.tools for step in episode.steps] == [None, None, ["a", "b"], None, []]
    assert [step.action_valid for step in episode.steps] == [True, True, True, True, False]
    assert episode.offered == [["a"], ["a"], ["a", "b"], ["a"], [], []]


def test_before_any_list_is_named_the_tools_are_not_known():
    episode = offering(None, ["b"])
    assert (episode.tools, [step.tools for step in episode.steps]) == (None, [None, ["b"]])
    assert [step.action_valid for step in episode.steps] == [True, False]


def test_what_the_episode_is_given_holds_until_another_list_is_named():
    episode = offering(None, ["a", "b"], tools=["b"])
    assert (episode.tools, [step.tools for step in episode.steps]) == (["b"], [None, ["a", "b"]])
    assert [step.action_valid for step in episode.steps] == [False, True]


def test_reserved_names_are_marked_in_every_list():
    episode = offering(["a"], ["respond"], calls="respond")
    assert [step.action for step in episode.steps] == ["tool:respond"] * 2
    assert [step.action_valid for step in episode.steps] == [False, True]
    assert episode.steps[1].tools == ["tool:respond"]


def test_a_slip_is_mended_to_a_tool_of_its_own_list_alone():
    assert [step.action for step in offering(["A_tool"], ["other"], calls="a_tool").steps] == [
        "A_tool",
        "a_tool",
    ]


@given(st.lists(LISTS, min_size=1, max_size=6), LISTS)
def test_steps_and_episode_together_say_what_was_offered(lists, given_list):
    episode = offering(*lists, tools=given_list)
    known, said = given_list, []
    for names in lists:
        known = known if names is None else names
        said.append(None if known is None else ["tool:respond" if n == "respond" else n for n in known])
    assert episode.offered[:-1] == said
    (again,) = episodes_of(tables_of([episode]))
    assert again.offered == episode.offered


def test_masks_follow_the_lists_and_arrays_hold_one_more_row():
    episode = offering(["a"], ["a", "b"], None, [], success=True)
    space = ActionSpace.build([seen_in(episode)])
    assert space.vocabulary.actions == ("respond", "clarify", "a", "b", "<invalid>")
    states = StateBuilder(StateConfig(), space, 8).symbols(episode)
    rewards = score(spec_of("one: {value: 1}"), tables_of([episode]))
    rows = transition_rows([Member(episode, "train", "g", states)], rewards, space, 1.0)
    assert rows["action_id"].to_list() == [2, 2, 2, 4]
    arrays = split_arrays(rows, [4], ["g"], np.zeros((5, 3), np.float32), space)
    offered = [[name for name, on in zip("rcab", row, strict=False) if on] for row in arrays.masks]
    assert ["".join(names) for names in offered] == ["rca", "rcab", "rcab", "rc", "rc"]
    assert [len(state.mask) for state in states] == [3, 4, 4, 2, 2]


def test_a_list_that_is_known_later_is_logged_from_there_on():
    episode = offering(None, ["b"])
    kinds = [mask.kind for mask in ActionSpace.build([seen_in(episode)]).masks(episode)]
    assert kinds == ["inferred", "logged", "logged"]


# Logs.


def read(tmp_path, name, rows):
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return [item for item in get(name).read(Source(path, "log")) if isinstance(item, Episode)]


def schema(name):
    return {"name": name, "input_schema": {"type": "object"}}


def exchange(messages, tools, reply, **more):
    request = {"model": "m", "max_tokens": 9, "messages": messages, **more}
    request |= {} if tools is None else {"tools": [schema(name) for name in tools]}
    stop = "tool_use" if any(block["type"] == "tool_use" for block in reply) else "end_turn"
    return {
        "request": request,
        "response": {
            "id": f"msg_{len(messages)}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": reply,
            "stop_reason": stop,
        },
    }


def anthropic_log():
    use = [{"type": "tool_use", "id": f"t{n}", "name": "find", "input": {}} for n in range(2)]
    answer = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"} for n in range(2)]
    said = [{"role": "user", "content": "go"}]
    for call, result in zip(use, answer, strict=True):
        said = [*said, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    last = [{"type": "text", "text": "Done."}]
    return [
        exchange(said[:1], ["find"], [use[0]]),
        exchange(said[:3], ["find", "pay"], [use[1]]),
        exchange(said, None, last),
    ]


def test_anthropic_requests_offer_each_their_own(tmp_path):
    (episode,) = read(tmp_path, "anthropic_api", anthropic_log())
    assert episode.offered == [["find"], ["find", "pay"], [], []]


def test_a_request_that_forbids_calls_offers_none(tmp_path):
    row = exchange([{"role": "user", "content": "go"}], ["find"], [{"type": "text", "text": "No."}])
    row["request"]["tool_choice"] = {"type": "none"}
    (episode,) = read(tmp_path, "anthropic_api", [row])
    assert episode.tools == []


def test_an_earlier_end_of_the_log_knows_no_later_tool(tmp_path):
    whole = read(tmp_path, "anthropic_api", anthropic_log())[0].offered
    for length in (1, 2):
        (episode,) = read(tmp_path, "anthropic_api", anthropic_log()[:length])
        assert episode.offered[:-1] == whole[:length]


def span(number, said, reply, tools):
    def text(value):
        return {"stringValue": value if isinstance(value, str) else json.dumps(value)}

    values = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": said,
        "gen_ai.output.messages": [reply],
    } | (
        {} if tools is None else {"gen_ai.tool.definitions": [{"type": "function", "name": n} for n in tools]}
    )
    attributes = [{"key": key, "value": text(value)} for key, value in values.items()]
    one = {
        "traceId": "5b8aa5a2d2c872e8321cf37308d69df2",
        "spanId": f"{number:016x}",
        "name": "chat m",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + number),
        "endTimeUnixNano": str(1_700_000_000_000_000_500 + number),
        "attributes": attributes,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}


def parts(role, *found):
    return {"role": role, "parts": list(found)}


@pytest.mark.parametrize("second", [["find", "pay"], None, []])
def test_spans_offer_each_their_own_and_one_that_says_nothing_what_was_offered_before(tmp_path, second):
    call = parts("assistant", {"type": "tool_call", "id": "c1", "name": "find", "arguments": {}})
    result = parts("tool", {"type": "tool_call_response", "id": "c1", "response": "x"})
    asked = [parts("user", {"type": "text", "content": "go"})]
    done = parts("assistant", {"type": "text", "content": "Done."})
    rows = [span(1, asked, call, ["find"]), span(2, [*asked, call, result], done, second)]
    (episode,) = read(tmp_path, "otlp", rows)
    last = ["find"] if second is None else second
    assert episode.offered == [["find"], last, last]


def test_langsmith_runs_offer_each_their_own(tmp_path):
    def run(number, messages, reply, tools):
        made = [{"type": "function", "function": {"name": name}} for name in tools]
        return {
            "id": f"d0000000-0000-4000-8000-00000000000{number}",
            "trace_id": "d0000000-0000-4000-8000-000000000001",
            "dotted_order": f"2026010210000{number}",
            "run_type": "llm",
            "start_time": f"2026-01-02T10:00:0{number}+00:00",
            "end_time": f"2026-01-02T10:00:0{number}.5+00:00",
            "extra": {"invocation_params": {"model": "m", "tools": made}},
            "inputs": {"messages": messages},
            "outputs": {"choices": [{"message": reply, "finish_reason": "stop"}]},
        }

    asked = [{"role": "user", "content": "go"}]
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    answered = [*asked, called, {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    done = {"role": "assistant", "content": "Done."}
    rows = [run(1, asked, called, ["find"]), run(2, answered, done, ["find", "pay"])]
    (episode,) = read(tmp_path, "langsmith_runs", rows)
    assert episode.offered == [["find"], ["find", "pay"], ["find", "pay"]]
