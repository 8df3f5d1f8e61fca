"""States as numbers: the blocks of an observation, each with its named columns and the function that fills them.

Every row is computed on its own by elementwise operations, so a state's vector does not depend on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logforge.connectors.episodes import ERROR_CLASSES, SOFT_REFUSAL
from logforge.dataset.states.goal_summary import WHOLE, goal_of
from logforge.dataset.states.json_facts import ARGUMENT_COLUMNS, argument_digest
from logforge.dataset.states.memory import PENDING
from logforge.dataset.states.symbolic_state import State
from logforge.schemas import RESULT_STATUSES, UnknownName, Vocabulary
from logforge.texts import TextVectors

F32 = npt.NDArray[np.float32]
Fill = Callable[[F32, Sequence[State], TextVectors], None]
ROLES = ("system", "developer", "user", "assistant", "tool")
WINDOW_ROLES = ("user", "assistant", "tool")
STATUSES = (*RESULT_STATUSES, PENDING)
RESULT_COLUMNS = 8
"""So many numbers of a result's text vector does a slot of the history hold."""
_ERRORS = (*ERROR_CLASSES, SOFT_REFUSAL, None)
"""A soft refusal is no error: its status alone is among the columns."""
_DAY_S, _SLOW_S = 86_400, 600


class Field(NamedTuple):
    """A named run of columns."""

    name: str
    size: int
    meaning: str


class Block(NamedTuple):
    """Fields that belong together, how to fill their columns (zero at first), and which texts that takes."""

    fields: tuple[Field, ...]
    fill: Fill
    texts: Callable[[State], Iterable[str | None]] = lambda state: ()

    @property
    def size(self) -> int:
        """How many columns it has."""
        return sum(field.size for field in self.fields)


def task_block(size: int, goal: str) -> Block:
    """The task, or its summary of that name."""
    whole = "the task's text vector" if goal == WHOLE else f"text vector of the task's summary ({goal})"
    return _text_block(Field("task", size, whole), lambda state: goal_of(state.task, goal))


def thought_block(size: int) -> Block:
    """The last thought."""
    field = Field("thought", size, "text vector of the last thought logged before the decision")
    return _text_block(field, lambda state: state.thought)


def _text_block(field: Field, pick: Callable[[State], str | None]) -> Block:
    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        out[:] = lookup.matrix[[lookup.index(pick(state)) for state in states]]

    return Block((field,), fill, lambda state: (pick(state),))


def last_message_block(size: int) -> Block:
    """The last message and who wrote it."""
    text = _text_block(Field("last_message", size, "text vector of the last message known"), _last_content)
    role = Field("last_message.role", len(ROLES), f"who wrote it, one-hot: {', '.join(ROLES)}")

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        text.fill(out[:, :size], states, lookup)
        for row, state in enumerate(states):
            if state.window:
                out[row, size + _place(ROLES, state.window[-1].role, "role")] = 1.0

    return Block((*text.fields, role), fill, text.texts)


def _last_content(state: State) -> str | None:
    return state.window[-1].content if state.window else None


def window_block(size: int, turns: int, decay: float) -> Block:
    """The dialogue window: one mean per role, the newer the heavier."""
    meaning = f"mean text vector of the {{}} messages among the last {turns}, weighted {decay:g}^age"
    fields = tuple(Field(f"window.{role}", size, meaning.format(role)) for role in WINDOW_ROLES)

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        for place, role in enumerate(WINDOW_ROLES):
            rows = _window_rows(states, role, turns, lookup)
            _weighted_mean(out[:, place * size : (place + 1) * size], rows, decay, lookup.matrix)

    def texts(state: State) -> Iterable[str | None]:
        return (turn.content for turn in state.window if turn.role in WINDOW_ROLES)

    return Block(fields, fill, texts)


def _window_rows(
    states: Sequence[State], role: str, turns: int, lookup: TextVectors
) -> npt.NDArray[np.int64]:
    """Row of the text of each window message of that role, by age; 0 elsewhere."""
    rows = np.zeros((len(states), turns), np.int64)
    for row, state in enumerate(states):
        for age, turn in enumerate(reversed(state.window)):
            if turn.role == role:
                rows[row, age] = lookup.index(turn.content)
    return rows


def _weighted_mean(out: F32, rows: npt.NDArray[np.int64], decay: float, matrix: F32) -> None:
    total = np.zeros(len(rows), np.float32)
    for age in range(rows.shape[1]):
        weight = np.where(rows[:, age] > 0, np.float32(decay**age), np.float32(0))
        out += weight[:, None] * matrix[rows[:, age]]
        total += weight
    out /= np.where(total > 0, total, np.float32(1))[:, None]


