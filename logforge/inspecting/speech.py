"""Who speaks in objects, and what they say: a field that names the speaker, or a field for each side of the talk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from logforge.inspecting.routes import Route, as_path, first, name_of, scalar
from logforge.inspecting.units import Flat, Units, talking, written
from logforge.inspecting.words import (
    ASSISTANT,
    CONTENT_KEYS,
    ID_KEYS,
    ROLE_KEYS,
    SYSTEM_KEYS,
    USER,
    rank_in,
    said_by,
    side_of,
    words_of,
)

_MOST_ROLES = 25
_FLAGS = frozenset({"true", "false", "0", "1", "yes", "no", "True", "False", "TRUE", "FALSE"})


@dataclass(frozen=True)
class Roles:
    """Fields that name the speaker (the first whose value the table knows counts) and what their values mean."""

    routes: tuple[Route, ...]
    table: dict[str, str]
    calls: frozenset[str] = frozenset()
    skips: dict[str, bool] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    score: float = 0.0
    doubts: tuple[str, ...] = ()
    default: str | None = None
    """Who speaks where none of the fields is there."""

    def of(self, unit: Any) -> str | None:
        """Who speaks: a role, `call` for an agent that calls a tool; None when nobody known does."""
        for route in self.routes:
            value = first(unit, route)
            if scalar(value) and (role := self.table.get(written(value), self.table.get("*"))) is not None:
                return "call" if written(value) in self.calls else role
        return self.default

    def skipped(self, unit: Any) -> bool:
        """Whether it is no message by what it says itself."""
        values = [first(unit, route) for route in self.routes]
        return any(scalar(value) and written(value) in self.skips for value in values)


@dataclass(frozen=True)
class Sides:
    """A field for what the user said, and one for what the agent answered."""

    user: Route
    assistant: Route
    score: float
    doubts: tuple[str, ...] = ()


# --- a field that names the speaker ---------------------------------------------------------------------------------


def find_roles(units: Units) -> Roles | None:
    """The field whose values say best who speaks; with it one that says more (a tool's result, a call)."""
    found = [roles for route in units.scalars() if (roles := _roles_at(units, route)) is not None]
    if not found:
        return _guessed(units)
    best = max(found, key=lambda roles: (roles.score, -len(roles.routes[0])))
    others = [roles for roles in (_kinds_at(units, route) for route in units.scalars()) if roles is not None]
    for other in sorted(others, key=lambda roles: -roles.score):
        if other.routes[0] != best.routes[0] and (joined := _joined(units, best, other)) is not None:
            return joined
    return best


def _guessed(units: Units) -> Roles | None:
    """Roles that rest on one side, on a key that the agent's messages alone have, or on who begins. All are unsure."""
    for guess in (_by_elimination, _by_presence, _by_turns):
        for route in units.scalars():
            if (roles := guess(units, route)) is not None:
                return roles
    return None


def _by_elimination(units: Units, route: Route) -> Roles | None:
    """One side is known by its word, and one other word stands by texts."""
    values = _values_at(units, route)
    if values is None or rank_in(name_of(route), ROLE_KEYS) is None:
        return None
    means = {value: said_by(value) for value in values}
    sides = {role for role in means.values() if role in ("user", "assistant")}
    speaking = [value for value, role in means.items() if role is None and _speaks(units, route, value)]
    if len(sides) != 1 or len(speaking) != 1:
        return None
    other = "assistant" if sides == {"user"} else "user"
    means[speaking[0]] = other
    silent = {value: "skip" for value, role in means.items() if role is None}
    doubt = f"{speaking[0]!r} is taken for the {'agent' if other == 'assistant' else 'user'}"
    return _made((route,), values, {**means, **silent}, 0.3, (doubt,))


def _speaks(units: Units, route: Route, value: str) -> bool:
    """Most objects with this value hold a text of several words."""
    own = units.chosen(
        at for at, one in enumerate(units.column(route)) if scalar(one) and written(one) == value
    )
    return sum(map(has_sentence, own.flats)) >= 0.5 * len(own)


def has_sentence(held: Flat) -> bool:
    """Whether some text in it has three words or more."""
    return any(_is_sentence(item) for items in held.values() for item in items)


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and value.strip().count(" ") >= 2


def _by_presence(units: Units, route: Route) -> Roles | None:
    """A key such as `bot_id` that some messages have and others lack."""
    held = set(words_of(name_of(route)))
    share = units.counts[route] / max(1, len(units))
    if not held & {"bot", "assistant", "agent", "ai"} or not 0.2 <= share <= 0.8 or len(route) > 1:
        return None
    doubt = f"messages with {as_path(route)} are taken for the agent's, all others for the user's"
    return Roles((route,), {"*": "assistant"}, score=0.3, doubts=(doubt,), default="user")


def _by_turns(units: Units, route: Route) -> Roles | None:
    """Two names that take turns: who begins is taken for the user."""
    column = [written(value) for value in units.column(route) if scalar(value)]
    names = list(dict.fromkeys(column))
    if len(names) != 2 or len(column) < len(units) or any(len(name) > 40 for name in names):
        return None
    changes = sum(one != other for one, other in pairwise(column))
    if changes < 0.8 * (len(column) - 1):
        return None
    doubt = f"{names[0]!r} begins, and is taken for the user"
    means: dict[str, str | None] = {names[0]: "user", names[1]: "assistant"}
    return _made((route,), Counter(column), means, 0.3, (doubt,))


def _values_at(units: Units, route: Route) -> Counter[str] | None:
    values = Counter(written(value) for value in units.column(route) if scalar(value))
    total = sum(values.values())
    few = min(_MOST_ROLES, max(3, total // 2 + 1))
    return values if values and len(values) <= few and all(len(value) <= 40 for value in values) else None


def _roles_at(units: Units, route: Route) -> Roles | None:
    """What a field says of who speaks, where it tells both sides of a talk."""
    values = _values_at(units, route)
    if values is None:
        return None
    total = sum(values.values())
    means = _flag_means(route, values) or {value: said_by(value) for value in values}
    known = sum(count for value, count in values.items() if means[value] is not None)
    sides = {means[value] for value in values}
    agent = sides & {"assistant", "call"}
    if not agent or not sides & {"user", "tool", "system"} or known < 0.6 * total:
        return None
    rank = rank_in(name_of(route), ROLE_KEYS)
    bonus = 0.0 if rank is None else 0.4 * (1 - rank / len(ROLE_KEYS))
    both = 0.3 if "user" in sides else 0.0
    score = known / max(1, len(units)) + bonus + both
    return _made((route,), values, means, score, _doubts(values, means))


def _kinds_at(units: Units, route: Route) -> Roles | None:
    """What a field says of messages that are no speech: calls, results, signs of life."""
    values = _values_at(units, route)
    if values is None or rank_in(name_of(route), ROLE_KEYS) is None:
        return None
    means = {value: said_by(value) for value in values}
    useful = {"tool", "call", "skip"} & {role for role in means.values() if role is not None}
    if not useful:
        return None
    return _made((route,), values, means, len(useful), ())


def _joined(units: Units, best: Roles, other: Roles) -> Roles | None:
    """Both fields, where the other says something that the best does not: what is a call, a result, or no message."""
    more = {value: role for value, role in other.table.items() if role == "tool" or value in other.calls}
    if any(best.table.get(value, role) != role for value, role in more.items()):
        return None
    changed = [
        unit
        for unit in units.values
        if (said := other.of(unit)) in ("tool", "call") and said != best.of(unit)
    ]
    skipped = [held for unit, held in zip(units.values, units.flats, strict=True) if other.skipped(unit)]
    skips = {} if any(map(has_sentence, skipped)) else other.skips
    if not changed and not (skips and skipped):
        return None
    return Roles(
        (*other.routes, *best.routes),
        {**best.table, **more},
        best.calls | other.calls,
        {**best.skips, **skips},
        best.unknown,
        best.score,
        best.doubts,
    )


def _flag_means(route: Route, values: Counter[str]) -> dict[str, str | None] | None:
    """A flag such as `is_bot`."""
    if not set(values) <= _FLAGS or len(values) > 2:
        return None
    held = set(words_of(name_of(route)))
    sides = [side for side, known in (("user", USER), ("assistant", ASSISTANT)) if held & known]
    if len(sides) != 1:
        return dict.fromkeys(values)
    other = "assistant" if sides[0] == "user" else "user"
    return {value: sides[0] if value.lower() in ("true", "1", "yes") else other for value in values}


def _made(
    routes: tuple[Route, ...],
    values: Counter[str],
    means: dict[str, str | None],
    score: float,
    doubts: tuple[str, ...],
) -> Roles:
    table = {
        value: "assistant" if role == "call" else role
        for value, role in means.items()
        if role is not None and role != "skip"
    }
    return Roles(
        routes,
        table,
        frozenset(value for value, role in means.items() if role == "call"),
        {value: True for value, role in means.items() if role == "skip"},
        {value: values[value] for value, role in means.items() if role is None},
        score,
        doubts,
    )


def _doubts(values: Counter[str], means: dict[str, str | None]) -> tuple[str, ...]:
    doubts = []
    agents = [value for value in values if means[value] == "assistant"]
    people = [value for value in agents if set(words_of(value)) & {"operator", "support", "representative"}]
    human = [value for value in agents if {"human", "live"} & set(words_of(value))]
    bots = [
        value for value in agents if set(words_of(value)) & {"bot", "ai", "chatbot", "llm", "gpt", "model"}
    ]
    others = [value for value in agents if value not in bots]
    if bots and others and (people or human or "agent" in {value.lower() for value in others}):
        doubts.append(
            f"are {', '.join(map(repr, sorted(others)))} people? then they are no decisions of the agent"
        )
    unknown = sorted(value for value in values if means[value] is None)
    if unknown:
        doubts.append(f"who is {', '.join(map(repr, unknown[:4]))}? give each a role, or skip it")
    return tuple(doubts)


# --- a field for each side ------------------------------------------------------------------------------------------


def find_sides(units: Units, closed: Iterable[Route] = ()) -> Sides | None:
    """The fields of question and answer; what stands below `closed` (the calls) is neither."""
    shut = tuple(closed)
    asked: list[tuple[float, Route]] = []
    answered: list[tuple[float, Route]] = []
    for route in units.scalars(deepest=8, lists=2):
        if (None in route and not _is_single(units, route)) or any(route[: len(one)] == one for one in shut):
            continue
        side = side_of([step for step in route if isinstance(step, str)])
        told = talking(units, route)
        if side is None or told.coverage < 0.05 or told.length < 2:
            continue
        if rank_in(name_of(route), (*SYSTEM_KEYS, *ID_KEYS)) is not None:
            continue
        weight = side[1] + told.coverage + 0.5 * told.spaced + (told.distinct > 0.2) - 0.2 * len(route)
        (asked if side[0] == "user" else answered).append((weight, route))
    doubts: list[str] = []
    for missing, other, who in ((answered, asked, "agent"), (asked, answered, "user")):
        if not missing and other:
            rest = _other_side(units, {route for _, route in other})
            missing += rest
            doubts += [f"{as_path(route)} is taken for what the {who} says" for _, route in rest]
    if not asked or not answered:
        return None
    asked.sort(key=lambda one: (-one[0], as_path(one[1])))
    answered.sort(key=lambda one: (-one[0], as_path(one[1])))
    doubts += [
        f"{as_path(side[0][1])} is taken for speech" for side in (asked, answered) if not _is_named_so(side)
    ]
    user, assistant = asked[0][1], answered[0][1]
    doubts += [*_rivals(units, user, asked), *_rivals(units, assistant, answered)]
    either = sum(user in held or assistant in held for held in units.flats) / max(1, len(units))
    strong = min(asked[0][0], answered[0][0])
    return Sides(user, assistant, either * (0.5 + strong / 8), tuple(doubts))


def _is_named_so(side: list[tuple[float, Route]]) -> bool:
    """The best field's own name tells the side, or that it holds contents; not just that of an object around it."""
    name = name_of(side[0][1])
    return side_of([name]) is not None or rank_in(name, CONTENT_KEYS) is not None


def _other_side(units: Units, known: set[Route]) -> list[tuple[float, Route]]:
    """The one other field with speech in it, under a name for contents."""
    routes = [
        route
        for route in units.scalars(deepest=6, lists=2)
        if route not in known
        and rank_in(name_of(route), CONTENT_KEYS) is not None
        and _is_single(units, route)
    ]
    speech = [route for route in routes if _is_speech(units, route)]
    return [(1.0, speech[0])] if len(speech) == 1 else []


def _is_speech(units: Units, route: Route) -> bool:
    told = talking(units, route)
    return told.coverage > 0.5 and told.spaced > 0.5 and told.distinct > 0.3


def _is_single(units: Units, route: Route) -> bool:
    """Lists on the way hold one text each, or nearly."""
    counts = [len(held[route]) for held in units.flats if route in held]
    return sum(counts) <= 1.2 * len(counts)


def _rivals(units: Units, chosen: Route, ranked: list[tuple[float, Route]]) -> list[str]:
    """Other fields that say something else and would do as well."""
    best = ranked[0][0]
    near = [
        route
        for weight, route in ranked[1:]
        if best - weight < 1.0
        and units.column(route) != units.column(chosen)
        and talking(units, route).coverage > 0.3
    ]
    return [f"or {', '.join(as_path(route) for route in near[:3])}?"] if near else []
