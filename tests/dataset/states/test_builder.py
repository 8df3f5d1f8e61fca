"""Vectors: their layout, what each column says, and that they are as blind to the future as the symbols."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import EpisodeBuilder
from logforge.connectors.episodes.outcome import ERROR_CLASSES
from logforge.dataset.states.builder import State, StateBuilder
from logforge.dataset.states.config import BLOCKS, StateConfig
from logforge.dataset.states.features import STATUSES
from logforge.dataset.states.symbolic_state import GroupCall, PastCall, Turn
from logforge.dataset.states.tool_history import NO_CALL, history_ids
from logforge.schemas.episode import Episode
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.texts.encoders import TextVectors
from logforge.texts.hashing import HashingEncoder
from support.made_episodes import episodes, finish, parallel_episode, state_builder, with_another_future


def looked_up(builder: StateBuilder, states: list[State]) -> TextVectors:
    """Invented vectors that depend on the text alone."""
    texts = sorted(builder.texts(states))
    rows = [np.random.default_rng(list(text.encode())).normal(size=builder.text_size) for text in texts]
    matrix = np.vstack([np.zeros(builder.text_size), *rows]).astype(np.float32)
    return TextVectors({text: row for row, text in enumerate(texts, 1)}, matrix)


def columns(builder: StateBuilder, state: State) -> dict[str, np.ndarray[Any, Any]]:
    """The named slices of one state's vector."""
    vector = builder.vectors([state], looked_up(builder, [state]))[0]
    return {part.name: vector[part.start : part.stop] for part in builder.layout()}


def state(**changes: Any) -> State:
    plain = {
        "task": "t",
        "window": (),
        "thought": None,
        "history": (),
        "group": (),
        "steps_used": 0,
        "errors": 0,
    }
    return State(**{**plain, "mask": ("find", "respond"), **changes})


def test_the_layout_has_named_meant_slices_without_gaps() -> None:
    builder = state_builder()
    layout = builder.layout()
    assert layout[0].start == 0
    assert (
        layout[-1].stop == builder.size == builder.vectors([state()], looked_up(builder, [state()])).shape[1]
    )
    assert all(one.stop == two.start for one, two in pairwise(layout))
    assert len({part.name for part in layout}) == len(layout)
    assert all(part.meaning for part in layout)
    names = {part.name.split(".")[0] for part in layout}
    assert names == set(BLOCKS)


def test_texts_are_looked_up_where_they_belong() -> None:
    builder = state_builder()
    given_state = state(window=(Turn("user", "hello"), Turn("tool", "found")), thought="hm")
    lookup, found = looked_up(builder, [given_state]), columns(builder, given_state)
    for name, text in {"task": "t", "last_message": "found", "thought": "hm", "window.user": "hello"}.items():
        np.testing.assert_allclose(found[name], lookup.matrix[lookup.index(text)], rtol=1e-6)
    assert found["last_message.role"].tolist() == [0, 0, 0, 0, 1]
    assert not found["window.assistant"].any()


def test_the_window_mean_weighs_by_age_and_leaves_blank_texts_out() -> None:
    builder = state_builder(decay=0.5)
    given_state = state(
        window=(Turn("user", "a"), Turn("assistant", "x"), Turn("user", ""), Turn("user", "b"))
    )
    lookup = looked_up(builder, [given_state])
    a, b = lookup.matrix[lookup.index("a")], lookup.matrix[lookup.index("b")]
    expected = (0.125 * a + b) / 1.125
    np.testing.assert_allclose(columns(builder, given_state)["window.user"], expected, rtol=1e-5)


def test_history_is_one_hot_with_the_newest_call_first() -> None:
    builder = state_builder(history=3)
    calls = (PastCall("find", "error", "not_found"), PastCall("made_up", "pending", None))
    found = columns(builder, state(history=calls))
    vocabulary = builder.space.vocabulary
    assert np.flatnonzero(found["history.0.action"]).tolist() == [vocabulary.invalid]
    assert np.flatnonzero(found["history.0.status"]).tolist() == [STATUSES.index("pending")]
    assert not found["history.0.error"].any()
    assert np.flatnonzero(found["history.1.action"]).tolist() == [vocabulary.id("find")]
    assert np.flatnonzero(found["history.1.error"]).tolist() == [ERROR_CLASSES.index("not_found")]
    assert [found[f"history.{slot}.present"][0] for slot in range(3)] == [1, 1, 0]
    assert not found["history.2.action"].any()


