"""Work one item ahead: while one is used, the next is made in a thread of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items in their order. What raises while one is made is raised where it would be used."""
    making = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, making, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, making, end)
            yield item  # type: ignore[misc]


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
