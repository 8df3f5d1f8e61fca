"""Paths of the mapping language: `$.turns[*].text`, a small part of JSONPath, with the locator of whatever they find.

`$` is the thing at hand (a message inside `messages`, else the record), `$$` the record. A path goes through JSON text as
through the value it holds.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from logforge.connectors.traces import Where, escape, inside

Trail = tuple[str | int, ...]
"""The keys and indices that lead from a record to a value; JSON text on the way leaves none."""

_STEP = re.compile(
    r"""\.([^.\[\]'"*\s]+)|\[(-?\d{1,9})\]|\[\*\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)


class BadPath(ValueError):
    """No path of this language; the message says why."""


class Spot(NamedTuple):
    """A value, the locators of what is inside it, and its trail in the record."""

    value: Any
    where: Where
    trail: Trail = ()

    @property
    def locator(self) -> str:
        """Where the value itself stands."""
        return self.where("")


class Path(NamedTuple):
    """A parsed path. A step is a key, an index, or None for all elements."""

    text: str
    of_record: bool
    steps: tuple[str | int | None, ...]

    @property
    def first_key(self) -> str | None:
        """The key it begins with."""
        return self.steps[0] if self.steps and isinstance(self.steps[0], str) else None

    def find(self, here: Spot, record: Spot) -> list[Spot]:
        """Everything it leads to, in order."""
        found = [record if self.of_record else here]
        for step in self.steps:
            found = (
                _step(found[0], step) if len(found) == 1 else [x for spot in found for x in _step(spot, step)]
            )
        return found


def parse_path(text: str) -> Path:
    """Parse a path. Raises BadPath."""
    rest = text.strip()
    of_record = rest.startswith("$$")
    if not rest.startswith("$"):
        raise BadPath(f"a path begins with $ or $$: {text!r}")
    at, steps = 2 if of_record else 1, []
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise BadPath(f"not understood from {rest[at : at + 20]!r} on (known: .name ['name'] [0] [*])")
        name, index, single, double = match.groups()
        quoted = single if single is not None else double
        if quoted is not None:
            name = re.sub(r"\\(.)", r"\1", quoted)
        steps.append(int(index) if index is not None else name)
        at = match.end()
    return Path(rest, of_record, tuple(steps))


def _step(found: Spot, step: str | int | None) -> list[Spot]:
    value, where = inside(found.value, found.where)
    if step is None:
        keys: list[str | int] = (
            [*(range(len(value)) if isinstance(value, list) else value)] if _holds(value) else []
        )
    elif isinstance(step, int):
        fits = isinstance(value, list) and -len(value) <= step < len(value)
        keys = [step % len(value)] if fits else []
    else:
        keys = [step] if isinstance(value, dict) and step in value else []
    return [Spot(value[key], _below(where, key), (*found.trail, key)) for key in keys]


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _below(where: Where, key: str | int) -> Where:
    return lambda pointer: where(f"/{escape(str(key))}{pointer}")
