"""What keeps an ingest quick and its memory small: when Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 500_000
"""New objects between two looks. Python's own 700 has it walk a parsed log, which holds no cycles, again and again."""


def collect_seldom() -> None:
    """Have Python look for cyclic garbage seldom."""
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


@contextmanager
def few_collections() -> Iterator[None]:
    """Have Python look for cyclic garbage seldom in here."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
