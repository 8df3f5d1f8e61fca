"""Python literals as logs hold them, `{'name': 'f', 'arguments': '{}'}`: read as data, never run, even when cut off."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any, NamedTuple

MAX_LENGTH = 1_000_000
"""Longer texts are refused: the parser needs many times their size."""
MAX_DEPTH = 50
"""Deeper nesting is refused."""

_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_STRINGS = re.compile(_STRING, re.DOTALL)
_KEY = re.compile(rf"[{{,]\s*({_STRING})\s*:\s*", re.DOTALL)
_PLAIN = re.compile(rf"((?:{_STRING})(?=\s*(?:[,}}]|\Z))|[^\s,{{}}\[\]()'\"]+(?=\s*[,}}]))\s*", re.DOTALL)
_HALF_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:x[0-9a-f]?|u[0-9a-f]{0,3}|U[0-9a-f]{0,7})?)\Z", re.IGNORECASE
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class NotLiteral(ValueError):
    """The text is no Python literal of plain data."""


class Fields(NamedTuple):
    """The fields of a dict's text. `cut` names the one whose value is cut off; its visible part is in `values`."""

    values: dict[str, Any]
    cut: str | None = None


def literal(text: str) -> Any:
    """The value of a literal made of text, numbers, True, False, None, lists, tuples and dicts with text keys.

    Raises NotLiteral for anything else, and for what is too long or nested too deep.
    """
    if len(text) > MAX_LENGTH or _depth(text) > MAX_DEPTH:
        raise NotLiteral("too long or nested too deep")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape such as "\_" is data here, no mistake of ours
            return _plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise NotLiteral(type(error).__name__) from None


def fields(text: str) -> Fields:
    """The fields of a dict's text, whole or cut off. Raises NotLiteral when not even the first one is there."""
    try:
        value = literal(text)
    except NotLiteral:
        return _visible(text)
    if not isinstance(value, dict):
        raise NotLiteral("no dict")
    return Fields(value)


def _visible(text: str) -> Fields:
    """Field by field up to the place where the text is cut off; a value that is no plain one counts as cut off."""
    values: dict[str, Any] = {}
    place = 0
    while key := _KEY.match(text, place):
        name = str(literal(key.group(1)))
        whole = _PLAIN.match(text, key.end())
        if whole is None:
            values[name] = _begun(text[key.end() :])
            return Fields(values, name)
        values[name] = literal(whole.group(1))
        place = whole.end()
    if not values:
        raise NotLiteral("no field")
    return Fields(values, "" if place < len(text) else None)


def _begun(text: str) -> str:
    """The visible part of a text whose closing quote is cut off; what is no text stays as it is."""
    quote, body = text[:1], text[1:]
    if quote not in ("'", '"') or re.search(rf"(?<!\\)(?:\\\\)*{quote}", body):
        return text
    half = _HALF_ESCAPE.search(body)
    if half:
        body = body[: half.start(1)]
    try:
        return str(literal(quote + body.replace("\n", "\\n").replace("\r", "\\r") + quote))
    except NotLiteral:
        return body


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in re.sub(r"[^\[\](){}]", "", _STRINGS.sub("", text)):
        depth += 1 if character in "[({" else -1
        deepest = max(deepest, depth)
    return deepest


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {_SURROGATE.sub("\ufffd", key): _plain(item) for key, item in value.items()}
    raise ValueError("no plain data")
