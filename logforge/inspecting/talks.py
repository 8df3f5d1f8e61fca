"""How objects speak: the lines of a mapping for their messages, and what they leave unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from logforge.inspecting.calls import Calls, find_calls, find_results, join_of, narrowed
from logforge.inspecting.contents import find_content, mixed_parts, unread_texts
from logforge.inspecting.routes import Route, as_path, first, found, name_of, walk
from logforge.inspecting.run_fields import time_of
from logforge.inspecting.speech import Roles, Sides, find_roles, find_sides
from logforge.inspecting.units import Line, Units, best_of
from logforge.inspecting.words import (
    ARGUMENT_KEYS,
    ERROR_KEYS,
    MODEL_KEYS,
    NAME_KEYS,
    RESULT_KEYS,
    THOUGHT_KEYS,
    is_calls_key,
    rank_in,
)

Block = dict[str, Any]
"""Lines and blocks by key; `each` is a list of blocks."""


@dataclass(frozen=True)
class Talk:
    """How objects speak: their messages, the routes that are read of them, and which of them are a user's words."""

    block: Block
    read: tuple[Route, ...]
    asks: tuple[bool, ...]
    unit: str | None
    is_role: bool
    doubts: tuple[str, ...] = ()
    is_pair: bool = field(default=False)
    said: tuple[str | None, ...] = ()
    """Who speaks in each object."""
    speaks: Callable[[Any], bool] | None = None
    """Whether an object is a message of this kind."""


def talks_of(units: Units) -> Iterator[Talk]:
    """The ways in which objects may be read as messages, the likeliest first."""
    if units.values and all(isinstance(value, list) for value in units.values):
        yield _of_lists(units)
        return
    if (roles := find_roles(units)) is not None:
        yield _of_roles(units, roles)
    called = [calls.place for calls in find_calls(units) if calls.place]
    if (sides := find_sides(units, called)) is not None:
        yield _of_sides(units, sides)


# --- how objects speak ----------------------------------------------------------------------------------------------


def _of_lists(units: Units) -> Talk:
    """Pairs of texts: what was asked, and what was answered."""
    doubt = "the first text of each pair is taken for the user's"
    block: Block = {
        "each": [
            {"role": Line("user"), "content": Line("$[0]", doubt)},
            {"role": Line("assistant"), "content": Line("$[1]", doubt)},
        ]
    }
    return Talk(block, ((None,),), tuple(True for _ in units.values), None, is_role=False, is_pair=True)


def _of_sides(units: Units, sides: Sides) -> Talk:
    """A field for the question and one for the answer; calls between the two."""
    calls = next(iter(find_calls(units, taken=(sides.user, sides.assistant))), None)
    time, unit = time_of(units)
    asked: Block = {"role": Line("user"), "content": Line(as_path(sides.user), "; ".join(sides.doubts))}
    answer: Block = {
        "role": Line("assistant"),
        "content": Line(as_path(sides.assistant), "; ".join(sides.doubts)),
    }
    if time is not None:
        asked["time"] = time
    read, each = [sides.user, sides.assistant], [asked]
    if calls is not None:
        called, used, _ = _calls_block(units, calls)
        each.append({"role": Line("assistant"), **called})
        read += used
    thought = best_of(units, _flat_routes(units), THOUGHT_KEYS)
    if thought is not None:
        answer["thought"] = Line(as_path(thought))
        read.append(thought)
    asks = tuple(bool(first(unit, sides.user)) for unit in units.values)
    return Talk({"each": [*each, answer]}, tuple(read), asks, unit, False, tuple(_unread(units, read)))


def _unread(units: Units, read: Sequence[Route]) -> list[str]:
    """Objects and lists that no line reads and that look like words, calls or results."""
    routes = [
        route
        for route in units.counts
        if route
        and not any(route[: len(one)] == one or one[: len(route)] == route for one in read)
        and any(_may_tell(route, value) for held in units.flats for value in held.get(route, ()))
    ]
    outer = [
        route for route in routes if not any(route != one and route[: len(one)] == one for one in routes)
    ]
    return [f"{as_path(route)} is not read: is it part of what was said or done?" for route in outer[:4]]


