"""Work one item ahead: while one is used, the next is made in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
