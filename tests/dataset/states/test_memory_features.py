"""The columns of what is remembered: apart where there is room, laid over each other where there is not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from logforge.dataset.states.memory import Memory, Remembered
from logforge.dataset.states.memory_features import memory_block
from logforge.dataset.states.symbolic_state import State
from logforge.schemas.manifest import Vocabulary
from logforge.texts.encoders import TextVectors

VOCABULARY = Vocabulary.build(["find", "pay"])
LOOKUP = TextVectors(
    {"a": 1, "b": 2, "c": 3}, np.array([[0, 0, 0], [1, 2, 3], [-1, 5, 0], [4, 4, -4]], np.float32)
)


def filled(*memories: Memory, vocabulary=VOCABULARY, columns=512, answer_size=2, facts=64):
    block = memory_block(3, vocabulary, 10, answer_size, columns, facts)
    out = np.zeros((len(memories), block.size), np.float32)
    states = [State(None, (), None, (), (), 6, 0, (), memory) for memory in memories]
    block.fill(out, states, LOOKUP)
    edges = np.cumsum([field.size for field in block.fields])[:-1]
    names = [field.name.removeprefix("memory.") for field in block.fields]
    return dict(zip(names, np.split(out, edges, axis=1), strict=True))


def test_each_action_has_its_count_its_age_its_failure_and_its_answer():
    known = (Remembered("find", 3, 5, "ok", "a"), Remembered("pay", 1, 2, "error", "b"))
    found = filled(Memory(known))
    find, pay = VOCABULARY.id("find"), VOCABULARY.id("pay")
    assert found["calls"][0, [find, pay]] == pytest.approx(
        [math.log(4) / math.log(11), math.log(2) / math.log(11)]
    )
    assert found["recent"][0, [find, pay]] == pytest.approx([1, 1 / 4])
    assert np.flatnonzero(found["failed"][0]).tolist() == [pay]
    assert np.flatnonzero(found["answered"][0]).tolist() == [find, pay]
    answers = found["answer"][0].reshape(VOCABULARY.size, 2)
    assert answers[find].tolist() == [1, 2]
    assert answers[pay].tolist() == [-1, 5]
    assert np.count_nonzero(answers) == 4


def test_what_the_user_said_is_pooled_and_not_averaged():
    found = filled(Memory((), ("a", "b")), Memory(), Memory((), ("c",)))
    assert found["said_most"].tolist() == [[1, 5, 3], [0, 0, 0], [4, 4, -4]]
    assert found["said_least"].tolist() == [[-1, 2, 0], [0, 0, 0], [4, 4, -4]]


def test_a_fact_is_told_by_whom_and_masked():
    lookup_free = [
        Memory((Remembered("find", 1, 1, "ok", "a"),)),
        Memory((Remembered("pay", 1, 1, "ok", "a"),)),
        Memory((), ("a",)),
        Memory((), ("a", "a")),
        Memory(),
    ]
    facts = filled(*lookup_free)["facts"]
    assert facts.sum(axis=1).tolist() == [1, 1, 1, 1, 0]
    assert len({int(row.argmax()) for row in facts[:3]}) == 3
    assert facts[2].tolist() == facts[3].tolist()


def test_what_is_no_tool_counts_as_invalid_once_or_more():
    found = filled(Memory((Remembered("odd", 1, 1, "error", None), Remembered("other", 1, 4, "ok", None))))
    invalid = VOCABULARY.invalid
    assert found["calls"][0, invalid] == pytest.approx(2 * math.log(2) / math.log(11))
    assert found["recent"][0, invalid] == pytest.approx(1 / 2)
    assert found["failed"][0, invalid] == 1
    assert not found["answered"].any()


def test_a_large_vocabulary_shares_columns_and_still_tells_answers_apart():
    tools = [f"tool{number}" for number in range(300)]
    vocabulary = Vocabulary.build(tools)
    rows = [Memory((Remembered(tool, 1, 1, "ok", text),)) for tool in tools for text in "ab"]
    answers = filled(*rows, vocabulary=vocabulary, columns=64)["answer"]
    assert answers.shape == (600, 64)
    assert len(np.unique(answers, axis=0)) > 550
    together = filled(Memory(rows[0].actions + rows[9].actions), vocabulary=vocabulary, columns=64)["answer"]
    np.testing.assert_array_equal(together[0], answers[0] + answers[9])
