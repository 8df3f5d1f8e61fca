"""The builder: positions, groups, pairing, arguments, and the rules that read an answer's text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.outcome import ERROR_CLASSES, asks_user, classify_result
from logforge.connectors.episodes.soft_refusal import SOFT_REFUSAL
from support.places import ROOT

ASKS = json.loads((ROOT / "tests" / "data" / "asks.json").read_text("utf-8"))
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    run()\n'


def finish(builder, **more):
    return builder.finish(
        id="0" * 32, format="test", locator="f:1", ending="terminal", ending_reason="test", **more
    )


def test_positions_have_no_gaps_and_a_step_points_at_its_turn():
    builder = EpisodeBuilder()
    builder.message("system", "rules", "f:1")
    builder.message("user", "go", "f:2")
    builder.turn("looking", [Call("search", '{"q": 1}', "c1")], "f:3")
    builder.result("c1", "found", "f:4", latency_s=0.5)
    builder.turn("done", [], "f:5")
    episode = finish(builder)
    assert [m.position for m in episode.messages] == [0, 1, 2, 3, 4]
    search, said = episode.steps
    assert (search.position, search.result_position, search.result, search.latency_s) == (2, 3, "found", 0.5)
    assert (search.locator, search.result_locator) == ("f:3", "f:4")
    assert (said.kind, said.action, said.position, said.result_status, said.result) == ("respond",) * 2 + (
        4,
        None,
        None,
    )


def test_parallel_calls_are_steps_of_one_group_and_pair_by_id():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("f", {"n": 1}, "a"), Call("f", {"n": 2}, "b")], "f:1")
    builder.result("b", "two", "f:2")
    builder.result("a", "one", "f:3")
    builder.turn(None, [Call("f", {}, "c")], "f:4")
    builder.turn(None, [Call("g", {}, "d"), Call("h", {}, "e")], "f:5")
    steps = finish(builder).steps
    assert [s.result for s in steps] == ["one", "two", None, None, None]
    assert [s.parallel_group for s in steps] == [0, 0, None, 1, 1]
    assert [s.result_status for s in steps[2:]] == ["missing"] * 3


def test_an_id_used_again_takes_the_nearest_open_call():
    builder = EpisodeBuilder()
    for table in ("orders", "users", "audit"):
        builder.turn(None, [Call("rows", {"table": table}, "rows:0")], "f:1")
        if table != "audit":
            builder.result("rows:0", table, "f:2")
    assert [s.result for s in finish(builder).steps] == ["orders", "users", None]


def test_one_id_twice_in_a_turn_pairs_in_order():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("roll", {"n": 1}, "k"), Call("roll", {"n": 2}, "k")], "f:1")
    builder.result("k", "four", "f:2")
    builder.result("k", "six", "f:3")
    assert [s.result for s in finish(builder).steps] == ["four", "six"]


def test_results_without_ids_go_to_the_latest_turn_in_order():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("lost", {})], "f:1")
    builder.turn(None, [Call("f", {"n": 1}), Call("f", {"n": 2})], "f:2")
    assert builder.result(None, "one", "f:3")
    assert builder.result(None, "two", "f:4")
    assert not builder.result(None, "three", "f:5")
    assert [s.result for s in finish(builder).steps] == [None, "one", "two"]


def test_a_call_answered_by_position_is_no_longer_open_under_its_id():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("f", {}, "a")], "f:1")
    assert builder.result(None, "one", "f:2")
    assert not builder.result("a", "two", "f:3")
    assert finish(builder).steps[0].result == "one"


def test_an_orphan_is_a_rejected_part_and_no_message():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("f", {}, "a")], "f:1")
    assert not builder.result("z", "whose?", "f:2")
    assert builder.result("a", "mine", "f:3")
    assert not builder.result("a", "mine again", "f:4")
    assert [r.locator for r in builder.rejects] == ["f:2", "f:4"]
    assert {r.rule for r in builder.rejects} == {"orphan_result"}
    assert builder.rejects[1].detail.endswith("has its result already")
    assert len(finish(builder).messages) == 2


def test_one_result_may_answer_several_calls():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("f", {"i": 1}, "a"), Call("f", {"i": 2}, "b")], "f:1")
    builder.result("a", "both", "f:2")
    assert builder.also_answers("b")
    assert not builder.also_answers("c")
    episode = finish(builder)
    assert [(s.result, s.result_position) for s in episode.steps] == [("both", 1)] * 2
    assert len(episode.messages) == 2


def test_an_empty_answer_is_not_a_missing_one():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("touch", {}, "a")], "f:1")
    builder.result("a", None, "f:2")
    (step,) = finish(builder).steps
    assert (step.result, step.result_status, step.result_position) == ("", "empty", 1)


@pytest.mark.parametrize(
    ("answered", "then", "open_at_the_end"),
    [((), False, True), (("b",), False, True), (("a", "b"), False, False), ((), True, False)],
)
def test_ends_unanswered_looks_at_the_whole_last_turn(answered, then, open_at_the_end):
    builder = EpisodeBuilder()
    builder.turn(None, [Call("f", {}, "a"), Call("f", {}, "b")], "f:1")
    for call_id in answered:
        builder.result(call_id, "x", "f:2")
    if then:
        builder.turn("well", [], "f:3")
    assert builder.ends_unanswered is open_at_the_end


def test_a_tool_that_was_not_offered_is_invalid():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("search", {}, "a"), Call("fly", {}, "b")], "f:1")
    builder.turn("hm", [], "f:2")
    assert [s.action_valid for s in finish(builder, tools=["search"]).steps] == [True, False, True]


@pytest.mark.parametrize("name", ["respond", "clarify", "<invalid>", "tool:respond"])
def test_a_tool_with_a_reserved_name_is_kept_apart_from_speaking(name):
    builder = EpisodeBuilder()
    builder.turn(None, [Call(name, {}, "a")], "f:1")
    builder.turn("well", [], "f:2")
    assert builder.last_action == "respond"
    episode = finish(builder, tools=["search", name])
    assert [(s.kind, s.action, s.action_valid) for s in episode.steps] == [
        ("tool", f"tool:{name}", True),
        ("respond", "respond", True),
    ]
    assert episode.tools == ["search", f"tool:{name}"]
    (called, _) = finish(builder, tools=["search"]).steps
    assert (called.action, called.action_valid) == (f"tool:{name}", False)


def test_other_names_are_actions_as_they_are():
    builder = EpisodeBuilder()
    builder.turn(None, [Call(name, {}) for name in ("Respond", "tool:search", "respond_all")], "f:1")
    assert [s.action for s in finish(builder).steps] == ["Respond", "tool:search", "respond_all"]


def test_times_and_the_system_prompt_come_from_the_messages():
    builder = EpisodeBuilder()
    builder.message("system", "rules", "f:1", created_at=30)
    builder.message("user", "go", "f:2", created_at=10)
    episode = finish(builder)
    assert (episode.started_at, episode.ended_at) == (10, 30)
    other = EpisodeBuilder()
    other.message("system", "rules", "g:1")
    assert finish(other).prompt_version == episode.prompt_version is not None
    assert finish(EpisodeBuilder()).prompt_version is None


@pytest.mark.parametrize(
    ("text", "failed", "expected"),
    [
        ("", None, ("empty", None)),
        ("  \n", None, ("empty", None)),
        ("", True, ("error", "other")),
        ("all fine", None, ("ok", None)),
        ("Error: user not found", None, ("error", "not_found")),
        ("Error: user not found", False, ("ok", None)),
        ("payment amount does not add up", True, ("error", "invalid_arguments")),
        ("Traceback (most recent call last):\n  x\nValueError: bad", None, ("error", "other")),
        ("NameError: name 'x' is not defined", None, ("error", "other")),
        ('{"error": "invalid id"}', None, ("error", "invalid_arguments")),
        ("{'error': 'invalid id'}", None, ("error", "invalid_arguments")),
        ('{"error": null, "rows": 3}', None, ("ok", None)),
        ('{"failed": 0, "passed": 3}', None, ("ok", None)),
        ("EXECUTION TIMED OUT", None, ("timeout", "timeout")),
        ("Permission denied", None, ("error", "auth")),
        ("HTTP 503", True, ("error", "server")),
        ("no errors in this log", None, ("ok", None)),
    ],
)
def test_an_answer_is_classified_by_its_flag_and_its_beginning(text, failed, expected):
    assert classify_result(text, failed) == expected


@given(st.text(max_size=60), st.sampled_from([None, True, False]))
def test_every_status_and_class_is_a_known_one(text, failed):
    status, error = classify_result(text, failed)
    assert status in ("ok", "error", "empty", "timeout", "refused")
    assert error is None or error in (*ERROR_CLASSES, SOFT_REFUSAL)
    assert (error is None) == (status in ("ok", "empty"))


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What is your name?", True),
        ("Fine. Which day?", True),
        ('He asked "why?"', True),
        ("**Which day?**\n", True),
        ("Two? No, three.", False),
        ("Done. Is there anything else I can help you with?", False),
        ("How can I help you?", False),
        ("请问您的名字？", True),
        ("", False),
        (None, False),
    ],
)
def test_a_question_at_the_end_asks_the_user(text, asks):
    assert asks_user(text) is asks


@pytest.mark.parametrize("case", ASKS, ids=lambda case: case["text"][:40])
def test_requests_ask_the_user_too(case):
    assert asks_user(case["text"]) is case["asks"]


def test_a_request_counts_only_near_the_end_and_not_without_its_beginning():
    assert asks_user("x" * 5000 + ". Please provide your ID. Thanks.")
    assert not asks_user("Please provide your ID. " + "x" * 1000)
    assert not asks_user("If " + "x" * 1000 + ", please provide your ID.")


def test_a_long_text_of_requests_is_read_in_no_time():
    assert asks_user("please provide it. " * 50_000)
    assert not asks_user("please " * 200_000 + "let me know")
    assert not asks_user("could you " * 200_000)


@pytest.mark.parametrize(
    ("text", "failed", "expected"),
    [
        ("a\n[Command finished with exit code 1]", None, ("error", "other")),
        ("a: No such file\n[Command finished with exit code 2]\n", None, ("error", "not_found")),
        ("Error: 0 of 3\n[Command finished with exit code 0]", None, ("ok", None)),
        ("[The command completed with exit code -1.]", None, ("error", "other")),
        ("a\n[Command finished with exit code 1]", False, ("ok", None)),
        ("[Command finished with exit code 1]\nand more", None, ("ok", None)),
        ("OBSERVATION:\nError: user not found", None, ("error", "not_found")),
        ("OBSERVATION:\nall fine", None, ("ok", None)),
        ("OBSERVATION:\n", None, ("empty", None)),
        (f"ran 3\n{TRACE}KeyError: 'missing'", None, ("error", "invalid_arguments")),
        (f"ran 3\n{TRACE}KeyboardInterrupt\n", None, ("error", "other")),
        (f"ran 3\n{TRACE}ValueError: bad\n" + "x" * 600, None, ("ok", None)),
        (f"log:\n{TRACE}    ...", None, ("ok", None)),
        ('see  File "a.py", line 1\nValueError: no traceback', None, ("ok", None)),
    ],
)
def test_an_answer_is_classified_by_its_end(text, failed, expected):
    assert classify_result(text, failed) == expected


def test_a_state_without_a_result_is_the_calls_status():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("a", {}), Call("b", {}), Call("c", {})], "f:1")
    builder.state(0, "error")
    builder.state(1, "refused")
    assert builder.ends_unanswered
    steps = finish(builder).steps
    assert [(s.result, s.result_status, s.error_class) for s in steps] == [
        (None, "error", "other"),
        (None, "refused", None),
        (None, "missing", None),
    ]


def test_a_long_text_of_questions_is_read_in_no_time():
    assert asks_user("why? " * 200_000)
    assert not asks_user("a" * 1_000_000 + "? no")
