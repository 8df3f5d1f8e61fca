"""Stages: the steps of a pipeline, each marked with what it needs to see at a time.

A pipeline is a chain of frozen results, each made by a function of the one before. The mark only records; it changes nothing of
how the function runs.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Scope(StrEnum):
    """What a stage, or a part of one, looks at before it can go on."""

    EPISODE = "one episode"
    SOURCE = "one source"
    BATCH = "one batch"
    SPLIT = "one split"
    POLICY = "one policy"
    MEMBER = "one member"
    EPOCH = "one epoch"
    GLOBAL = "everything"


class Stage(NamedTuple):
    """The mark of a function."""

    scope: Scope
    summary: str


_MARK = "__stage__"


def stage(scope: Scope, summary: str = "") -> Callable[[F], F]:
    """Mark a function as a stage; without a summary, the first line of its docstring is it."""

    def mark(function: F) -> F:
        told = summary or (function.__doc__ or "").strip().partition("\n")[0]
        setattr(function, _MARK, Stage(scope, told))
        return function

    return mark


def stage_of(function: Callable[..., Any]) -> Stage | None:
    """The mark of a function, or None."""
    found: Stage | None = getattr(function, _MARK, None)
    return found
