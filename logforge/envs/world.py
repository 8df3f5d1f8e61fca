"""What a simulator is: many episodes at once as rows of whole numbers, moved by pure functions.

A row holds what is hidden and what is visible. Nothing is drawn at random in here: a step takes the actions and the outcomes
of four coins (a tool fails, the user changes the goal, the world's own luck, the user leaves), so that rollouts can share
their random numbers and `logforge.envs.solving` can try every outcome instead of sampling it.

The visible columns say all that the history tells of the hidden ones: every answer is drawn once, at the start, and kept
when it is seen. So a policy of the visible columns can be as good as one of the whole dialogue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.schemas import CLARIFY, RESPOND, ResultStatus, UsageError

Ints = NDArray[np.int16]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Features = NDArray[np.float32]

HORIZON = 20
"""Steps after which an episode is cut off."""
STEPS, CHANGED = 0, 1
"""Columns that every world begins with."""
FAILED, CHANGE, LUCK, LEFT = range(4)
"""The coins of a step."""
COINS = 4
NOTHING, TOOL_FAILED, NO_SUCH_TOOL, GOAL_CHANGED, USER_LEFT, TOLD = range(6)
"""Codes of replies that every world has; its own follow."""
COMMON = ("nothing", "tool_failed", "no_such_tool", "goal_changed", "user_left", "told")
RUNNING, SUCCESS, FAILURE = 0, 1, -1
"""Outcomes."""


@dataclass(frozen=True)
class Difficulty:
    """What makes a world harder, as probabilities; `goal_change` makes it easier for who notices, and `kinds` makes it another.

    `tool_failure`: a call fails and changes nothing. `goal_change`: the user changes the goal, at each step; the new one is to be handed
    over, which one call does, so it is easier to meet than the old one.
    `missing_knowledge`: what the tools cannot tell. `impatience`: the user leaves for good, at each step.
    `trap`: restarting unchecked costs the case, or (support) the opening is too vague to be classified.
    `kinds`: how many of the world's kinds of problem occur, the first ones (None: all).
    """

    tool_failure: float = 0.15
    goal_change: float = 0.02
    missing_knowledge: float = 0.2
    impatience: float = 0.01
    trap: float = 1.0
    kinds: int | None = None

    def __post_init__(self) -> None:
        for name in ("tool_failure", "goal_change", "missing_knowledge", "impatience", "trap"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"difficulty {name} is {getattr(self, name)!r}", "give a number from 0 to 1")


class Column(NamedTuple):
    """A column of the rows: its values are 0 to `size` - 1."""

    name: str
    size: int
    visible: bool = True


class Reply(NamedTuple):
    """What an action led to in each of m rows: the code of the answer, and the outcome (0 while it runs)."""

    codes: Ints
    outcome: Ints


class Moved(NamedTuple):
    """A step of n rows: the rows after it, codes (n, 2) of the answer and of what the user adds, and the outcome (n)."""

    states: Ints
    codes: Ints
    outcome: Ints

    @property
    def truncated(self) -> Bools:
        """Rows that the horizon cut off."""
        cut: Bools = (self.outcome == RUNNING) & (self.states[:, STEPS] >= HORIZON)
        return cut

    @property
    def done(self) -> Bools:
        """Rows that are over, one way or the other."""
        done: Bools = (self.outcome != RUNNING) | self.truncated
        return done

    @property
    def rewards(self) -> Floats:
        """+1 for a success, -1 for a failure and for running out of steps, 0 in between."""
        return np.where(self.truncated, -1.0, self.outcome.astype(np.float64))


Handler = Callable[[Ints, Bools], Reply]
"""What a tool does: changes its rows in place, given their luck."""


class World(ABC):
    """A simulator. Actions are numbers: respond, clarify, the tools by name; the next number stands for nonsense."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    """The hidden kinds of problem."""
    tools: ClassVar[tuple[str, ...]]
    columns: ClassVar[tuple[Column, ...]]
    """STEPS and CHANGED come first."""
    replies: ClassVar[tuple[str, ...]]
    """The names of all codes; COMMON come first."""
    refusals: ClassVar[frozenset[str]]
    """Replies of tools that did nothing and say what they need first."""
    usual: ClassVar[Difficulty]

    def __init__(self, difficulty: Difficulty | None = None) -> None:
        self.difficulty = difficulty or self.usual
        most = self.difficulty.kinds
        if most is not None and not 1 <= most <= len(self.kinds):
            known = f"{len(self.kinds)} ({', '.join(self.kinds)})"
            raise UsageError(
                f"{self.name} has no {most} kinds of problem", f"give a number from 1 to {known}"
            )

    @abstractmethod
    def starts(self) -> tuple[Ints, Floats]:
        """Every row that an episode can begin with, and its probability."""

    @abstractmethod
    def spoken(self, states: Ints) -> Reply:
        """What asking the user leads to; changes the rows in place."""

    @property
    @abstractmethod
    def handlers(self) -> Mapping[str, Handler]:
        """What each tool does."""

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions by number, in the order of a dataset's vocabulary."""
        return (RESPOND, CLARIFY, *self.tools)

    @cached_property
    def chances(self) -> Floats:
        """The probability of each coin, shape (COINS,)."""
        d = self.difficulty
        return np.array([d.tool_failure, d.goal_change, self.luck, d.impatience])

    @property
    def luck(self) -> float:
        """The probability of bad luck where a world draws some."""
        return 0.0

    @cached_property
    def code(self) -> dict[str, int]:
        """The number of each reply."""
        return {name: number for number, name in enumerate(self.replies)}

    @cached_property
    def at(self) -> dict[str, int]:
        """The index of each column."""
        return {column.name: index for index, column in enumerate(self.columns)}

    @cached_property
    def visible(self) -> NDArray[np.intp]:
        """The indices of the visible columns."""
        return np.array([index for index, column in enumerate(self.columns) if column.visible])

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """What each feature says: the share of the steps used, then one for each value of each visible column."""
        shown = [c for c in self.columns[1:] if c.visible]
        return ("steps", *(f"{c.name}={value}" for c in shown for value in range(c.size)))

    def features(self, states: Ints) -> Features:
        """The structured observation, shape (n, len(feature_names)): what is visible and nothing else."""
        shown = [index for index in self.visible if index != STEPS]
        blocks = [np.eye(self.columns[i].size, dtype=np.float32)[states[:, i]] for i in shown]
        used = (states[:, [STEPS]] / HORIZON).astype(np.float32)
        return np.concatenate([used, *blocks], axis=1)

    @cached_property
    def _starts(self) -> tuple[Ints, Floats]:
        states, probabilities = self.starts()
        return states, np.cumsum(probabilities)

    def reset(self, uniforms: Floats) -> Ints:
        """A fresh row for each number in [0, 1), shape (n, columns)."""
        states, cumulative = self._starts
        found = np.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
        begin: Ints = states[np.minimum(found, len(states) - 1)]
        return begin

    def step(self, states: Ints, actions: NDArray[np.integer], uniforms: Floats) -> Moved:
        """Take `actions` (n) with random numbers in [0, 1), shape (n, COINS). Pure: the rows given stay as they are."""
        return self.move(states, actions, uniforms < self.chances)

    def move(self, states: Ints, actions: NDArray[np.integer], coins: Bools) -> Moved:
        """The same with the coins thrown already, shape (n, COINS). Any number is an action; an unknown one is nonsense."""
        after = states.copy()
        codes = np.zeros((len(states), 2), np.int16)
        outcome = np.zeros(len(states), np.int16)
        works = ~coins[:, FAILED]
        for action in np.unique(actions):
            rows = np.flatnonzero(actions == action)
            if not 0 <= action < len(self.actions):
                codes[rows, 0] = NO_SUCH_TOOL
                continue
            name = self.actions[action]
            if name in self.handlers:
                codes[rows, 0] = TOOL_FAILED
                rows = rows[works[rows]]
            part = after[rows]
            codes[rows, 0], outcome[rows] = self._reply(name, part, coins[rows, LUCK])
            after[rows] = part
        after[:, STEPS] += 1
        self._events(after, codes, outcome, coins)
        return Moved(after, codes, outcome)

    def _reply(self, name: str, states: Ints, luck: Bools) -> Reply:
        if name == RESPOND:
            return running(np.full(len(states), TOLD))
        return self.spoken(states) if name == CLARIFY else self.handlers[name](states, luck)

    def _events(self, after: Ints, codes: Ints, outcome: Ints, coins: Bools) -> None:
        """What the user does besides: leaves, or wants something else."""
        running = outcome == RUNNING
        left = running & coins[:, LEFT]
        changes = running & ~left & coins[:, CHANGE] & (after[:, CHANGED] == 0)
        outcome[left] = FAILURE
        codes[left, 1] = USER_LEFT
        after[changes, CHANGED] = 1
        codes[changes, 1] = GOAL_CHANGED

    def status(self, code: int) -> ResultStatus:
        """How a log marks a tool's answer."""
        if code == TOOL_FAILED:
            return "error"
        return "refused" if code == NO_SUCH_TOOL or self.replies[code] in self.refusals else "ok"


def running(codes: NDArray[np.integer]) -> Reply:
    """A reply after which the episode goes on."""
    return Reply(codes.astype(np.int16), np.zeros(len(codes), np.int16))


def ending(success: Bools, won: int, lost: int) -> Reply:
    """A reply that ends the episode."""
    return Reply(
        np.where(success, won, lost).astype(np.int16), np.where(success, SUCCESS, FAILURE).astype(np.int16)
    )