def _may_tell(route: Route, value: Any) -> bool:
    """An object or a list with sentences in it, or under the name or with the fields of a call."""
    if not isinstance(value, dict | list) or not value:
        return False
    if is_calls_key(name_of(route)):
        return True
    keys = [str(key) for key in value] if isinstance(value, dict) else []
    named = any(rank_in(key, NAME_KEYS) is not None for key in keys)
    if named and any(rank_in(key, ARGUMENT_KEYS) is not None for key in keys):
        return True
    return any(isinstance(item, str) and item.strip().count(" ") >= 2 for _, item in walk(value))


def _flat_routes(units: Units) -> list[Route]:
    return [route for route in units.scalars(deepest=3) if units.counts[route]]


def _of_roles(units: Units, roles: Roles) -> Talk:
    """A field that names the speaker."""
    said = [roles.of(unit) for unit in units.values]
    if "call" not in said and "tool" in said:
        roles = _with_calls_of_tools(units, roles, said)
        said = [roles.of(unit) for unit in units.values]
    by = {
        role: [at for at, one in enumerate(said) if one == role]
        for role in ("user", "system", "assistant", "call", "tool")
    }
    calls = _calls_among(units, by, roles)
    base: Block = {"role": _role_line(roles)}
    read = [*roles.routes]
    block, used, content_doubts = _words(units, by, calls, roles)
    used_texts = list(used)
    base |= block
    read += used
    agent = units.chosen([*by["assistant"], *by["call"]])
    time, unit = time_of(units)
    extra = {
        "thought": best_of(agent, _flat_routes(agent), THOUGHT_KEYS) if len(agent) else None,
        "model": best_of(agent, _flat_routes(agent), MODEL_KEYS) if len(agent) else None,
    }
    base |= {key: Line(as_path(route)) for key, route in extra.items() if route is not None}
    read += [route for route in extra.values() if route is not None]
    if time is not None:
        base["time"] = time
    doubts = list(content_doubts)
    if calls is not None:
        called, used, more = _calls_block(units, calls)
        read += used
        doubts += more
        base = _with_calls(units, base, called, calls, by, roles)
    results = units.chosen(by["tool"])
    if len(results) and calls is not None and calls.result is None:
        read += _link(units, base, calls, by, results)
    doubts += _unread(units.chosen([*by["assistant"], *by["call"], *by["tool"]]), read)
    asks = tuple(one == "user" for one in said)
    messages = _with_skip(base, roles)
    said_at = block.get("content")

    def speaks(value: Any) -> bool:
        texts = [] if said_at is None else [route for route in used_texts if _filled(found(value, route))]
        return roles.of(value) is not None and bool(texts)

    return Talk(messages, tuple(read), asks, unit, True, tuple(doubts), said=tuple(said), speaks=speaks)


def _role_line(roles: Roles) -> Line:
    paths = [as_path(route) for route in roles.routes]
    path = paths[0] if len(paths) == 1 else paths
    same = all(value == role for value, role in roles.table.items()) and not roles.unknown and len(paths) == 1
    doubt = "; ".join(roles.doubts)
    if roles.default is not None:
        return Line({"path": path, "values": roles.table, "default": roles.default}, doubt)
    return Line(path if same else {"path": path, "values": dict(sorted(roles.table.items()))}, doubt)


def _with_skip(messages: Block, roles: Roles) -> Block:
    if not roles.skips:
        return messages
    paths = [as_path(route) for route in roles.routes]
    return {
        "skip": Line(
            {"path": paths if len(paths) > 1 else paths[0], "values": dict(sorted(roles.skips.items()))}
        ),
        **messages,
    }


