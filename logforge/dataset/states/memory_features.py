"""The columns of what is remembered of the whole episode (logforge/dataset/states/memory.py): block `memory`.

The answers of a large vocabulary do not get columns each: they are laid over each other in a fixed width, with signs drawn by
hash (a count sketch, Charikar et al. 2002), so that the few answers that an episode holds hardly meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from logforge.dataset.states.features import F32, Block, Field
from logforge.dataset.states.json_facts import fact_columns
from logforge.dataset.states.memory import FAILURES
from logforge.dataset.states.symbolic_state import State
from logforge.schemas import Vocabulary
from logforge.texts import TextVectors

_USER = " user"
"""No action is called so."""
_NUMBERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def memory_block(
    size: int, vocabulary: Vocabulary, budget: int, answer_size: int, columns: int, facts: int
) -> Block:
    """What each action last answered, and what the user said since their first message; nothing is forgotten.

    An answer is told by the first `answer_size` numbers of its text vector, and all of them together by at most `columns`;
    besides, what it says word for word is told by `facts` columns of truth values: a text that comes again is known at once,
    one that never came before is known by its vector alone.
    """
    actions, depth = vocabulary.size, min(answer_size, size)
    width = min(columns, actions * depth)
    places, signs = _places(actions, depth, width)
    shared = "" if width == actions * depth else ", sharing columns by hash"
    fields = (
        Field("memory.calls", actions, f"per action: log(1 + times taken) / log(1 + {budget})"),
        Field("memory.recent", actions, "per action: 1 / (1 + steps since it was last taken); 0 when never"),
        Field("memory.failed", actions, f"per action: 1 when its last result was one of {', '.join(sorted(FAILURES))}"),
        Field("memory.answered", actions, "per action: 1 when there is an answer that was no failure"),
        Field("memory.answer", width, f"that answer's text vector, its first {depth} numbers, action by action{shared}"),
        Field("memory.facts", facts, "1 for each leaf of these answers and each later text of the user, masked, by hash"),
        Field("memory.said_most", size, "the largest number in each place of the text vectors of what the user said later"),
        Field("memory.said_least", size, "the smallest, likewise"),
    )  # fmt: skip

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        rows, ids, calls, since, failed, answers = _codes(states, vocabulary, lookup)
        counts = np.log1p(calls) / math.log1p(budget)
        np.add.at(out[:, :actions], (rows, ids), counts.astype(np.float32))
        np.maximum.at(out[:, actions : 2 * actions], (rows, ids), (1 / (1 + since)).astype(np.float32))
        out[rows[failed], 2 * actions + ids[failed]] = 1.0
        known = answers > 0
        rows, ids, answers = rows[known], ids[known], answers[known]
        out[rows, 3 * actions + ids] = 1.0
        told = out[:, 4 * actions : 4 * actions + width]
        np.add.at(told, (rows[:, None], places[ids]), lookup.matrix[answers, :depth] * signs[ids])
        told, pooled = np.split(out[:, 4 * actions + width :], [facts], axis=1)
        _tell(told, states)
        _pool(pooled, states, lookup)

    return Block(fields, fill, _texts)


def _texts(state: State) -> Iterable[str | None]:
    return (*(known.answer for known in state.memory.actions), *state.memory.said)


def _codes(
    states: Sequence[State], vocabulary: Vocabulary, lookup: TextVectors
) -> tuple[npt.NDArray[np.int64], ...]:
    """Row, action's id, times taken, steps since, whether it failed, and the answer's row of the text vectors, of each action
    that a state remembers."""
    ids = {known.action for state in states for known in state.memory.actions}
    place = {name: vocabulary.id(name) if name in vocabulary else vocabulary.invalid for name in ids}
    found = [
        (row, place[k.action], k.calls, state.steps_used - k.last - 1, k.status in FAILURES, lookup.index(k.answer))
        for row, state in enumerate(states)
        for k in state.memory.actions
    ]  # fmt: skip
    columns = np.array(found, np.int64).reshape(-1, 6).T
    rows, actions, calls, since, failed, answers = columns
    return rows, actions, calls, since, failed.astype(np.bool_), answers


def _tell(out: F32, states: Sequence[State]) -> None:
    """What is said word for word."""
    facts = out.shape[1]
    rows: list[int] = []
    columns: list[int] = []
    for row, state in enumerate(states):
        texts = [(known.action, known.answer) for known in state.memory.actions]
        texts += [(_USER, text) for text in state.memory.said]
        for who, text in texts:
            if text:
                found = fact_columns(who, text, facts)
                columns += found
                rows += [row] * len(found)
    out[rows, columns] = 1.0


def _pool(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
    """Largest and smallest numbers over what the user said; each distinct list is looked at once."""
    size = lookup.size
    kinds: dict[tuple[str, ...], int] = {(): 0}
    kind = [kinds.setdefault(state.memory.said, len(kinds)) for state in states]
    pooled = np.zeros((len(kinds), 2 * size), np.float32)
    for said, row in kinds.items():
        if said:
            vectors = lookup.matrix[[lookup.index(text) for text in said]]
            vectors.max(axis=0, out=pooled[row, :size])
            vectors.min(axis=0, out=pooled[row, size:])
    out[:] = pooled[kind]


def _places(actions: int, depth: int, width: int) -> tuple[npt.NDArray[np.int64], F32]:
    """The column and sign of each number of each action's answer [actions, depth]: apart where there is room, else by hash."""
    number = np.arange(actions * depth, dtype=np.uint64).reshape(actions, depth)
    if width == actions * depth:
        return number.astype(np.int64), np.ones((actions, depth), np.float32)
    first, second, third = _NUMBERS
    mixed = (number + np.uint64(1)) * first  # SplitMix64 (Steele et al. 2014)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * second
    mixed = (mixed ^ (mixed >> np.uint64(27))) * third
    mixed ^= mixed >> np.uint64(31)
    signs = np.where(mixed >> np.uint64(63), np.float32(1), np.float32(-1))
    return (mixed % np.uint64(width)).astype(np.int64), signs