def history_block(size: int, slots: int, vocabulary: Vocabulary) -> Block:
    """The last tool calls; slot 0 is the newest."""
    depth = min(RESULT_COLUMNS, size)
    parts = (
        ("action", vocabulary.size, "which action, one-hot over the vocabulary"),
        ("status", len(STATUSES), f"its status, one-hot: {', '.join(STATUSES)}"),
        ("error", len(ERROR_CLASSES), f"its error class, one-hot: {', '.join(ERROR_CLASSES)}"),
        ("present", 1, "1 when there is such a call"),
        ("latency", 1, f"log(1 + seconds until its result) / log(1 + {_SLOW_S}); 0 when unknown"),
        ("latency_known", 1, "1 when that time is known"),
        ("arguments", ARGUMENT_COLUMNS, "its arguments, keys and values by signed hash"),
        ("result", depth, f"the first {depth} numbers of its result's text vector"),
    )
    fields = tuple(
        Field(f"history.{slot}.{name}", count, f"tool call {slot + 1} back: {meaning}")
        for slot in range(slots)
        for name, count, meaning in parts
    )
    *starts, width = accumulate((count for _, count, _ in parts), initial=0)
    at = dict(zip((name for name, _, _ in parts), starts, strict=True))

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        placed = [
            (row, slot * width, call, _column(call.action, state, vocabulary))
            for row, state in enumerate(states)
            for slot, call in enumerate(reversed(state.history))
        ]
        if not placed:
            return
        calls = [call for _, _, call, _ in placed]
        rows, begin, action = (np.array([one[i] for one in placed]) for i in (0, 1, 3))
        out[rows, begin + at["action"] + action] = 1.0
        status = [_place(STATUSES, call.status, "result status") for call in calls]
        out[rows, begin + at["status"] + status] = 1.0
        error = np.array([_place(_ERRORS, call.error_class, "error class") for call in calls])
        failed = error < len(ERROR_CLASSES)
        out[rows[failed], (begin + at["error"] + error)[failed]] = 1.0
        out[rows, begin + at["present"]] = 1.0
        out[rows, begin + at["latency"]] = [_log_share(call.latency or 0.0, _SLOW_S) for call in calls]
        out[rows, begin + at["latency_known"]] = [call.latency is not None for call in calls]
        arguments = begin[:, None] + at["arguments"] + np.arange(ARGUMENT_COLUMNS)
        out[rows[:, None], arguments] = [argument_digest(call.arguments) for call in calls]
        results = [lookup.index(call.result) for call in calls]
        out[rows[:, None], begin[:, None] + at["result"] + np.arange(depth)] = lookup.matrix[results, :depth]

    return Block(fields, fill, lambda state: (call.result for call in state.history))


def group_block(vocabulary: Vocabulary) -> Block:
    """What the same parallel group has called so far."""

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        for row, state in enumerate(states):
            for call in state.group:
                out[row, _column(call.action, state, vocabulary)] = 1.0

    meaning = "actions called earlier in the same parallel group, multi-hot over the vocabulary"
    return Block((Field("group", vocabulary.size, meaning),), fill)


def mask_block(vocabulary: Vocabulary) -> Block:
    """The actions on offer."""

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        columns = {mask: [vocabulary.id(name) for name in mask] for mask in {state.mask for state in states}}
        for row, state in enumerate(states):
            out[row, columns[state.mask]] = 1.0

    return Block((Field("mask", vocabulary.size, "1 for each action on offer"),), fill)


def meta_block(budget: int) -> Block:
    """Counters and clocks."""
    fields = tuple(
        Field(f"meta.{name}", 1, meaning)
        for name, meaning in (
            ("steps_used", f"log(1 + steps used) / log(1 + {budget})"),
            ("budget_used", f"share used of a budget of {budget} steps, at most 1"),
            ("budget_left", "share left of it"),
            ("errors", f"log(1 + failed calls so far) / log(1 + {budget})"),
            ("elapsed", "log(1 + seconds since the first message) / log(1 + one day); 0 when unknown"),
            ("elapsed_known", "1 when the time elapsed is known"),
            ("hour_sin", "hour of day of the last message (UTC), sine; 0 when unknown"),
            ("hour_cos", "the same, cosine"),
            ("hour_known", "1 when the hour is known"),
        )
    )

    def fill(out: F32, states: Sequence[State], lookup: TextVectors) -> None:
        for row, state in enumerate(states):
            out[row] = _meta(state, budget)

    return Block(fields, fill)


def _meta(state: State, budget: int) -> tuple[float, ...]:
    used = min(1.0, state.steps_used / budget)
    angle = 0.0 if state.hour is None else state.hour / 24 * math.tau
    known = state.hour is not None
    return (
        _log_share(state.steps_used, budget),
        used,
        1.0 - used,
        _log_share(state.errors, budget),
        _log_share(state.elapsed or 0.0, _DAY_S),
        float(state.elapsed is not None),
        math.sin(angle),
        math.cos(angle) if known else 0.0,
        float(known),
    )


def _log_share(value: float, whole: float) -> float:
    return math.log1p(value) / math.log1p(whole)


def _column(action: str, state: State, vocabulary: Vocabulary) -> int:
    """A call outside the mask is a hallucinated tool. (The step's own `action_valid` may rest on its result.)"""
    return vocabulary.id(action) if vocabulary.name(action) in state.mask else vocabulary.invalid


def _place(names: tuple[str | None, ...], name: str | None, kind: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        known = [one for one in names if one is not None]
        raise UnknownName(kind, str(name), known) from None
