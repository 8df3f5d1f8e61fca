"""Fields of a run, found by name and by what their values are: ids, outcome, score, model, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from logforge.connectors.episodes import micros
from logforge.inspecting.routes import Route, as_path, name_of, scalar
from logforge.inspecting.units import Line, Units, best_of, talking, written
from logforge.inspecting.words import (
    END_KEYS,
    FALSE,
    ID_KEYS,
    MODEL_KEYS,
    REFERENCE_KEYS,
    SCORE_KEYS,
    START_KEYS,
    SUCCESS_KEYS,
    SYSTEM_KEYS,
    TIME_KEYS,
    TRUE,
    USER_KEYS,
    plain_name,
    rank_in,
)

_UNITS = (
    ("s", 631152000, 4102444800),
    ("ms", 631152000_000, 4102444800_000),
    ("us", 631152000 * 10**6, 4102444800 * 10**6),
    ("ns", 631152000 * 10**9, 4102444800 * 10**9),
)
_FEW = 8


def time_of(units: Units) -> tuple[Line | None, str | None]:
    """The field that says when, and the unit of its numbers (None: text, or seconds)."""
    routes = [route for route in units.scalars(deepest=3) if units.counts[route] >= 0.5 * len(units)]
    ranked = sorted(
        (rank, len(route), as_path(route), route)
        for route in routes
        if (rank := rank_in(name_of(route), TIME_KEYS)) is not None
    )
    for *_, route in ranked:
        unit = unit_of([value for value in units.column(route) if value is not None])
        if unit is not None:
            return Line(as_path(route)), None if unit in ("iso", "s") else unit
    return None, None


def unit_of(values: Sequence[Any]) -> str | None:
    """How these values tell a time: `iso`, or the unit of numbers; None when they tell none."""
    if not values or not all(scalar(value) and not isinstance(value, bool) for value in values):
        return None
    numbers = [_number(value) for value in values]
    if all(number is not None for number in numbers):
        fits = [unit for unit, low, high in _UNITS if all(low <= (number or 0) < high for number in numbers)]
        return fits[0] if fits else None
    if any(number is not None for number in numbers):
        return None
    return "iso" if all(isinstance(value, str) and micros(value) is not None for value in values) else None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def run_fields(units: Units, read: Iterable[Route], groups: Sequence[Units]) -> dict[str, Line]:
    """Lines for `episode`. `groups` are the rows of each conversation; a field that differs inside one is none of the run."""
    closed = [route for route in read if route]
    several = any(len(group) > 1 for group in groups)
    routes = [
        route
        for route in units.scalars(deepest=3)
        if not any(route[: len(one)] == one for one in closed) and (not several or _agrees(groups, route))
    ]
    lines: dict[str, Line] = {}
    named = [route for route in routes if rank_in(name_of(route), ID_KEYS) is not None]
    identity = [route for route in named if _tells_apart(groups, route)]
    own = best_of(units, identity, ID_KEYS)
    if own is not None:
        lines["id"] = Line(as_path(own))
    for key, known in (("model", MODEL_KEYS), ("user", USER_KEYS), ("reference", REFERENCE_KEYS)):
        route = best_of(units, routes, known)
        if route is not None and route != own:
            lines[key] = Line(as_path(route))
    lines |= _system(units, routes) | _outcome(units, routes, groups) | _times(units, routes, several)
    return lines


def _agrees(groups: Sequence[Units], route: Route) -> bool:
    """Nothing, or the same in all rows of a conversation."""
    return all(
        len({written(value) for value in group.column(route) if value is not None}) <= 1 for group in groups
    )


def _tells_apart(groups: Sequence[Units], route: Route) -> bool:
    values = [written(value) for group in groups if (value := _of(group, route)) is not None]
    return len(values) == len(groups) == len(set(values))


def _of(group: Units, route: Route) -> Any:
    return next((held[route][0] for held in group.flats if route in held), None)


def _system(units: Units, routes: list[Route]) -> dict[str, Line]:
    route = best_of(units, routes, SYSTEM_KEYS)
    if route is None or talking(units, route).spaced < 0.5:
        return {}
    return {"system": Line(as_path(route))}


def _outcome(units: Units, routes: list[Route], groups: Sequence[Units]) -> dict[str, Line]:
    """Success where its values say so, and a score where it is a number."""
    found: dict[str, Line] = {}
    named = sorted(
        (rank, len(route), as_path(route), route)
        for route in routes
        if (rank := rank_in(name_of(route), SUCCESS_KEYS)) is not None
    )
    for *_, route in named:
        values = Counter(written(value) for group in groups if (value := _of(group, route)) is not None)
        line = _success(as_path(route), plain_name(name_of(route)), values)
        if line is not None:
            found["success"] = line
            break
    score = best_of(units, routes, SCORE_KEYS)
    numbers = [_number(_of(group, score)) for group in groups] if score is not None else []
    if score is not None and any(number is not None for number in numbers):
        found["score"] = Line(as_path(score))
    return found


def _success(path: str, name: str, values: Counter[str]) -> Line | None:
    """The line for an outcome; None when its values tell none."""
    if not values or len(values) > _FEW:
        return None
    means = {value: _verdict(value) for value in values}
    told = {value: verdict for value, verdict in means.items() if verdict is not None}
    unknown = sorted(value for value, verdict in means.items() if verdict is None)
    weak = name in ("result", "status", "state")
    if not told or (
        weak and (unknown or len(told) < 2 or all(v.lower() in ("true", "false", "1", "0") for v in told))
    ):
        return None
    plain = all(value.lower() in ("true", "false", "yes", "no", "1", "0", "1.0", "0.0") for value in told)
    doubt = f"is {', '.join(map(repr, unknown[:4]))} a success or a failure?" if unknown else ""
    if plain and not unknown:
        return Line(path)
    return Line({"path": path, "values": dict(sorted(told.items()))}, doubt)


def _verdict(value: str) -> bool | None:
    spelled = plain_name(value) if value.strip() else ""
    known = {value.strip().lower(), spelled, spelled.replace("_", "")}
    return True if known & TRUE else False if known & FALSE else None


def _times(units: Units, routes: list[Route], several: bool) -> dict[str, Line]:
    """When runs began and ended, where the field is told once for a run, and as text: numbers have the unit of the messages' times."""
    lines: dict[str, Line] = {}
    if several:
        return lines
    for key, known in (("started", START_KEYS), ("ended", END_KEYS)):
        route = best_of(units, routes, known)
        if route is not None and unit_of([v for v in units.column(route) if v is not None]) == "iso":
            lines[key] = Line(as_path(route))
    return lines
