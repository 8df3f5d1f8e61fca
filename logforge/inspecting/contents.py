"""What objects say: the fields with words in them, and those that no line reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logforge.inspecting.routes import Route, as_path, name_of
from logforge.inspecting.units import Units, talking
from logforge.inspecting.words import (
    CONTENT_KEYS,
    NO_SPEECH,
    THOUGHT_KEYS,
    rank_in,
    side_of,
    words_of,
)

_TEXT_KINDS = frozenset({"text", "output_text", "input_text", "markdown", "paragraph"})
_PARTS = frozenset({"content", "parts", "blocks", "segments", "chunks", "text", "message", "body", "data"})


def find_content(units: Units, taken: Iterable[Route], *, most: int = 4) -> list[Route]:
    """The fields with the words, the most telling first, as many as it takes until every one that says something is read."""
    closed, chosen = tuple(taken), list[Route]()
    left = units
    while len(left) and len(chosen) < most:
        ranked = sorted(
            ((_content_score(left, route), route) for route in _text_routes(left, (*closed, *chosen))),
            key=lambda one: (-one[0], as_path(one[1])),
        )
        if not ranked or ranked[0][0] < 0.02:
            break
        best = ranked[0][1]
        chosen.append(best)
        left = left.chosen(place for place, held in enumerate(left.flats) if not _says(held.get(best, ())))
    return sorted(chosen, key=lambda route: -route.count(None))


def mixed_parts(units: Units, routes: Iterable[Route]) -> list[str]:
    """Why it is unsure that all parts of a list are words: they tell of several kinds."""
    doubts = []
    for route in routes:
        if None not in route:
            continue
        parts = route[: route.index(None) + 1]
        kinds = {
            str(value)
            for at in units.counts
            if at[: len(parts)] == parts
            and len(at) == len(parts) + 1
            and words_of(name_of(at))[-1:] in (["type"], ["kind"])
            for held in units.flats
            for value in held.get(at, ())
        }
        if others := sorted(kinds - _TEXT_KINDS):
            doubts.append(f"parts of kind {', '.join(map(repr, others[:4]))} are no words, or are they?")
    return doubts


def _says(values: Iterable[Any]) -> bool:
    return any(isinstance(value, str) and value.strip() for value in values)


def _text_routes(units: Units, closed: tuple[Route, ...]) -> list[Route]:
    return [
        route
        for route in units.scalars(deepest=5, lists=1)
        if not any(route[: len(shut)] == shut for shut in closed)
        and rank_in(name_of(route), THOUGHT_KEYS) is None
        and (None not in route or _is_part(route))
    ]


def _is_part(route: Route) -> bool:
    """Below a list of parts of a message."""
    before = route[: route.index(None)]
    return name_of(before).lower() in _PARTS and name_of(route).lower() in (
        "text",
        "content",
        "value",
        "body",
        *_PARTS,
    )


def _content_score(units: Units, route: Route) -> float:
    told, rank = talking(units, route), rank_in(name_of(route), CONTENT_KEYS)
    side = side_of([name_of(route)])
    if rank is None and (told.spaced < 0.5 or told.distinct < 0.2):
        return 0.0
    if rank is not None and told.spaced < 0.1 and told.distinct < 0.1 and told.length < 20:
        return 0.0
    named = 0.0 if rank is None else 1 - 0.5 * rank / len(CONTENT_KEYS)
    named = max(named, 0.6 if side is not None else 0.0)
    return told.coverage * (0.1 + named + 0.4 * told.spaced + 0.2 * min(told.length, 80) / 80) - 0.02 * len(
        route
    )


def unread_texts(units: Units, read: Iterable[Route]) -> list[Route]:
    """Fields with words that no line reads and that say something else than those that are read."""
    known = tuple(read)
    texts = [
        {value for route in known for value in held.get(route, ()) if isinstance(value, str)}
        for held in units.flats
    ]
    found = []
    for route in units.scalars(deepest=5, lists=2):
        told = talking(units, route)
        if any(route[: len(one)] == one for one in known) or told.spaced < 0.6 or told.length < 15:
            continue
        if set(words_of(name_of(route))) & NO_SPEECH:
            continue
        fresh = [
            place
            for place, held in enumerate(units.flats)
            if any(isinstance(value, str) and value not in texts[place] for value in held.get(route, ()))
        ]
        if fresh:
            found.append(route)
    return found