def _with_calls_of_tools(units: Units, roles: Roles, said: Sequence[str | None]) -> Roles:
    """Where no agent's message calls anything and the tool's own hold name, arguments and result, they are calls with results."""
    tools = units.chosen(at for at, one in enumerate(said) if one == "tool")
    agents = units.chosen(at for at, one in enumerate(said) if one == "assistant")
    if len(agents) and find_calls(agents):
        return roles
    own = next(iter(find_calls(tools, alone=True)), None)
    if own is None or own.arguments is None:
        return roles
    values = frozenset(value for value, role in roles.table.items() if role == "tool")
    table = {value: "assistant" if value in values else role for value, role in roles.table.items()}
    return replace(roles, table=table, calls=values)


def _calls_among(units: Units, by: dict[str, list[int]], roles: Roles) -> Calls | None:
    if by["call"]:
        found = find_calls(units.chosen(by["call"]), alone=True, taken=roles.routes)
        return found[0] if found else None
    found = find_calls(units.chosen(by["assistant"]), taken=roles.routes) if by["assistant"] else []
    return found[0] if found else None


def _words(
    units: Units, by: dict[str, list[int]], calls: Calls | None, roles: Roles
) -> tuple[Block, list[Route], list[str]]:
    """The line for what is said."""
    taken = [*roles.routes]
    if calls is not None:
        inner = [calls.name, calls.arguments, calls.result]
        taken += (
            [calls.place] if None in calls.place else [(*calls.place, *route) for route in inner if route]
        )
    speech = find_content(units.chosen([*by["user"], *by["system"], *by["assistant"]]), taken)
    results = units.chosen(by["tool"])
    answers = _answers(results, taken) if len(results) else []
    if not speech and not answers:
        return {}, [], []
    routes = _in_best_order(units, by, speech, answers)
    notes = [f"{as_path(route)} is text too" for route in _ignored(units, by, routes, taken)]
    doubt = "; ".join([*notes, *mixed_parts(units, routes)])
    paths = [as_path(route) for route in routes]
    return {"content": Line(paths if len(paths) > 1 else paths[0], doubt)}, routes, []


def _answers(results: Units, taken: Sequence[Route]) -> list[Route]:
    """What tools answered: the field with a result's name, text or not; else what reads best."""
    routes = [
        route
        for route in results.counts
        if route
        and None not in route
        and len(route) <= 3
        and not any(route[: len(one)] == one for one in taken)
    ]
    named = best_of(results, routes, RESULT_KEYS)
    if named is None:
        return find_content(results, taken)
    named = narrowed(results, named)
    rest = results.chosen(at for at, held in enumerate(results.flats) if named not in held)
    return [named, *(find_content(rest, taken) if len(rest) else [])]


def _in_best_order(
    units: Units, by: dict[str, list[int]], speech: list[Route], answers: list[Route]
) -> list[Route]:
    """Both lists as one: the order in which fewest messages are read from the wrong field."""
    options = [list(dict.fromkeys([*speech, *answers])), list(dict.fromkeys([*answers, *speech]))]

    def wrong(order: list[Route]) -> int:
        count = 0
        for roles, own in ((("user", "assistant", "system"), speech), (("tool",), answers)):
            for at in (at for role in roles for at in by[role]):
                held = units.flats[at]
                read = next((route for route in order if _filled(held.get(route))), None)
                best = next((route for route in own if _filled(held.get(route))), None)
                count += read != best
        return count

    return min(options, key=wrong)


def _filled(values: Sequence[Any] | None) -> bool:
    return any(value is not None and (not isinstance(value, str) or value.strip()) for value in values or ())


def _ignored(units: Units, by: dict[str, list[int]], routes: list[Route], taken: list[Route]) -> list[Route]:
    spoken = units.chosen([*by["user"], *by["assistant"]])
    thoughts = [route for route in spoken.counts if rank_in(name_of(route), THOUGHT_KEYS) is not None]
    return unread_texts(spoken, [*routes, *taken, *thoughts])[:3]


# --- calls ----------------------------------------------------------------------------------------------------------


