"""One row of a step table: its columns by Gymnasium's names and their synonyms, and what its cells mean.

Cells of a CSV file are text, so a number, a flag or an object may be text here; an empty cell and NaN are no value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from logforge.connectors.episodes import micros, text_or_none
from logforge.connectors.records import NotJson, at, canonical, loads
from logforge.schemas import CLARIFY, RESPOND, StepKind

COLUMNS = {
    "episode": ("episode_id", "episode", "trajectory_id"),
    "step": ("step", "timestep", "t"),
    "observation": ("observation", "obs"),
    "action": ("action",),
    "arguments": ("arguments", "action_arguments", "args", "parameters"),
    "said": ("text", "utterance"),
    "thought": ("thought", "reasoning"),
    "reward": ("reward",),
    "propensity": ("action_prob",),
    "score": ("score", "final_score", "final_reward", "episode_score"),
    "terminated": ("terminated", "terminal", "done"),
    "truncated": ("truncated", "is_truncated", "timeout"),
    "next": ("next_observation", "next_obs"),
    "task": ("task", "instruction", "goal"),
    "task_id": ("task_id",),
    "success": ("success", "is_success"),
    "person": ("demonstrator", "annotator", "player"),
    "user": ("user_id",),
    "model": ("model",),
    "time": ("timestamp", "created_at"),
}
"""What a column may be called, by what it holds; the first name that a row has is taken."""
NO_STEP = "row without an observation and an action"
SPEAKING: dict[str, StepKind] = {RESPOND: "respond", CLARIFY: "clarify"}
"""Actions that call no tool."""
_NAMES = ("name", "tool", "function", "action", "type")
_ARGUMENTS = ("arguments", "args", "parameters", "kwargs", "input")
_WORDS = ("text", "content", "message")
_TRUE = frozenset({"true", "1", "1.0", "yes", "t"})
_FALSE = frozenset({"false", "0", "0.0", "no", "f"})


@lru_cache(maxsize=256)
def _columns(names: tuple[str, ...]) -> dict[str, str]:
    """What the columns of a table are called, by what they hold."""
    found = {column: next((key for key in keys if key in names), None) for column, keys in COLUMNS.items()}
    return {column: key for column, key in found.items() if key is not None}


class Cell(NamedTuple):
    """A value and the locator of where it stands."""

    value: Any
    where: str


class Choice(NamedTuple):
    """What a row's action decided. `unreadable` says why it cannot be told."""

    name: str
    arguments: Any = None
    said: Cell | None = None
    unreadable: str = ""


@dataclass(frozen=True)
class StepRow:
    """A row, where it stands, how many rows before it could not be read, and its canonical text."""

    cells: dict[str, Any]
    where: str
    holes: int
    text: str

    @cached_property
    def _keys(self) -> dict[str, str]:
        return _columns(tuple(self.cells))

    def value(self, column: str) -> Any:
        """The value of a column by what it holds; None where there is none."""
        key = self._keys.get(column)
        return None if key is None else given(self.cells[key])

    def get(self, column: str) -> Cell:
        """The cell of a column by what it holds; its value is None where there is none."""
        key = self._keys.get(column)
        if key is None:
            return Cell(None, self.where)
        return Cell(given(self.cells[key]), self.place(key))

    def place(self, key: str) -> str:
        """Where the cell of a key stands."""
        return at(self.where, f"/{key.replace('~', '~0').replace('/', '~1')}")

    @cached_property
    def number(self) -> int | None:
        """The row's step number."""
        number = number_of(self.value("step"))
        return int(number) if number is not None and number.is_integer() else None

    @cached_property
    def time(self) -> int | None:
        """When it was, in microseconds since 1970."""
        value = self.value("time")
        value = value.isoformat() if hasattr(value, "isoformat") else value
        found = micros(value)
        return micros(number_of(value)) if found is None and isinstance(value, str) else found

    @cached_property
    def info(self) -> dict[str, Any]:
        """Gymnasium's `info`."""
        found = parsed(self.cells.get("info"))
        return found if isinstance(found, dict) else {}

    @property
    def others(self) -> dict[str, Any]:
        """The columns that have no meaning here."""
        used = set(self._keys.values())
        return {
            key: value for key, value in self.cells.items() if key not in used and given(value) is not None
        }

    @cached_property
    def choice(self) -> Choice | None:
        """What the action decided; None when the row has none (the last observation of an episode)."""
        action, arguments = parsed(self.value("action")), parsed(self.value("arguments"))
        if action is None:
            return None
        if isinstance(action, dict):
            key = next((key for key in _NAMES if isinstance(action.get(key), str) and action[key]), None)
            if key is None:
                return Choice("", unreadable="an object without a name")
            rest = {k: v for k, v in action.items() if k != key}
            inner = next((rest[name] for name in _ARGUMENTS if name in rest), rest or None)
            return Choice(action[key], inner if arguments is None else arguments, self._said(None))
        if isinstance(action, bool | list):
            return Choice("", unreadable="no name and no number: a choice among named actions is needed")
        if isinstance(action, float) and not action.is_integer():
            return Choice("", unreadable="no whole number")
        name = str(int(action)) if isinstance(action, int | float) else str(action)
        return Choice(name, arguments, self._said(arguments if name in SPEAKING else None))

    @property
    def unfit(self) -> str:
        """Why the row is no step; empty when it is one."""
        choice = self.choice
        if choice is None:
            return NO_STEP if self.value("observation") is None else ""
        return f"its action is {choice.unreadable}" if choice.unreadable else ""

    def _said(self, arguments: Any) -> Cell | None:
        """The words that go with an action: a column of their own, else the text of an action that speaks."""
        if isinstance(self.value("said"), str):
            return self.get("said")
        if arguments is None:
            return None
        raw, where = self.get("arguments")
        if isinstance(arguments, str):
            return Cell(arguments, where)
        words = arguments if isinstance(arguments, dict) else {}
        key = next((key for key in _WORDS if isinstance(words.get(key), str)), None)
        inner = f"{where}#" if isinstance(raw, str) else where
        return Cell(words[key], f"{inner}/{key}") if key else None


def given(value: Any) -> Any:
    """The value of a cell; None when it is empty or NaN."""
    return None if value == "" or (isinstance(value, float) and not math.isfinite(value)) else value


def parsed(value: Any) -> Any:
    """A cell's value; an object or a list that is JSON text comes as what it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return loads(value)
        except NotJson:
            return value
    return given(value)


def text_of_cell(value: Any) -> str | None:
    """A cell's value as text."""
    return value if value is None or isinstance(value, str) else canonical(value)


def number_of(value: Any) -> float | None:
    """A finite number, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e300 else None


def flag_of(value: Any) -> bool | None:
    """A truth value, also as 0 and 1 or as text; None for anything else."""
    if isinstance(value, bool):
        return value
    word = (text_or_none(value) or "").strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None
