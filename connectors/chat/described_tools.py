"""Which tools a system prompt describes, in sets that have no column for them: as JSON in the text."""

from __future__ import annotations

from typing import Any

from logforge.connectors.episodes import json_value

_MISSES = 100
"""After so many brackets that begin no JSON a prompt is not looked at further."""


def functions_in(prompt: str) -> list[str] | None:
    """The names of the functions that a prompt describes as JSON objects, or as a list of them; None when it holds none."""
    names: list[str] = []
    place, misses = 0, 0
    while (
        misses < _MISSES
        and (
            start := min(
                (i for i in (prompt.find("{", place), prompt.find("[", place)) if i >= 0), default=-1
            )
        )
        >= 0
    ):
        found = json_value(prompt, start)
        described = [] if found is None else found[0] if isinstance(found[0], list) else [found[0]]
        names += [name for item in described if (name := _named(item))]
        place, misses = (start + 1, misses + 1) if found is None else (found[1], misses)
    return sorted(set(names)) or None


def _named(value: Any) -> str | None:
    inner = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not {"parameters", "description"} & inner.keys():
        return None
    name = inner.get("name")
    return name if isinstance(name, str) and name else None