def _calls_block(units: Units, calls: Calls) -> tuple[Block, list[Route], list[str]]:
    """The blocks `calls` and `results` of a message, the routes that they read, and what is unsure."""
    is_list = None in calls.place
    begin = () if is_list else calls.place
    fields = {"name": calls.name, "arguments": calls.arguments, "id": calls.call_id}
    called: Block = {"path": Line(as_path(calls.place))} if is_list else {}
    called |= {key: Line(as_path((*begin, *route))) for key, route in fields.items() if route is not None}
    if calls.doubts:
        called["name"] = Line(called["name"].value, "; ".join(calls.doubts))
    if is_list and calls.in_turn and calls.most > 1:
        called["apart"] = Line(True)
        if calls.thought is not None:
            called["thought"] = Line(as_path(calls.thought))
    block: Block = {"calls": called}
    read = [calls.place] if is_list else [(*begin, *route) for route in fields.values() if route is not None]
    apart = None if calls.result is not None else find_results(units, calls)
    if calls.result is not None:
        answered = {"id": calls.call_id, "content": calls.result, "error": calls.error}
        results: Block = {"path": Line(as_path(calls.place))} if is_list else {}
        results |= {
            key: Line(as_path((*begin, *route))) for key, route in answered.items() if route is not None
        }
        block["results"] = results
        read += [] if is_list else [(*begin, *calls.result)]
    elif apart is not None:
        block["results"] = {"path": Line(as_path(apart.place))} if apart.place else {}
        block["results"]["content"] = Line(as_path(apart.content))
        if apart.call_id is not None:
            block["results"]["id"] = Line(as_path(apart.call_id))
        read.append(apart.place or apart.content)
    return block, read, []


def _with_calls(
    units: Units, base: Block, called: Block, calls: Calls, by: dict[str, list[int]], roles: Roles
) -> Block:
    """Calls go with the words of a message; where their results stand in it too, the words come after them."""
    if "results" not in called or None not in calls.place:
        return {**base, **called}
    place = (*calls.place, *calls.name)
    both = [at for at in by["assistant"] if found(units.values[at], place) and _filled_text(units, at, base)]
    if not both:
        return {**base, **called}
    apart = {key: base[key] for key in ("role", "time", "model") if key in base}
    agents = {value: role for value, role in roles.table.items() if role == "assistant"}
    paths = apart["role"].value["path"] if isinstance(apart["role"].value, dict) else apart["role"].value
    apart["role"] = Line({"path": paths, "values": agents}, apart["role"].unsure)
    followed = [at for at in both if at + 1 < len(units) and roles.of(units.values[at + 1]) == "assistant"]
    if followed:
        apart["role"] = Line(apart["role"].value, "the words of a message are taken to come after its calls")
    return {"each": [{**apart, **called}, base]}


def _filled_text(units: Units, at: int, base: Block) -> bool:
    line = base.get("content")
    paths = [] if line is None else line.value if isinstance(line.value, list) else [line.value]
    return any(as_path(route) in paths and _filled(values) for route, values in units.flats[at].items())


def _link(units: Units, base: Block, calls: Calls, by: dict[str, list[int]], results: Units) -> list[Route]:
    """Adds the ids by which results name their calls, and their errors. Returns what is read."""
    callers = units.chosen([*by["call"], *by["assistant"]])
    below = [
        route
        for route in callers.counts
        if route[: len(calls.place)] == calls.place and len(route) > len(calls.place)
    ]
    joined = join_of(callers, below, results)
    block = base["each"][0] if "each" in base else base
    target = base["each"][-1] if "each" in base else base
    read = []
    if joined is not None:
        own, theirs = joined
        begin = len(calls.place) if None in calls.place else 0
        block["calls"]["id"] = Line(as_path(own[begin:]))
        target["call_id"] = Line(as_path(theirs))
        read += [own, theirs]
    elif "calls" in block:
        block["calls"].pop("id", None)
    error = best_of(results, results.scalars(deepest=3), ERROR_KEYS)
    if error is not None:
        target["error"] = Line(as_path(error))
        read.append(error)
    return read
