"""A call's arguments, as canonical JSON text. Text that is no JSON is mended where its meaning is certain.

Every repair is recorded; a text that is cut off is never completed, and none becomes `{}` without saying so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from logforge.connectors.episodes.tool_names import KINDS, tool_action
from logforge.connectors.records import NotJson, canonical, loads, mend
from logforge.schemas import ArgumentsStatus, Episode, Step


class Parsed(NamedTuple):
    """Canonical JSON text, or the raw text when it is invalid. `repair` names what was done, joined by `+`."""

    text: str
    status: ArgumentsStatus
    repair: str | None = None


class Absent(NamedTuple):
    """Stands for arguments that a call should have and the log does not hold: their text is empty, and invalid."""


_NONE = Parsed("{}", "ok")


def parse_arguments(raw: Any) -> Parsed:
    """Read a call's arguments: an object, JSON text, nothing (None, "" and "null"), or damaged text.

    A list or a scalar is kept as it is. Text that holds the JSON text of an object or a list is unwrapped once.
    """
    if isinstance(raw, Absent):
        return Parsed("", "invalid")
    if raw is None or raw == "":
        return _NONE
    if not isinstance(raw, str):
        return Parsed(canonical(raw), "ok", None)
    try:
        value = loads(raw)
    except NotJson:
        return _mended(raw)
    if isinstance(value, str):
        return _inside(value)
    return _NONE if value is None else Parsed(canonical(value), "ok", None)


def _mended(raw: str) -> Parsed:
    found = mend(raw)
    if found is None:
        return Parsed(raw, "invalid")
    return Parsed("{}" if found.value is None else canonical(found.value), "repaired", "+".join(found.kinds))


def _inside(text: str) -> Parsed:
    """What a JSON string holds: an object or a list, whole or mended, else the string itself."""
    try:
        value = loads(text)
    except NotJson:
        begun = text.lstrip()[:1] in ("{", "[", "`") and text.strip() != ""
        found = mend(text) if begun else None
        if found is None or "prose" in found.kinds:
            return Parsed(canonical(text), "ok")
        return Parsed(canonical(found.value), "repaired", "+".join(("double_encoded", *found.kinds)))
    if value is None:
        return _NONE
    if isinstance(value, dict | list):
        return Parsed(canonical(value), "repaired", "double_encoded")
    return Parsed(canonical(text), "ok")


def as_logged(episode: Episode) -> Episode:
    """The episode with every repair undone: damaged arguments invalid, names as they were called."""
    if all(step.repair is None for step in episode.steps):
        return episode
    steps = [step if step.repair is None else _as_logged(step) for step in episode.steps]
    return msgspec.structs.replace(episode, steps=steps)


def _as_logged(step: Step) -> Step:
    changes: dict[str, Any] = {"repair": None, "logged_arguments": None}
    if step.arguments_status == "repaired":
        changes.update(arguments=step.logged_arguments, arguments_status="invalid")
    if not KINDS.isdisjoint((step.repair or "").split("+")):
        changes.update(
            action=tool_action(step.proposed_action or ""), proposed_action=None, action_valid=False
        )
    return msgspec.structs.replace(step, **changes)
