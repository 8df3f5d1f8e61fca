"""Calls of tools in objects: in a list, in an object of their own, or as fields of the message itself; and what came back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from logforge.inspecting.routes import Route, as_path, found, name_of, scalar
from logforge.inspecting.units import Units, best_of, written
from logforge.inspecting.words import (
    ARGUMENT_KEYS,
    CALL_ID_KEYS,
    ERROR_KEYS,
    NAME_KEYS,
    RESULT_KEYS,
    THOUGHT_KEYS,
    is_calls_key,
    plain_name,
    rank_in,
    words_of,
)

_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,79}")
_TOOLISH = 10
"""So many of the known names of a name's key are tools' alone; `name` is not."""
_SCHEMAS = frozenset({"parameters", "input_schema", "inputschema", "schema", "args_schema"})
_STEPS = frozenset({"steps", "intermediate_steps", "agent_thoughts", "trace", "actions", "react"})
_BESIDE_RESULTS = (
    "observation",
    "tool_output",
    "tool_result",
    "tool_response",
    "action_result",
    "result",
    "output",
)
_RESULT_WORDS = frozenset({"result", "results", "outputs", "observations", "responses", "response"})
_BESIDE = frozenset(
    "id time timestamp type kind status index duration latency ms step seq order created started ended at log".split()
)


@dataclass(frozen=True)
class Calls:
    """Where calls stand in a message (`place`, () for the message itself), and their fields below it."""

    place: Route
    name: Route
    arguments: Route | None
    call_id: Route | None
    result: Route | None
    error: Route | None
    thought: Route | None
    score: float
    most: int
    """Calls in one message at most."""
    doubts: tuple[str, ...] = ()

    @property
    def in_turn(self) -> bool:
        """The list is one of steps, each of which saw the result of the one before."""
        return bool(set(words_of(name_of(self.place))) & _STEPS or plain_name(name_of(self.place)) in _STEPS)

    def count(self, units: Units) -> int:
        """How many messages have one."""
        return sum(bool(found(value, (*self.place, *self.name))) for value in units.values)


@dataclass(frozen=True)
class Results:
    """Where results stand in a message, when they are no part of the calls."""

    place: Route
    content: Route
    call_id: Route | None


def find_calls(units: Units, *, alone: bool = False, taken: Iterable[Route] = ()) -> list[Calls]:
    """What looks like calls, the surest first. `alone`: the objects are known to be calls themselves."""
    closed = tuple(taken)
    places = [route for route in units.counts if _may_hold(units, route, alone)]
    seen = [
        calls
        for place in places
        if not any(place[: len(shut)] == shut for shut in closed if shut)
        and (calls := _calls_at(units, place, alone=alone and None not in place)) is not None
    ]
    ranked = sorted(seen, key=lambda calls: (-calls.score, len(calls.place), as_path(calls.place)))
    return [calls for calls in ranked if not _repeats(calls, ranked)]


def _repeats(calls: Calls, ranked: list[Calls]) -> bool:
    """Inside the place of a better one, or around it."""
    better = ranked[: ranked.index(calls)]
    return any(
        one.place[: len(calls.place)] == calls.place or calls.place[: len(one.place)] == one.place
        for one in better
    )


def _may_hold(units: Units, route: Route, alone: bool) -> bool:
    if route.count(None) > 2 or len(route) > 6 or (None in route and route[-1] == "function"):
        return False  # the object of a function is part of the call that holds it
    if (
        route
        and route[-1] is not None
        and not is_calls_key(name_of(route))
        and not (alone and len(route) <= 2)
    ):
        return False
    return units.share(route, lambda value: isinstance(value, dict)) > 0


def _calls_at(units: Units, place: Route, *, alone: bool) -> Calls | None:
    if place[-2:] == (None, None):
        return _paired(units, place)
    items = Units.of([item for held in units.flats for item in held.get(place, ()) if isinstance(item, dict)])
    if not len(items) or _are_definitions(items):
        return None
    scalars = items.scalars(deepest=3)
    names = [route for route in scalars if _is_name(items, route, place, alone)]
    name = best_of(items, names, NAME_KEYS)
    if name is None:
        return None
    items = items.chosen(at for at, held in enumerate(items.flats) if name in held)
    near = [
        route for route in items.counts if route and route != name and None not in route and len(route) <= 3
    ]
    near = [route for route in near if route[: len(name) - 1] == name[:-1] or len(route) <= len(name)]
    arguments = best_of(items, near, ARGUMENT_KEYS)
    near = [route for route in near if arguments is None or route[: len(arguments)] != arguments]
    result = best_of(
        items,
        near,
        tuple(
            key
            for key in RESULT_KEYS
            if place or key not in ("content", "text", "data", "body", "value", "answer", "response")
        ),
    )
    near = [route for route in near if result is None or route[: len(result)] != result]
    call_id, error, thought = (
        best_of(items, near, known) for known in (CALL_ID_KEYS, ERROR_KEYS, THOUGHT_KEYS)
    )
    result = None if result is None else narrowed(items, result)
    call_id = call_id if call_id is not None and _are_ids(items, call_id) else None
    rank = rank_in(name_of(name), NAME_KEYS) or 0
    score = 1.5 if rank < _TOOLISH and name_of(name).lower() != "name" else 0.5
    score += (
        2.0 * is_calls_key(name_of(place))
        + 1.5 * (arguments is not None)
        + 0.5 * (result is not None)
        + 2.0 * alone
    )
    if score < 2.5:
        return None
    most = max(len(list(held.get((*place, *name), ()))) for held in units.flats)
    doubts = () if arguments is not None else tuple(_loose(items, (name, result, call_id, error, thought)))
    return Calls(place, name, arguments, call_id, result, error, thought, score, most, doubts)


def _paired(units: Units, place: Route) -> Calls | None:
    """Lists of a call and its result, as frameworks keep them: `[[{"tool": …}, "result"], …]`."""
    outer = place[:-1]
    pairs = [pair for held in units.flats for pair in held.get(outer, ())]
    if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict) for pair in pairs):
        return None
    calls = _calls_at(Units.of([{"steps": [pair[0] for pair in pairs]}]), ("steps", None), alone=False)
    if calls is None:
        return None
    begun = {
        key: None if route is None else (0, *route)
        for key, route in (
            ("name", calls.name),
            ("arguments", calls.arguments),
            ("call_id", calls.call_id),
            ("thought", calls.thought),
        )
    }
    most = max(len(held.get(outer, ())) for held in units.flats)
    return replace(calls, place=outer, result=(1,), error=None, most=most, **begun)  # type: ignore[arg-type]


def _are_definitions(items: Units) -> bool:
    """Tools on offer: described, with a schema and no values."""
    said = [{plain_name(str(key)) for key in item} for item in items.values]
    return all(keys & _SCHEMAS and "description" in keys for keys in said)


def _is_name(items: Units, route: Route, place: Route, alone: bool) -> bool:
    rank = rank_in(name_of(route), NAME_KEYS)
    if rank is None:
        return False
    given = [value for value in items.column(route) if value is not None]
    fits = sum(isinstance(value, str) and bool(_NAME.fullmatch(value)) for value in given)
    if fits < 0.9 * len(given) or not given:
        return False
    if place or alone:
        return len(given) >= 0.6 * len(items)
    return rank < _TOOLISH and name_of(route).lower() != "name" and len(route) == 1


def narrowed(items: Units, route: Route) -> Route:
    """Where a result is an object of one key and that holds the answer (`{"text": …}`), the route to that."""
    held = [value for one in items.flats for value in one.get(route, ())]
    keys = {str(key) for value in held if isinstance(value, dict) for key in value}
    is_wrapped = len(keys) == 1 and all(isinstance(value, dict) and value for value in held)
    if is_wrapped and rank_in(min(keys), ("text", "content", "value", "output", "result")) is not None:
        return narrowed(items, (*route, min(keys)))
    return route


def _are_ids(items: Units, route: Route) -> bool:
    given = [written(value) for value in items.column(route) if scalar(value)]
    return len(given) >= 0.5 * len(items)


def _loose(items: Units, read: tuple[Route | None, ...]) -> list[str]:
    """Fields beside a name without a field for arguments: they may be the arguments."""
    known = [route for route in read if route is not None]
    others = [
        route
        for route in items.scalars(deepest=2)
        if not any(route[: len(one)] == one for one in known) and not set(words_of(name_of(route))) & _BESIDE
    ]
    return [f"are {', '.join(as_path(route) for route in others[:4])} its arguments?"] if others else []


def find_results(units: Units, calls: Calls) -> Results | None:
    """Results that stand beside the calls: in a list of their own, or in a field beside the one call."""
    if None not in calls.place:
        callers = units.chosen(
            at for at, held in enumerate(units.flats) if (*calls.place, *calls.name) in held
        )
        own: list[Route] = [route for route in callers.counts if len(route) == 1 and route != calls.place]
        beside = best_of(units, own, _BESIDE_RESULTS)
        return None if beside is None else Results((), beside, None)
    for place in units.counts:
        if None not in place or place.count(None) > 1 or place == calls.place:
            continue
        if not _RESULT_WORDS & set(words_of(name_of(place))):
            continue
        items = Units.of(
            [item for held in units.flats for item in held.get(place, ()) if isinstance(item, dict)]
        )
        routes: list[Route] = [route for route in items.counts if route and None not in route]
        content = best_of(items, routes, RESULT_KEYS)
        if content is not None:
            known = best_of(items, routes, CALL_ID_KEYS)
            return Results(place, content, known)
    return None


def join_of(calls: Units, call_routes: list[Route], results: Units) -> tuple[Route, Route] | None:
    """The fields by which results name their calls: one whose values are among those of the other."""
    best: tuple[float, Route, Route] | None = None
    columns = {
        route: [written(value) for value in results.column(route) if _is_id(value)]
        for route in results.scalars()
    }
    for own in call_routes:
        ids = {written(item) for held in calls.flats for item in held.get(own, ()) if _is_id(item)}
        if len(ids) < 0.5 * sum(own in held for held in calls.flats):
            continue
        for theirs, named in columns.items():
            share = sum(value in ids for value in named) / max(1, len(results))
            distinct = len(set(named)) / max(1, len(named))
            bonus = 0.1 if rank_in(name_of(theirs), CALL_ID_KEYS) is not None else 0.0
            if share > 0.5 and distinct > 0.5 and (best is None or share + bonus > best[0]):
                best = share + bonus, own, theirs
    return None if best is None else (best[1], best[2])


def _is_id(value: Any) -> bool:
    return (isinstance(value, str) and 0 < len(value) <= 80 and " " not in value) or (
        isinstance(value, int) and not isinstance(value, bool)
    )
