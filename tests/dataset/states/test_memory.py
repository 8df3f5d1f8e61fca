"""What is remembered of an episode, and that it is a fold over its events."""

from __future__ import annotations

from hypothesis import given, settings

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.dataset.states.memory import PENDING, EpisodeMemory, Memory, Remembered
from logforge.schemas.episode import Episode
from support.made_episodes import episodes, finish, parallel_episode, state_builder


def remembered(episode: Episode, index: int = -1) -> dict[str, Remembered]:
    return {known.action: known for known in state_builder().symbols(episode)[index].memory.actions}


def test_nothing_is_remembered_at_first() -> None:
    assert state_builder().symbols(parallel_episode())[0].memory == Memory()
    assert EpisodeMemory().recall() == Memory()


def test_the_last_answer_of_each_tool_stays_however_long_ago() -> None:
    builder = EpisodeBuilder()
    builder.message("user", "hello", "x")
    builder.turn("", [Call("find", {}, "f")], "x")
    builder.result("f", "3 seats", "x")
    for turn in range(30):
        builder.turn("", [Call("pay", {}, f"p{turn}")], "x")
        builder.result(f"p{turn}", f"paid {turn}", "x")
    state = state_builder().symbols(finish(builder))[-1]
    assert "3 seats" not in [turn.content for turn in state.window]
    known = {one.action: one for one in state.memory.actions}
    assert known["find"] == Remembered("find", 1, 0, "ok", "3 seats")
    assert known["pay"] == Remembered("pay", 30, 30, "ok", "paid 29")


def test_a_failure_shows_in_the_status_and_leaves_the_answer_before_it() -> None:
    builder = EpisodeBuilder()
    for number, result in enumerate(["3 seats", "Error: timed out"]):
        builder.turn("", [Call("find", {}, str(number))], "x")
        builder.result(str(number), result, "x")
    builder.turn("done", [], "x")
    known = remembered(finish(builder))["find"]
    assert (known.calls, known.last, known.answer) == (2, 1, "3 seats")
    assert known.status in {"error", "timeout"}


def test_a_late_result_of_an_earlier_call_answers_and_leaves_the_last_calls_status() -> None:
    builder = EpisodeBuilder()
    builder.turn("", [Call("find", {}, "a")], "x")
    builder.turn("", [Call("find", {}, "b")], "x")
    builder.result("a", "late", "x")
    builder.turn("done", [], "x")
    assert remembered(finish(builder), 2)["find"] == Remembered("find", 2, 1, PENDING, "late")


def test_calls_of_a_parallel_group_are_remembered_after_it() -> None:
    states = state_builder().symbols(parallel_episode())
    assert states[1].memory == states[0].memory
    assert [known.action for known in states[2].memory.actions] == ["book", "find"]


def test_what_the_user_says_next_answers_what_was_asked() -> None:
    builder = EpisodeBuilder()
    builder.message("user", "hello", "x")
    builder.turn("Which city?", [], "x")
    builder.message("user", "Rome", "x")
    builder.message("user", "and quick", "x")
    builder.turn("Fine.", [], "x")
    states = state_builder().symbols(finish(builder))
    assert states[1].memory.actions == (Remembered("clarify", 1, 0, "ok", "Rome"),)
    assert states[1].memory.said == ("Rome", "and quick")
    assert remembered(finish(builder))["respond"] == Remembered("respond", 1, 1, PENDING, None)


@given(episodes())
@settings(max_examples=100, deadline=None)
def test_memory_agrees_with_what_lies_before_each_decision(episode: Episode) -> None:
    """Against the definition: counts, and the newest answer that was no failure, looked up in the episode itself."""
    for index, (step, state) in enumerate(zip(episode.steps, state_builder().symbols(episode), strict=False)):
        cut = min(
            s.position
            for s in episode.steps[: index + 1]
            if s is step or (step.parallel_group is not None and s.parallel_group == step.parallel_group)
        )
        before = [s for s in episode.steps[:index] if s.position < cut]
        assert {k.action: (k.calls, k.last) for k in state.memory.actions} == {
            s.action: (sum(o.action == s.action for o in before), s.step) for s in before
        }
        for known in state.memory.actions:
            tools = [s for s in before if s.action == known.action and s.kind == "tool"]
            came = [s for s in tools if s.result_position is not None and s.result_position < cut]
            good = [s for s in came if s.result_status not in {"error", "timeout", "refused"}]
            if tools:
                newest = max(good, key=lambda s: (s.result_position, s.step), default=None)
                assert known.answer == (newest.result if newest else None)
        users = [m.content for m in episode.messages if m.role == "user" and m.position < cut]
        assert state.memory.said == tuple(text for text in users[1:] if text)
