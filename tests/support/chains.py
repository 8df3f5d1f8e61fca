"""Reads a pipeline's stages: how each is marked, and whether each takes what the one before gives, frozen."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from logforge.core.stages import Scope, steps_of


def scopes(stages: Iterable[Callable[..., Any]]) -> dict[str, list[Scope]]:
    """How far the steps of each stage see, by the stage's name; a step without a word on what it does fails, and a global one that
    does not say what it is given."""
    for step in (step for one in stages for step in steps_of(one)):
        assert step.what
        assert step.takes or step.scope is not Scope.GLOBAL, f"{step.what}: of what size is it given?"
    return {one.__name__: [step.scope for step in steps_of(one)] for one in stages}


def check_chain(stages: Iterable[Callable[..., Any]]) -> None:
    """Each stage's first argument is the frozen result of the stage before."""
    stages = tuple(stages)
    for one in stages:
        made = getattr(sys.modules[one.__module__], str(_gives(one)))
        assert dataclasses.is_dataclass(made), f"{one.__name__} gives no dataclass"
        assert made.__dataclass_params__.frozen, f"what {one.__name__} gives is not frozen"
    for before, after in pairwise(stages):
        assert _takes(after) == _gives(before), f"{after.__name__} does not take what {before.__name__} gives"


def _takes(function: Callable[..., Any]) -> object:
    return next(iter(inspect.signature(function).parameters.values())).annotation


def _gives(function: Callable[..., Any]) -> object:
    return inspect.signature(function).return_annotation
