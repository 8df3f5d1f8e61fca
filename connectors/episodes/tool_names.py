"""Names of tools: which one was meant, where a call names none of those offered but nearly one, and which are reserved."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from logforge.connectors.records import NotJson, loads
from logforge.schemas import CLARIFY, INVALID, RESPOND

KINDS = frozenset({"name_wrapped", "name_case", "name_near"})
"""What a repair of a name can be."""

TOOL_PREFIX = "tool:"
"""Stands before the action of a tool whose name is reserved: speaking is another action than calling that tool."""

_RESERVED = re.compile(
    f"(?:{TOOL_PREFIX})*(?:{'|'.join(re.escape(name) for name in (RESPOND, CLARIFY, INVALID))})"
)
_NEAR_LENGTH = 5
_PREFIX = re.compile(r"(?:functions?|tools?|default_api)[.:/]+", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\W_]+")
_FENCE = re.compile(r"```\w*\s|`")


class Meant(NamedTuple):
    """An offered tool and how far the name was from it."""

    name: str
    kind: str


def tool_action(name: str) -> str:
    """The action of calling a tool: its name, but for a reserved one (`respond` is `tool:respond`)."""
    return f"{TOOL_PREFIX}{name}" if _RESERVED.fullmatch(name) else name


def bare_name(action: str) -> str:
    """The tool's own name, from the action of calling it."""
    name = action.removeprefix(TOOL_PREFIX)
    return name if tool_action(name) == action else action


def meant(name: str, offered: Iterable[str]) -> Meant | None:
    """The one offered tool that a name not among them stands for; None when there is none, or more than one."""
    tools = set(offered)
    bare = _PREFIX.sub("", _unwrapped(name), count=1) if name else ""
    if bare != name and bare in tools:
        return Meant(bare, "name_case" if name.endswith(bare) else "name_wrapped")
    folded = _folded(bare)
    if not folded:
        return None
    same = [tool for tool in tools if _folded(tool) == folded]
    if same:
        return Meant(same[0], "name_case") if len(same) == 1 else None
    near = [tool for tool in tools if _is_near(_folded(tool), folded)]
    return Meant(near[0], "name_near") if len(near) == 1 else None


def _unwrapped(name: str) -> str:
    """The name in a fence, in quotes, or in an object that holds it as `name`."""
    bare = _FENCE.sub("", name).strip().strip("'\"").strip()
    if name.lstrip()[:1] not in ("{", "`"):
        return bare
    try:
        value = loads(_FENCE.sub("", name).strip())
    except NotJson:
        return bare
    inner = value.get("name") if isinstance(value, dict) else value
    return inner if isinstance(inner, str) else bare


def _folded(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def _is_near(one: str, other: str) -> bool:
    """One letter too many, missing or wrong. A digit is no slip: `read_1` and `read_2` are two things."""
    if min(len(one), len(other)) < _NEAR_LENGTH or abs(len(one) - len(other)) > 1:
        return False
    start = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    shorter, longer = sorted((one[start:], other[start:]), key=len)
    rest = shorter if len(shorter) < len(longer) else shorter[1:]
    changed = longer[:1] if len(shorter) < len(longer) else shorter[:1] + longer[:1]
    return longer[1:] == rest and not any(character.isdigit() for character in changed)
