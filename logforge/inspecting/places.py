"""Where conversations may stand in a file: in rows, in lists, in lists of lists; and which objects of it are one conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from logforge.connectors.mapping import rank
from logforge.inspecting.routes import Route, as_path, found, full_name, is_dated, name_of, scalar, walk
from logforge.inspecting.units import Units, written
from logforge.inspecting.words import ORDER_KEYS, SESSION_KEYS, TIME_KEYS, rank_in, words_of

_MOST_PLACES = 24
_MOST_UNITS = 3000


@dataclass(frozen=True)
class Place:
    """Objects at one route of the documents, `units` in the order of the file."""

    route: Route
    units: Units
    documents: Sequence[Any]
    is_table: bool = False
    """The documents are rows, and it is they themselves."""

    @property
    def nested(self) -> list[Route]:
        """Routes to what may be a conversation, the innermost first: to the object that holds the list, and to those around it."""
        routes, held = [], self.route
        while None in held:
            cut = len(held) - 1 - held[::-1].index(None)
            outer = held[:cut]
            above = outer[: len(outer) - outer[::-1].index(None)] if None in outer else ()
            routes.append(above)
            held = above
        return routes

    def conversations(self, holder: Route) -> list[list[Any]]:
        """The objects by what holds them at that route."""
        below = self.route[len(holder) :]
        return [
            items
            for document in self.documents
            for one in found(document, holder)
            if (items := [item for item in found(one, below) if item is not None])
        ]


def find_places(documents: Sequence[Any]) -> list[Place]:
    """The places with objects (or pairs of texts), those with the most objects first."""
    seen: Counter[Route] = Counter()
    held: dict[Route, list[Any]] = {}
    for document in documents:
        for route, value in walk(document):
            if (route == () or route[-1] is None) and (isinstance(value, dict) or _is_pair(value)):
                seen[route] += 1
                if len(held.setdefault(route, [])) < _MOST_UNITS:
                    held[route].append(value)
    most = [route for route, _ in seen.most_common(_MOST_PLACES)]
    return [Place(route, Units.of(held[route]), documents, route == ()) for route in most]


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(item is None or isinstance(item, str) for item in value)
    )


# --- rows of one conversation ----------------------------------------------------------------------------------------


def session_key(units: Units) -> tuple[Route, str] | None:
    """The field that tells which rows are one conversation, and why that is unsure."""
    routes = [route for route in units.scalars(deepest=3) if units.counts[route] >= 0.9 * len(units)]
    named = [
        (rank, len(route), as_path(route), route)
        for route in routes
        if (rank := rank_in(full_name(route), SESSION_KEYS)) is not None and _repeats(units, route)
    ]
    if named:
        return min(named)[-1], ""
    likely = [
        route
        for route in routes
        if _repeats(units, route) and _sounds_shared(full_name(route)) and _in_blocks(units, route)
    ]
    if likely:
        return min(likely, key=lambda route: (len(route), name_of(route))), "by its name and values alone"
    return None


def may_group(units: Units, speakers: Sequence[str | None], read: Iterable[Route]) -> list[Route]:
    """Fields that might tell conversations apart: with several values that come again, whoever speaks."""
    known = tuple(read)
    found_routes = []
    for route in units.scalars(deepest=3):
        if units.counts[route] < 0.9 * len(units) or any(route[: len(one)] == one for one in known):
            continue
        column = [written(value) for value in units.column(route)]
        if not _repeats(units, route) or len(set(column)) < 2:
            continue
        by_speaker: dict[str | None, set[str]] = {}
        for value, speaker in zip(column, speakers, strict=True):
            by_speaker.setdefault(speaker, set()).add(value)
        if any(len(values) > 1 for values in by_speaker.values()):
            found_routes.append(route)
    return found_routes


def _sounds_shared(name: str) -> bool:
    """An id, or a name that tells of a conversation: `thread_ts`."""
    held = set(words_of(name))
    return name.lower().endswith("id") or bool(
        held & {"conversation", "session", "thread", "chat", "dialog", "dialogue"}
    )


def _repeats(units: Units, route: Route) -> bool:
    values = Counter(written(value) for value in units.column(route) if scalar(value))
    return 0 < len(values) < 0.8 * len(units)


def _in_blocks(units: Units, route: Route) -> bool:
    """Equal values mostly stand one after the other."""
    column = [written(value) for value in units.column(route)]
    changes = sum(one != other for one, other in pairwise(column))
    return len(set(column)) > 1 and changes < 1.5 * len(set(column))


@dataclass(frozen=True)
class Order:
    """The field by which messages must be sorted (None: they stand in order), and why that is unsure."""

    route: Route | None = None
    doubt: str = ""


def order_of(conversations: Iterable[Units], *, is_mixed: bool = False) -> Order:
    """How messages are to be sorted. `is_mixed`: the rows of one conversation do not stand together."""
    groups = [group for group in conversations if len(group) > 1]
    if not groups:
        return Order()
    routes = sorted(
        set.intersection(*(set(group.scalars(deepest=3)) for group in groups)), key=canonical_route
    )
    sortable = [route for route in routes if all(_sortable(group.column(route)) for group in groups)]
    for kind in (_counts, _tells_order, _tells_time):
        best = next((route for route in sortable if kind(groups, route)), None)
        if best is None:
            continue
        columns = [[rank(value) for value in group.column(best)] for group in groups]
        if all(column == sorted(column) for column in columns):
            return Order()
        ties = any(len(column) != len(set(column)) for column in columns)
        return Order(best, "some of its values are equal" if ties else "")
    return Order(None, "nothing tells the order of the messages: do they stand in it?" if is_mixed else "")


def canonical_route(route: Route) -> tuple[int, str]:
    """The shortest first."""
    return len(route), as_path(route)


def _counts(groups: Sequence[Units], route: Route) -> bool:
    """Numbers that count the messages of each conversation: 1, 2, 3."""
    if not any(len(group) > 2 for group in groups):
        return False
    for group in groups:
        numbers = sorted(rank(value)[1] for value in group.column(route))
        if numbers[0] not in (0, 1) or any(later - earlier != 1 for earlier, later in pairwise(numbers)):
            return False
    return True


def _tells_order(groups: Sequence[Units], route: Route) -> bool:
    name = name_of(route)
    return rank_in(name, ORDER_KEYS) is not None or words_of(name)[-1:] in (
        ["index"],
        ["position"],
        ["seq"],
        ["number"],
    )


def _tells_time(groups: Sequence[Units], route: Route) -> bool:
    """By its name, or since all its values are times."""
    name = name_of(route)
    last = words_of(name)[-1:]
    named = rank_in(name, TIME_KEYS) is not None or last in (
        ["time"],
        ["at"],
        ["timestamp"],
        ["date"],
        ["ts"],
    )
    return named or all(is_dated(value) for group in groups for value in group.column(route))


def _sortable(column: list[Any]) -> bool:
    """Numbers, or texts that sort as times do."""
    kinds = {rank(value)[0] for value in column}
    return len(kinds) == 1 and None not in column and (kinds == {0} or all(map(is_dated, column)))
