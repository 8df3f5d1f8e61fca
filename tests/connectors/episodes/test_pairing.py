"""Results find their calls: by id, by the tool's name, by their order; what could be of several calls is nobody's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors import get
from logforge.connectors.episodes import Call, EpisodeBuilder
from logforge.connectors.records import Source
from logforge.schemas import Episode, Reject

A, B = Call("a", {"x": 1}), Call("b", {"x": 1})
LONG = "call_aaaaaaaaaaaa"


def built(builder: EpisodeBuilder) -> Episode:
    episode = builder.finish(id="e", format="f", locator="l", ending="terminal", ending_reason="")
    assert [message.position for message in episode.messages] == list(range(len(episode.messages)))
    for step in episode.steps:
        if step.result_position is not None:
            told = episode.messages[step.result_position]
            assert (told.role, told.content, told.locator) == ("tool", step.result, step.result_locator)
            assert step.result_position > step.position
    return episode


def results(builder: EpisodeBuilder) -> list[str | None]:
    return [step.result for step in built(builder).steps]


def asked(*calls: Call) -> EpisodeBuilder:
    builder = EpisodeBuilder()
    builder.message("user", "Go", "u")
    builder.turn(None, list(calls), "t")
    return builder


def test_one_of_two_calls_answered_without_a_name_is_nobody_s():
    builder = asked(A, B)
    builder.result(None, "1", "r")
    assert results(builder) == [None, None]
    (reject,) = builder.rejects
    assert (reject.rule, reject.locator, reject.excerpt) == ("ambiguous_result", "r", "1")
    assert reject.detail == "open calls: a, b"


def test_results_of_all_calls_come_in_their_order():
    builder = asked(A, B)
    builder.result(None, "1", "r")
    builder.result(None, "2", "s")
    assert (results(builder), builder.rejects) == (["1", "2"], [])


def test_the_tool_s_name_tells_and_equal_calls_need_none():
    builder = asked(A, B)
    builder.result(None, "2", "r", name="b")
    assert (results(builder), builder.rejects) == ([None, "2"], [])
    builder = asked(A, A)
    builder.result(None, "1", "r")
    assert (results(builder), builder.rejects) == (["1", None], [])
    other = Call("a", {"x": 2})
    builder = asked(A, other, B)
    builder.result(None, "1", "r", name="a")
    assert (results(builder), builder.rejects[0].rule) == ([None] * 3, "ambiguous_result")


def test_what_has_an_id_stays_where_the_rest_is_set_aside():
    builder = asked(A, B, Call("c", {}, "c1"))
    builder.result(None, "1", "r")
    builder.result("c1", "3", "s")
    builder.turn("Done.", [], "v")
    assert results(builder) == [None, None, "3", None]
    assert [message.content for message in built(builder).messages] == ["Go", None, "3", "Done."]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), min_size=1, max_size=4), st.integers(0, 5)
)
def test_nothing_is_guessed_and_nothing_lost(kinds, count):
    calls = [Call(name, {"x": x}) for name, x in kinds]
    builder = asked(*calls)
    for number in range(count):
        builder.result(None, str(number), f"r{number}")
    found = results(builder)
    kept = [result for result in found if result is not None]
    assert sorted(kept + [reject.excerpt for reject in builder.rejects]) == sorted(map(str, range(count)))
    if len(set(kinds)) > 1 and count < len(calls):
        left = {kind for kind, result in zip(kinds, found, strict=True) if result is None}
        assert all(left == {kind} for kind, result in zip(kinds, found, strict=True) if result is not None)
    else:
        assert kept == [str(number) for number in range(min(count, len(calls)))]


def test_a_result_before_its_call_is_its_result():
    builder = EpisodeBuilder()
    builder.message("user", "Go", "u")
    assert not builder.result(LONG, "early", "r", failed=True)
    builder.message("user", "And?", "v")
    builder.turn(None, [Call("a", {}, LONG)], "t")
    assert (results(builder), builder.rejects) == (["early"], [])
    assert built(builder).steps[0].result_status == "error"


@pytest.mark.parametrize(("between", "result"), [(False, "early"), (True, None)])
def test_a_short_id_is_another_call_s_unless_they_stand_side_by_side(between, result):
    builder = EpisodeBuilder()
    builder.message("user", "Go", "u")
    builder.result("c1", "early", "r")
    if between:
        builder.message("user", "And?", "v")
    builder.turn(None, [Call("a", {}, "c1")], "t")
    assert results(builder) == [result]
    assert [reject.rule for reject in builder.rejects] == ([] if result else ["orphan_result"])


def test_a_log_that_begins_late_pairs_no_short_id():
    builder = EpisodeBuilder()
    builder.result("c1", "of a call that is cut off", "r")
    builder.turn(None, [Call("a", {}, "c1")], "t")
    builder.result("c1", "its own", "s")
    assert (results(builder), len(builder.rejects)) == (["its own"], 1)


def read(tmp_path, messages: list[dict[str, Any]]) -> tuple[Episode, list[Reject]]:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    episode, *rejects = get("openai_messages").read(Source(path, path.name))
    assert isinstance(episode, Episode)
    return episode, [reject for reject in rejects if isinstance(reject, Reject)]


def test_messages_without_call_ids(tmp_path):
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    turn = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    episode, rejects = read(tmp_path, [*turn, {"role": "tool", "content": "1"}])
    assert [step.result for step in episode.steps] == [None, None]
    assert [reject.rule for reject in rejects] == ["ambiguous_result"]
    episode, rejects = read(tmp_path, [*turn, {"role": "tool", "name": "b", "content": "2"}])
    assert ([step.result for step in episode.steps], rejects) == ([None, "2"], [])


SUMMARY = (
    "This session is being continued from a previous conversation that ran out of context. The user asked …"
)


def test_a_summary_that_a_program_wrote_is_nobody_s_message(tmp_path):
    said = [{"role": "user", "content": SUMMARY}, {"role": "user", "content": "Go on"}]
    episode, _ = read(tmp_path, [*said, {"role": "assistant", "content": "Done."}])
    assert [message.role for message in episode.messages] == ["system", "user", "assistant"]
    assert (episode.task, episode.prompt_version) == ("Go on", None)


def test_claude_code_says_which_line_is_a_summary(tmp_path):
    path = tmp_path / "s.jsonl"
    base = {"sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "parentUuid": None}
    told = [
        ("user", "Fix it", {}),
        ("assistant", "Done.", {}),
        ("user", "What was done: all.", {"isCompactSummary": True}),
    ]
    lines = [
        {**base, "uuid": f"u{n}", "type": role, "message": {"role": role, "content": text}, **more}
        for n, (role, text, more) in enumerate(told)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (episode,) = get("claude_code").read(Source(path, path.name))
    assert isinstance(episode, Episode)
    assert [message.role for message in episode.messages] == ["user", "assistant", "system"]
    assert (episode.ending, episode.task) == ("terminal", "Fix it")
