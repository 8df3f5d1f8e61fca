"""Paths of the mapping language: `$.turns[*].text`, a small part of JSONPath, with the locator of whatever they find.

`$` is the thing at hand (a message inside `messages`, else the record), `$$` the record. A path goes through JSON text as
through the value it holds.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from logforge.connectors.attributes import Found, escape
from logforge.connectors.said import inside

_STEP = re.compile(
    r"""\.([^.\[\]'"*\s]+)|\[(-?\d{1,9})\]|\[\*\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)


class BadPath(ValueError):
    """No path of this language; the message says why."""


class Path(NamedTuple):
    """A parsed path. A step is a key, an index, or None for all elements."""

    text: str
    of_record: bool
    steps: tuple[str | int | None, ...]

    @property
    def first_key(self) -> str | None:
        """The key it begins with."""
        return self.steps[0] if self.steps and isinstance(self.steps[0], str) else None

    def find(self, here: Found, record: Found) -> list[Found]:
        """Everything it leads to, in order."""
        found = [record if self.of_record else here]
        for step in self.steps:
            found = [inner for value in found for inner in _step(value, step)]
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


def _step(found: Found, step: str | int | None) -> list[Found]:
    value, where = inside(found.value, found.where)
    if step is None:
        if isinstance(value, list):
            return [_below(where, item, str(index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return [_below(where, item, escape(key)) for key, item in value.items()]
        return []
    if isinstance(step, int):
        if not isinstance(value, list) or not -len(value) <= step < len(value):
            return []
        return [_below(where, value[step], str(step % len(value)))]
    if not isinstance(value, dict) or step not in value:
        return []
    return [_below(where, value[step], escape(step))]


def _below(where: Any, value: Any, token: str) -> Found:
    return Found(value, lambda pointer: where(f"/{token}{pointer}"))