def test_the_history_comes_as_ids_too() -> None:
    builder = state_builder(history=3)
    calls = (PastCall("find", "error", "not_found"), PastCall("book", "ok", None))
    some = [state(history=calls), state()]
    vectors = builder.vectors(some, looked_up(builder, some))
    names = builder.space.vocabulary.actions
    ids = history_ids(vectors, builder.layout())
    assert [[names[one] if one >= 0 else None for one in row] for row in ids] == [
        ["book" if "book" in some[0].mask else "<invalid>", "find", None],
        [None, None, None],
    ]
    failed = history_ids(vectors, builder.layout(), "error")
    assert failed.tolist() == [[NO_CALL, ERROR_CLASSES.index("not_found"), NO_CALL], [NO_CALL] * 3]
    with pytest.raises(UsageError, match="no columns history"):
        history_ids(vectors, [part for part in builder.layout() if not part.name.startswith("history")])


def test_the_task_is_the_same_in_every_state_long_after_it_left_the_window() -> None:
    made = EpisodeBuilder()
    made.message("user", "book 2 seats", "x:1")
    for number in range(30):
        made.turn(f"is it {number}?", [], f"x:{number}a")
        made.message("user", f"no, {number}", f"x:{number}b")
    builder = state_builder(window_turns=4)
    states = builder.symbols(finish(made, task="book 2 seats"))
    vectors = builder.vectors(states, looked_up(builder, states))
    part = next(one for one in builder.layout() if one.name == "task")
    assert len(states) > 29
    assert all(turn.content != "book 2 seats" for turn in states[-1].window)
    assert vectors[0, part.start : part.stop].any()
    assert (vectors[:, part.start : part.stop] == vectors[0, part.start : part.stop]).all()


@given(st.integers(-3_000, 3_000))
def test_another_date_gives_the_same_vectors(days: int) -> None:
    """The clock is in a state as the hour of the day alone: a date would let a policy learn episodes by heart."""
    builder = state_builder()
    episode = parallel_episode()
    later = [
        one
        if one.created_at is None
        else msgspec.structs.replace(one, created_at=one.created_at + days * 86_400_000_000)
        for one in episode.messages
    ]
    moved = msgspec.structs.replace(episode, messages=type(episode.messages)(later))
    found = [builder.symbols(one) for one in (episode, moved)]
    one, other = (builder.vectors(states, looked_up(builder, states)) for states in found)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_known_tool_that_was_not_on_offer_counts_as_invalid() -> None:
    builder = state_builder()
    found = columns(builder, state(history=(PastCall("pay", "ok", None),)))
    assert np.flatnonzero(found["history.0.action"]).tolist() == [builder.space.vocabulary.invalid]


def test_group_and_mask_are_multi_hot() -> None:
    builder = state_builder()
    find, respond = (builder.space.vocabulary.id(name) for name in ("find", "respond"))
    found = columns(builder, state(group=(GroupCall("find", "{}"), GroupCall("find", "{}"))))
    assert np.flatnonzero(found["group"]).tolist() == [find]
    assert set(found["group"]) == {0, 1}
    assert set(np.flatnonzero(found["mask"])) == {find, respond}


def test_meta_counts_steps_errors_and_time() -> None:
    builder = state_builder(step_budget=10)
    found = columns(builder, state(steps_used=4, errors=1, elapsed=60.0, hour=6.0))
    assert found["meta.steps_used"][0] == pytest.approx(math.log(5) / math.log(11))
    assert found["meta.budget_used"][0] == pytest.approx(0.4)
    assert found["meta.budget_left"][0] == pytest.approx(0.6)
    assert found["meta.errors"][0] == pytest.approx(math.log(2) / math.log(11))
    assert found["meta.elapsed"][0] == pytest.approx(math.log(61) / math.log(86_401))
    assert [found[f"meta.{name}"][0] for name in ("hour_sin", "hour_known", "elapsed_known")] == [1, 1, 1]
    assert found["meta.hour_cos"][0] == pytest.approx(0, abs=1e-6)


