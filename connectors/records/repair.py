"""Mends text that was meant as one JSON object or list: what its tokens certainly mean, written as JSON and read again.

A text that is cut off (a bracket or a string left open) is refused, and so is whatever could mean two things.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from logforge.connectors.records.json import NotJson, loads
from logforge.connectors.records.json_tokens import (
    Token,
    Unclear,
    as_json,
    has_hole,
    has_stray_backslash,
    is_python,
    scan,
    side_by_side,
)
from logforge.connectors.records.pyliteral import MAX_LENGTH, NotLiteral, literal

KINDS = (
    "fence",
    "prose",
    "double_encoded",
    "python_literal",
    "smart_quotes",
    "unquoted_key",
    "trailing_comma",
    "control_character",
    "bad_escape",
    "json_repair",
)
"""What a repair of arguments can be."""

_GUESS_LENGTH = 20_000  # json-repair needs time with the square of the length
_GUESS_DEPTH = 50
_ASIDE_LENGTH = 1000

# Code, patches and shell commands hold characters that prose does not: an object inside them is no argument by itself.
_PROSE = re.compile(r"[\w\s.,:;!?'’‘“”\"*<>/()–—…-]*")
_LEADS_IN = re.compile(r"(?:.*[:.!?>\n])?[ \t]*", re.DOTALL)
_FENCE_OPENS = re.compile(r"`{1,3}[\w+-]*\s*\Z")
_FENCE_CLOSES = re.compile(r"\s*`{1,3}")


class Mended(NamedTuple):
    """What a damaged text means, and what was wrong with it."""

    value: Any
    kinds: tuple[str, ...]


def mend(text: str) -> Mended | None:
    """The one object or list that a text without valid JSON holds; None when it is cut off or unclear."""
    if len(text) > MAX_LENGTH:
        return None
    if text.strip() == "None":
        return Mended(None, ("python_literal",))
    if encoded := _encoded_twice(text):
        return encoded
    start = min((place for place in map(text.find, "{[") if place >= 0), default=-1)
    if start < 0 or start > _ASIDE_LENGTH:
        return None
    scanned = scan(text, start)
    if scanned is None:
        return None
    tokens, end = scanned
    around = _around(text[:start], text[end:])
    if around is None or (around == "prose" and text[start] != "{"):
        return None
    inner = _core(text[start:end], tokens, guess=around != "prose")
    return inner and Mended(inner.value, ((around,) if around else ()) + inner.kinds)


def _encoded_twice(text: str) -> Mended | None:
    """JSON text as a Python string, or JSON text whose quotes are escaped though nothing stands around them."""
    kinds: tuple[str, ...] = ("double_encoded",)
    try:
        if text.lstrip().startswith("'"):
            inner = literal(text.strip())
            kinds = ("python_literal", *kinds)
        elif '\\"' in text and text.lstrip()[:1] in ("{", "["):
            inner = loads(f'"{text.strip()}"')
        else:
            return None
        value = loads(inner) if isinstance(inner, str) else None
    except (NotJson, NotLiteral):
        return None
    return Mended(value, kinds) if isinstance(value, dict | list) else None


def _around(before: str, after: str) -> str | None:
    """What stands around an object: "" nothing, `fence`, `prose`, or None when it may be more than that."""
    if not before.strip() and not after.strip():
        return ""
    opening, closing = _FENCE_OPENS.search(before), _FENCE_CLOSES.match(after)
    kind = "fence" if opening or closing else "prose"
    if opening:
        before = before[: opening.start()]
        if closing is None and after.strip():
            return None
    elif not _LEADS_IN.fullmatch(before):
        return None
    if closing:
        after = after[closing.end() :]
    return kind if _is_prose(before, after) else None


def _is_prose(before: str, after: str) -> bool:
    """Short text without code in it, and no quote or parenthesis that the object may lie within."""
    both = before + after
    return (
        len(both) <= _ASIDE_LENGTH
        and _PROSE.fullmatch(both) is not None
        and before.lstrip()[:1] not in ('"', "'", "“", "‘")
        and before.count('"') % 2 == 0
        and before.count("(") <= before.count(")")
    )


def _core(text: str, tokens: list[Token], *, guess: bool) -> Mended | None:
    """Read what lies between the brackets: as JSON, as JSON once its tokens are put right, as Python, by guessing."""
    try:
        return Mended(loads(text), ())
    except NotJson:
        pass
    kinds: list[str] = []
    try:
        value = loads(" ".join(as_json(tokens, kinds)))
        return Mended(value, tuple(kind for kind in KINDS if kind in kinds))
    except (NotJson, Unclear):
        pass
    if is_python(tokens) and not side_by_side(tokens):
        try:
            return Mended(literal(text), ("python_literal",))
        except NotLiteral:
            return None
    return _guessed(text) if guess and not has_hole(tokens) else None


def _guessed(text: str) -> Mended | None:
    """What json-repair makes of it, unless that loses or invents anything but commas, colons and blanks."""
    depth = max(text.count("{"), text.count("["))
    if len(text) > _GUESS_LENGTH or depth > _GUESS_DEPTH or has_stray_backslash(text):
        return None
    import json_repair

    try:
        value = json_repair.loads(text, skip_json_loads=True, strict=True)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict | list) or _skeleton(text) != _skeleton(
        json.dumps(value, ensure_ascii=False)
    ):
        return None
    return Mended(value, ("json_repair",))


def _skeleton(text: str) -> str:
    return re.sub(r"[\s,:\\]", "", text)
