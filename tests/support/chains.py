"""Reads a pipeline's stages: how each is marked, and whether each takes what the one before gives, frozen."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from logforge.core.stages import Scope, stage_of


def scopes(stages: Iterable[Callable[..., Any]]) -> dict[str, Scope]:
    """The mark of each stage by its name; a stage without one, or without a word on what it does, fails."""
    found = {}
    for one in stages:
        mark = stage_of(one)
        assert mark is not None, f"{one.__name__} is not marked"
        assert mark.summary, f"{one.__name__} does not say what it does"
        found[one.__name__] = mark.scope
    return found


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