def test_unknown_time_is_zero_with_its_flag_down_and_the_budget_is_clipped() -> None:
    found = columns(state_builder(step_budget=10), state(steps_used=99))
    names = ("elapsed", "elapsed_known", "hour_sin", "hour_cos", "hour_known", "budget_left")
    assert [found[f"meta.{name}"][0] for name in names] == [0] * 6
    assert found["meta.budget_used"][0] == 1


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_can_be_left_out(block: str) -> None:
    kept = tuple(name for name in BLOCKS if name != block)
    builder, full = state_builder(blocks=kept[::-1]), state_builder()
    assert [p.name for p in builder.layout()] == [
        p.name for p in full.layout() if p.name.split(".")[0] != block
    ]
    states = full.symbols(parallel_episode())
    assert builder.symbols(parallel_episode()) == states
    whole, part = (
        full.vectors(states, looked_up(full, states)),
        builder.vectors(states, looked_up(full, states)),
    )
    by_name = {p.name: whole[:, p.start : p.stop] for p in full.layout()}
    for p in builder.layout():
        np.testing.assert_array_equal(part[:, p.start : p.stop], by_name[p.name])


def test_only_texts_of_the_blocks_in_use_are_asked_for() -> None:
    given_state = state(
        window=(Turn("system", "rules"), Turn("user", "hello"), Turn("tool", " \n")), thought="hm"
    )
    assert state_builder().texts([given_state]) == {"t", "hello", "hm"}
    assert state_builder(blocks=("thought",)).texts([given_state]) == {"hm"}
    assert state_builder(blocks=("meta", "mask")).texts([given_state]) == set()


@given(st.lists(episodes(), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_vectors_are_finite_and_a_row_does_not_depend_on_the_others(several: list[Episode]) -> None:
    builder = state_builder(text_size=4)
    states = [one for episode in several for one in builder.symbols(episode)]
    lookup = looked_up(builder, states)
    vectors = builder.vectors(states, lookup)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    for row, one in zip(vectors, states, strict=True):
        assert builder.vectors([one], lookup)[0].tobytes() == row.tobytes()


def encoded(builder: StateBuilder, states: list[State]) -> np.ndarray[Any, Any]:
    """With the hashing encoder, from only the texts that these states need."""
    texts = sorted(builder.texts(states))
    encoder = HashingEncoder()
    matrix = np.vstack([np.zeros((1, encoder.dim), np.float32), *([encoder.encode(texts)] if texts else [])])
    return builder.vectors(states, TextVectors({text: row for row, text in enumerate(texts, 1)}, matrix))


@given(episodes(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_no_vector_depends_on_its_future(episode: Episode, chance: random.Random) -> None:
    builder = state_builder(text_size=512)
    vectors = encoded(builder, builder.symbols(episode))
    index = chance.randrange(len(episode.steps))
    other = encoded(builder, builder.symbols(with_another_future(episode, index, chance)))
    assert other[index].tobytes() == vectors[index].tobytes()


def test_an_empty_list_of_states_gives_no_rows() -> None:
    builder = state_builder()
    assert builder.vectors([], looked_up(builder, [])).shape == (0, builder.size)


def test_vectors_of_another_size_are_refused() -> None:
    with pytest.raises(Mismatch, match="expected 8, found 4"):
        state_builder(text_size=8).vectors([state()], looked_up(state_builder(text_size=4), [state()]))


def test_a_text_without_a_vector_is_refused() -> None:
    builder = state_builder()
    with pytest.raises(UsageError, match="no vector for the text 'else'"):
        builder.vectors([state(task="else")], looked_up(builder, [state()]))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"window": (Turn("narrator", "x"),)}, "role"),
        ({"history": (PastCall("find", "odd", None),)}, "result status"),
        ({"history": (PastCall("find", "error", "odd"),)}, "error class"),
    ],
)
def test_words_outside_their_set_are_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown {word}"):
        columns(state_builder(), state(**change))


def test_a_config_survives_its_dictionary() -> None:
    config = StateConfig(window_turns=3, blocks=("mask", "task"))
    assert config.blocks == ("task", "mask")
    assert StateConfig.from_dict(config.to_dict()) == config
    assert StateConfig.from_dict({}) == StateConfig()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"window_turn": 3}, "unknown state setting 'window_turn'. did you mean 'window_turns'"),
        ({"blocks": ["tasks"]}, "unknown state block 'tasks'. did you mean 'task'"),
        ({"blocks": []}, "no state block is left"),
        ({"blocks": "task"}, "give a list of names"),
        ({"history": 0}, "history is 0"),
        ({"step_budget": 1.5}, "step_budget is 1.5"),
        ({"decay": 0}, "decay is 0"),
        ({"decay": "high"}, "decay is 'high'"),
    ],
)
def test_wrong_settings_are_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        StateConfig.from_dict(data)
