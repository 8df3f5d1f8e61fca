"""How far each step of a pipeline sees: one of its items, some at a time, or all of them. It says what can run on many machines.

A pipeline is a chain of frozen results, each made by a stage from the one before.
Each stage's function is marked with its steps, in their order. A step over everything says what it is given and how that grows.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARKS: dict[Callable[..., Any], tuple[Step, ...]] = {}


class Scope(StrEnum):
    """What a step has to see at a time."""

    EPISODE = "per episode"
    BUCKET = "per bucket of episodes"
    SOURCE = "per source"
    BATCH = "per batch of sources"
    MEMBER = "per member"
    EPOCH = "per epoch of a member"
    SPLIT = "per split"
    POLICY = "per policy"
    GLOBAL = "global"


class Step(NamedTuple):
    """A step of a stage. `takes` is what a global one is given, with its size; `whole` says that this is no summary but all
    that the others gave, so that it must be on one machine."""

    what: str
    scope: Scope
    takes: str = ""
    whole: bool = False


def per(scope: Scope, what: str) -> Step:
    """A step that looks at one such item at a time, and needs of others no more than what a step before it found."""
    return Step(what, scope)


def per_episode(what: str) -> Step:
    """A step that looks at one episode at a time."""
    return per(Scope.EPISODE, what)


def per_bucket(what: str) -> Step:
    """The same for some episodes at a time, whichever they are: it is only faster."""
    return per(Scope.BUCKET, what)


def from_summary(what: str, takes: str) -> Step:
    """A step over everything that is given a summary of them; `takes` names it and its size."""
    return Step(what, Scope.GLOBAL, takes)


def from_all(what: str, takes: str) -> Step:
    """A step over everything that is given all of something; `takes` names it and its size."""
    return Step(what, Scope.GLOBAL, takes, whole=True)


def stage(*steps: Step) -> Callable[[_Function], _Function]:
    """Mark the function of a stage with its steps."""

    def marked(function: _Function) -> _Function:
        _MARKS[function] = steps
        return function

    return marked


def steps_of(function: Callable[..., Any]) -> tuple[Step, ...]:
    """The steps of a stage. Raises KeyError for a function that is marked as none."""
    return _MARKS[function]
