"""The objects that may be messages or turns, taken apart: what stands at each route of each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from logforge.connectors.records import canonical
from logforge.inspecting.routes import Route, is_text, name_of, scalar, walk
from logforge.inspecting.words import rank_in

Flat = dict[Route, list[Any]]


class Line(NamedTuple):
    """A line of a mapping: what it says, and why that is unsure ("" where it is not)."""

    value: Any
    unsure: str = ""


def written(value: Any) -> str:
    """A value as a key of a mapping's table."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def flat(value: Any) -> Flat:
    """What stands at each route of a value, null left out."""
    held: Flat = {}
    for route, item in walk(value):
        if item is not None:
            held.setdefault(route, []).append(item)
    return held


@dataclass(frozen=True)
class Units:
    """Objects of one kind, with the conversation that each belongs to where that is known."""

    values: Sequence[Any]
    flats: Sequence[Flat]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Units:
        """Take values apart."""
        return cls(values, [flat(value) for value in values])

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, places: Iterable[int]) -> Units:
        """Some of them."""
        kept = list(places)
        return Units([self.values[place] for place in kept], [self.flats[place] for place in kept])

    @cached_property
    def counts(self) -> Counter[Route]:
        """How many have something at a route."""
        return Counter(route for held in self.flats for route in held)

    def column(self, route: Route) -> list[Any]:
        """The first value of each at a route; None where there is none."""
        return [held[route][0] if route in held else None for held in self.flats]

    def scalars(self, *, deepest: int = 4, lists: int = 0) -> list[Route]:
        """Routes to text, numbers and flags, through at most so many lists."""
        return [route for route in self._plain if len(route) <= deepest and route.count(None) <= lists]

    @cached_property
    def _plain(self) -> list[Route]:
        """The routes at which most values are text, numbers or flags."""
        given = Counter(route for held in self.flats for route, items in held.items() if scalar(items[0]))
        return [route for route, count in self.counts.items() if route and given[route] >= 0.8 * count]

    def share(self, route: Route, holds: Callable[[Any], bool]) -> float:
        """The share of them that have such a value there."""
        return sum(any(map(holds, held.get(route, ()))) for held in self.flats) / max(1, len(self))


class Talking(NamedTuple):
    """What a column of text looks like."""

    coverage: float
    spaced: float
    length: float
    distinct: float


def talking(units: Units, route: Route) -> Talking:
    """How much like speech the texts at a route are."""
    texts = [text for held in units.flats for text in held.get(route, ()) if is_text(text)]
    if not texts:
        return Talking(0.0, 0.0, 0.0, 0.0)
    spaced = sum(" " in text.strip() or not text.isascii() for text in texts) / len(texts)
    mean = sum(map(len, texts)) / len(texts)
    return Talking(units.share(route, is_text), spaced, mean, len(set(texts)) / len(texts))


def best_of(units: Units, routes: Iterable[Route], known: tuple[str, ...]) -> Route | None:
    """The route with the best known name; of those the one that most have, the shortest first."""
    ranked = [
        (rank, -units.counts[route], len(route), canonical(list(route)), route)
        for route in routes
        if (rank := rank_in(name_of(route), known)) is not None
    ]
    return min(ranked)[-1] if ranked else None
