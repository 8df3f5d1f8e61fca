"""Where values stand in records: routes of keys and of "any element", what stands at the end of them, and how a mapping writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.traces import inside

Route = tuple[str | int | None, ...]
"""Keys, indices, and None for every element of a list or of an object that is a list with names."""

_DEEPEST = 9
_WIDEST = 400
_PLAIN = re.compile(r"[^.\[\]'\"*\s]+")
_NUMBERED = re.compile(r"\d+|[A-Za-z]+[-_ ]?\d+|(?:[A-Za-z]+[-_ ])?(?=.*\d)[0-9a-fA-F-]{8,}")


def opened(value: Any) -> Any:
    """A value, or what JSON text of an object or a list holds."""
    return inside(value, str)[0]


def is_numbered(value: Any) -> bool:
    """An object whose keys are numbers or ids (`turn_1`, `turn_2`) and whose values are objects or lists: a list with names."""
    return (
        isinstance(value, dict)
        and len(value) > 0
        and all(isinstance(item, dict | list) for item in value.values())
        and all(_NUMBERED.fullmatch(str(key)) for key in value)
    )


def walk(value: Any, route: Route = ()) -> Iterator[tuple[Route, Any]]:
    """Every value with its route, the outer before the inner; JSON text as what it holds."""
    held = opened(value)
    yield route, held
    if len(route) >= _DEEPEST:
        return
    if isinstance(held, list) or is_numbered(held):
        items = held if isinstance(held, list) else list(held.values())
        for item in items[:_WIDEST]:
            yield from walk(item, (*route, None))
    elif isinstance(held, dict):
        for key, item in list(held.items())[:_WIDEST]:
            yield from walk(item, (*route, str(key)))


def found(value: Any, route: Route) -> list[Any]:
    """Everything that a route leads to; JSON text as what it holds."""
    held = [opened(value)]
    for step in route:
        held = [inner for item in held for inner in _step(item, step)]
    return held


def first(value: Any, route: Route) -> Any:
    """The first that a route leads to and that is not null."""
    return next((item for item in found(value, route) if item is not None), None)


def _step(value: Any, step: str | int | None) -> list[Any]:
    if step is None:
        items = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
        return [opened(item) for item in items]
    if isinstance(step, int):
        return [opened(value[step])] if isinstance(value, list) and step < len(value) else []
    return [opened(value[step])] if isinstance(value, dict) and step in value else []


def as_path(route: Route, begins: str = "$") -> str:
    """A route as the mapping language writes it."""
    return begins + "".join(_written(step) for step in route)


def _written(step: str | int | None) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN.fullmatch(step):
        return f".{step}"
    quoted = step.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{quoted}']"


def name_of(route: Route) -> str:
    """The last key of a route; "" when it has none."""
    return next((step for step in reversed(route) if isinstance(step, str)), "")


def full_name(route: Route) -> str:
    """The last key; where that is a mere `id`, with the key before it: `session.id` is a `session_id`."""
    keys = [step for step in route if isinstance(step, str)]
    return (
        "_".join(keys[-2:])
        if len(keys) > 1 and keys[-1].lower() in ("id", "key", "uuid", "sid")
        else name_of(route)
    )


def is_text(value: Any) -> bool:
    """Words, and no JSON."""
    return isinstance(value, str) and bool(value.strip()) and not isinstance(opened(value), dict | list)


def is_dated(value: Any) -> bool:
    """Text that begins as a date does, and so sorts as times do."""
    return isinstance(value, str) and len(value) >= 10 and value[:4].isdigit() and value[4] == "-"


def scalar(value: Any) -> bool:
    """Text, a number or a flag."""
    return isinstance(value, str | int | float | bool)
