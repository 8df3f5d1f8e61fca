"""A State as text that a language model reads, and back: the text holds every symbol, so nothing is lost on the way.

One line per fact. Texts of the log are JSON strings, arguments are the JSON text that they are; so whatever a log says, it
can not pass for a line of the template. A change of the wording takes a new TEMPLATE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Never, TypeVar

from logforge.dataset.states.memory import Memory, Remembered
from logforge.dataset.states.symbolic_state import GroupCall, PastCall, State, Turn
from logforge.schemas import InputError, Mismatch

TEMPLATE: Final = "logforge-state/1"
"""The first line of every text; stable as long as the wording is."""

_Item = TypeVar("_Item")
_NONE = "none"
_WORD = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_TEXT = json.JSONEncoder(ensure_ascii=False)
_JSON = json.JSONDecoder()
_REMEDY = "give a text that state_text made, unchanged"


def state_text(state: State) -> str:
    """The state in words. `parse_state` gives the same state back."""
    return "\n".join(_lines(state)) + "\n"


def _lines(state: State) -> Iterator[str]:
    yield TEMPLATE
    yield f"The task: {_text(state.task)}"
    yield f"Decisions so far: {state.steps_used}"
    yield f"Failed calls so far: {state.errors}"
    yield f"Seconds since the first message: {_number(state.elapsed)}"
    yield f"Hour of the day (UTC): {_number(state.hour)}"
    yield "The last messages, oldest first:"
    yield from (f"- {_word(turn.role)}: {_text(turn.content)}" for turn in state.window)
    yield f"The last thought: {_text(state.thought)}"
    yield "The last tool calls, oldest first:"
    yield from map(_past, state.history)
    yield "Called so far in the same parallel group:"
    yield from (f"- {_word(call.action)} with {_arguments(call.arguments)}" for call in state.group)
    yield "Remembered of each action:"
    yield from map(_remembered, state.memory.actions)
    yield "What the user said after their first message:"
    yield from (f"- {_text(said)}" for said in state.memory.said)
    yield "Actions on offer:"
    yield from (f"- {_word(name)}" for name in state.mask)


def _past(call: PastCall) -> str:
    return (
        f"- {_word(call.action)} with {_arguments(call.arguments)}: {_word(call.status)}, error {_text(call.error_class)}, "
        f"result {_text(call.result)}, seconds {_number(call.latency)}"
    )


def _remembered(known: Remembered) -> str:
    return (
        f"- {_word(known.action)}: times {known.calls}, last as decision {known.last}, {_word(known.status)}, "
        f"last answer {_text(known.answer)}"
    )


def _word(name: str) -> str:
    """A name as it is, or in quotes where it is no plain word."""
    return name if _WORD.fullmatch(name) and name != _NONE else _TEXT.encode(name)


def _text(text: str | None) -> str:
    return _NONE if text is None else _TEXT.encode(text)


def _number(value: float | None) -> str:
    return _NONE if value is None else repr(value)


def _arguments(text: str) -> str:
    """JSON text as it is; text that is none, or that goes over lines, in quotes after `text`."""
    try:
        plain = "\n" not in text and _JSON.raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        plain = False
    return text if plain else f"text {_TEXT.encode(text)}"


def parse_state(text: str) -> State:
    """The state of a text that `state_text` made. Raises Mismatch for another template, InputError for a text that is none."""
    template, _, rest = text.partition("\n")
    if template != TEMPLATE:
        raise Mismatch("template of the state's text", TEMPLATE, template[:80], _REMEDY)
    return _Reader(rest).state()


class _Reader:
    """Reads what `_lines` writes, in its order."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0

    def state(self) -> State:
        facts: dict[str, Any] = {
            "task": self._line("The task: ", self._text_or_none),
            "steps_used": self._line("Decisions so far: ", self._whole),
            "errors": self._line("Failed calls so far: ", self._whole),
            "elapsed": self._line("Seconds since the first message: ", self._float),
            "hour": self._line("Hour of the day (UTC): ", self._float),
            "window": self._list("The last messages, oldest first:", self._turn),
            "thought": self._line("The last thought: ", self._text_or_none),
            "history": self._list("The last tool calls, oldest first:", self._past),
            "group": self._list("Called so far in the same parallel group:", self._call),
        }
        actions = self._list("Remembered of each action:", self._remembered)
        said = self._list("What the user said after their first message:", self._string)
        mask = self._list("Actions on offer:", self._word)
        if self._place != len(self._text):
            self._refuse("the end")
        return State(**facts, memory=Memory(actions, said), mask=mask)

    def _turn(self) -> Turn:
        return Turn(self._word(), self._after(": ", self._text_or_none))

    def _call(self) -> GroupCall:
        return GroupCall(self._word(), self._after(" with ", self._arguments))

    def _past(self) -> PastCall:
        action, arguments = self._call()
        return PastCall(
            action,
            arguments=arguments,
            status=self._after(": ", self._word),
            error_class=self._after(", error ", self._text_or_none),
            result=self._after(", result ", self._text_or_none),
            latency=self._after(", seconds ", self._float),
        )

    def _remembered(self) -> Remembered:
        return Remembered(
            self._word(),
            calls=self._after(": times ", self._whole),
            last=self._after(", last as decision ", self._whole),
            status=self._after(", ", self._word),
            answer=self._after(", last answer ", self._text_or_none),
        )

    def _line(self, label: str, read: Callable[[], _Item]) -> _Item:
        item = self._after(label, read)
        self._skip("\n")
        return item

    def _list(self, label: str, read: Callable[[], _Item]) -> tuple[_Item, ...]:
        self._skip(f"{label}\n")
        found = []
        while self._text.startswith("- ", self._place):
            found.append(self._line("- ", read))
        return tuple(found)

    def _after(self, label: str, read: Callable[[], _Item]) -> _Item:
        self._skip(label)
        return read()

    def _skip(self, label: str) -> None:
        if not self._text.startswith(label, self._place):
            self._refuse(repr(label))
        self._place += len(label)

    def _word(self) -> str:
        found = _WORD.match(self._text, self._place)
        if found is None:
            return self._string()
        self._place = found.end()
        return found[0]

    def _text_or_none(self) -> str | None:
        return None if self._is_none() else self._string()

    def _is_none(self) -> bool:
        there = self._text.startswith(_NONE, self._place)
        self._place += len(_NONE) if there else 0
        return there

    def _string(self) -> str:
        return str(self._value("a text in quotes", str))

    def _whole(self) -> int:
        return int(self._value("a whole number", int))

    def _float(self) -> float | None:
        return None if self._is_none() else float(self._value("a number", float, int))

    def _arguments(self) -> str:
        if self._text.startswith("text ", self._place):
            return self._after("text ", self._string)
        start = self._place
        self._value("JSON")
        return self._text[start : self._place]

    def _value(self, what: str, *kinds: type) -> Any:
        """The JSON value here, of one of these types (of any, when none is named)."""
        try:
            value, end = _JSON.raw_decode(self._text, self._place)
        except (ValueError, RecursionError):
            self._refuse(what)
        if kinds and type(value) not in kinds:
            self._refuse(what)
        self._place = end
        return value

    def _refuse(self, expected: str) -> Never:
        line = self._text.count("\n", 0, self._place) + 2
        found = self._text[self._place : self._place + 40]
        raise InputError("state", f"expected {expected}, found {found!r}", line=line, remedy=_REMEDY)
