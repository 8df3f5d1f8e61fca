"""The law of states: what comes at or after a decision cannot be seen in the state before it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.states.builder import State, StateBuilder, canonical_key, state_key
from logforge.dataset.states.config import StateConfig
from logforge.dataset.states.memory import Memory
from logforge.dataset.states.symbolic_state import PENDING, GroupCall, PastCall, Turn
from logforge.schemas.episode import Episode
from support.made_episodes import (
    T0,
    episodes,
    finish,
    parallel_episode,
    real_episodes,
    state_builder,
    with_another_future,
)

replace = msgspec.structs.replace


def symbols(episode: Episode, **config: Any) -> list[State]:
    return state_builder(**config).symbols(episode)


def test_the_first_state_knows_the_task_the_message_and_nothing_more() -> None:
    first = symbols(parallel_episode())[0]
    assert first.task == "book 2 seats"
    assert first.window == (Turn("user", "book 2 seats"),)
    assert (first.thought, first.history, first.group) == (None, (), ())
    assert (first.steps_used, first.errors, first.elapsed) == (0, 0, 0.0)
    assert first.mask == ("book", "clarify", "find", "pay", "respond")


def test_a_parallel_call_sees_the_calls_before_it_and_none_of_their_results() -> None:
    first, second = symbols(parallel_episode())[:2]
    assert second.group == (GroupCall("find", '{"n":2}'),)
    assert (second.window, second.history, second.thought) == (first.window, (), None)
    assert (second.steps_used, second.errors) == (1, 0)


def test_the_step_after_a_group_sees_all_its_results() -> None:
    third = symbols(parallel_episode())[2]
    assert third.history == (
        PastCall("find", "ok", None, '{"n":2}', "3 seats"),
        PastCall("book", "error", "not_found", '{"n":2}', "Error: not found"),
    )
    assert third.window[-2:] == (Turn("tool", "Error: not found"), Turn("tool", "3 seats"))
    assert (third.thought, third.errors, third.group, third.elapsed) == ("two at once", 1, (), 3.0)


def test_the_final_state_sees_the_whole_episode() -> None:
    final = symbols(parallel_episode())[-1]
    assert final.window[-1] == Turn("assistant", "Booked 2 seats.")
    assert final.history[-1] == PastCall("book", "ok", None, '{"n":2}', "booked")
    assert (final.thought, final.steps_used, final.errors) == ("again", 4, 1)


def test_window_and_history_keep_the_newest() -> None:
    final = symbols(parallel_episode(), window_turns=2, history=1)[-1]
    assert [turn.role for turn in final.window] == ["tool", "assistant"]
    assert final.history == (PastCall("book", "ok", None, '{"n":2}', "booked"),)
    assert final.task == "book 2 seats"


def test_a_call_is_pending_until_its_result_is_there_and_for_ever_without_one() -> None:
    builder = EpisodeBuilder()
    builder.turn("", [Call("find", {}, "late")], "x")
    builder.turn("", [Call("pay", {}, "never")], "x")
    builder.result("late", "Error: no", "x")
    builder.turn("done", [], "x")
    states = symbols(finish(builder))
    assert states[1].history == (PastCall("find", PENDING, None),)
    assert states[1].errors == 0
    assert states[2].history == (
        PastCall("find", "error", "other", "{}", "Error: no"),
        PastCall("pay", PENDING, None),
    )
    assert states[3].history == states[2].history
    assert states[3].errors == 1


def test_a_group_that_is_spread_over_several_messages_still_shows_no_result_of_its_own() -> None:
    episode = parallel_episode()
    steps = [replace(step, parallel_group=0) for step in episode.steps[:3]]
    states = symbols(replace(episode, steps=[*steps, episode.steps[3]]))
    assert [call.action for call in states[2].group] == ["find", "book"]
    assert states[2].window == states[0].window
    assert states[2].history == ()


def test_time_is_unknown_before_the_first_message_that_has_one() -> None:
    builder = EpisodeBuilder()
    builder.message("user", "hello", "x")
    builder.turn("hi", [], "x", created_at=T0)
    builder.turn("bye", [], "x")
    states = symbols(finish(builder))
    assert (states[0].elapsed, states[0].hour) == (None, None)
    assert (states[1].elapsed, states[1].hour) == (0.0, pytest.approx(T0 / 1e6 % 86_400 / 3600))


# The law.


def assert_blind_to_the_future(builder: StateBuilder, episode: Episode, chance: random.Random) -> None:
    states = builder.symbols(episode)
    for index, state in enumerate(states[:-1]):
        other = builder.symbols(with_another_future(episode, index, chance))[index]
        assert other == state
        assert (state_key(other), canonical_key(other)) == (state_key(state), canonical_key(state))


@given(episodes(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_no_state_depends_on_its_future(episode: Episode, chance: random.Random) -> None:
    assert_blind_to_the_future(state_builder(), episode, chance)


@pytest.mark.parametrize(
    "episode", [*real_episodes(12), parallel_episode()], ids=lambda episode: episode.episode_id[:6]
)
def test_no_state_of_a_real_episode_depends_on_its_future(episode: Episode) -> None:
    tools = {step.action for step in episode.steps if step.kind == "tool"}
    space = ActionSpace.build([(episode.format, None, [(tool, "tool", True) for tool in tools])])
    assert_blind_to_the_future(
        StateBuilder(StateConfig(), space, 8), episode, random.Random(episode.episode_id)
    )


@given(episodes())
@settings(max_examples=100, deadline=None)
def test_the_final_state_of_what_is_known_so_far_is_the_state_before_the_next_step(episode: Episode) -> None:
    """What serving sees: the episode up to now, with no decision yet."""
    for index, step in enumerate(episode.steps):
        if step.parallel_group is not None:
            continue
        unseen = [
            s if s.result_position is not None and s.result_position < step.position
            else replace(s, result=None, result_status="missing", error_class=None, result_position=None)
            for s in episode.steps[:index]
        ]  # fmt: skip
        so_far = replace(episode, messages=episode.messages[: step.position], steps=unseen)
        assert state_builder().symbols(so_far, episode.offered[index])[-1] == symbols(episode)[index]


# Keys.


def test_a_key_ignores_time_and_nothing_else() -> None:
    state = symbols(parallel_episode())[2]
    slow = (state.history[0]._replace(latency=9.0), *state.history[1:])
    assert state_key(replace(state, elapsed=None, hour=None, history=slow)) == state_key(state)
    for change in (
        {"task": "other"},
        {"window": state.window[1:]},
        {"thought": None},
        {"history": ()},
        {"group": (GroupCall("pay", "{}"),)},
        {"steps_used": 9},
        {"errors": 9},
        {"mask": ("respond",)},
        {"memory": Memory()},
        {"memory": state.memory._replace(said=("more",))},
        {"history": (state.history[0]._replace(result="4 seats"), state.history[1])},
        {"history": (state.history[0]._replace(arguments='{"n":3}'), state.history[1])},
    ):
        assert state_key(replace(state, **change)) != state_key(state)


def test_the_canonical_key_is_equal_for_states_that_differ_in_numbers_ids_and_names() -> None:
    one = State(
        "order 7", (Turn("user", "I am Mia, mia_1"),), "t 1", (), (GroupCall("pay", '{"n":1}'),), 0, 0, ()
    )
    two = State(
        "order 8", (Turn("user", "I am Bob, bob_2"),), "t 2", (), (GroupCall("pay", '{"n":2}'),), 0, 0, ()
    )
    assert state_key(one) != state_key(two)
    assert canonical_key(one) == canonical_key(two)
    assert canonical_key(replace(one, errors=1)) != canonical_key(one)


def test_keys_stay_what_they_were() -> None:
    """Keys are stored and compared across builds: a change here needs a word in the changelog."""
    state = symbols(parallel_episode())[2]
    assert state_key(state) == "e8f8e47b1ee3f1153303258026c2e319"
    assert canonical_key(state) == "21f64c3b1a54faee50edb68c880448de"


def test_states_can_be_set_members() -> None:
    assert len({*symbols(parallel_episode()), *symbols(parallel_episode(metadata='{"x":1}'))}) == 5
