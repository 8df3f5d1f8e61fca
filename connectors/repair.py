"""Mends text that was meant as one JSON object or list: what its tokens certainly mean, written as JSON and read again.

A text that is cut off (a bracket or a string left open) is refused, and so is whatever could mean two things.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from logforge.connectors.jsontext import NotJson, canonical, loads
from logforge.connectors.pyliteral import MAX_LENGTH, NotLiteral, literal

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

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>"[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*' | “[^”\\]*(?:\\.[^”\\]*)*” | ‘[^’\\]*(?:\\.[^’\\]*)*’)
      | (?P<word>-?[\w$][\w$.+-]*)
      | (?P<mark>[{}\[\](),:])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {"{": "}", "[": "]", "(": ")"}
_QUOTES = ('"', "'", "“", "‘")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_IN_TEXT = re.compile(r'\\.|[\x00-\x1f"]', re.DOTALL)
_ESCAPE = re.compile(r'(?P<sign>\\["\\/])|(?P<letter>\\(?:[bfnrt]|u[0-9a-fA-F]{4}))|\\')
_HALF_ESCAPED = re.compile(r'\s*[{\[]\s*[{\[\s]*\\"')
# Code, patches and shell commands hold characters that prose does not: an object inside them is no argument by itself.
_PROSE = re.compile(r"[\w\s.,:;!?'’‘“”\"*<>/()–—…-]*")
_LEADS_IN = re.compile(r"(?:.*[:.!?>\n])?[ \t]*", re.DOTALL)
_FENCE_OPENS = re.compile(r"`{1,3}[\w+-]*\s*\Z")
_FENCE_CLOSES = re.compile(r"\s*`{1,3}")


class Mended(NamedTuple):
    """What a damaged text means, and what was wrong with it."""

    value: Any
    kinds: tuple[str, ...]


class _Token(NamedTuple):
    kind: str
    text: str


class _Unclear(ValueError):
    """The tokens do not say what is meant."""


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
    scanned = _scan(text, start)
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
        elif _HALF_ESCAPED.match(text):
            inner = loads(f'"{text.strip()}"')
        else:
            return None
        value = loads(inner) if isinstance(inner, str) else None
    except (NotJson, NotLiteral):
        return None
    return Mended(value, kinds) if isinstance(value, dict | list) else None


def _scan(text: str, start: int) -> tuple[list[_Token], int] | None:
    """The tokens from a bracket to the one that closes it, blanks left out; None when that one is not there."""
    tokens: list[_Token] = []
    closing: list[str] = []
    for match in _TOKEN.finditer(text, start):
        token = _Token(match.lastgroup or "", match.group())
        if token.kind == "space":
            continue
        tokens.append(token)
        if token.kind == "other" and token.text in _QUOTES:
            return None
        if token.text in _CLOSES:
            closing.append(_CLOSES[token.text])
        elif token.kind == "mark" and token.text in "}])":
            if closing.pop() != token.text:
                return None
            if not closing:
                return tokens, match.end()
    return None


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


def _core(text: str, tokens: list[_Token], *, guess: bool) -> Mended | None:
    """Read what lies between the brackets: as JSON, as JSON once its tokens are put right, as Python, by guessing."""
    try:
        return Mended(loads(text), ())
    except NotJson:
        pass
    kinds: list[str] = []
    try:
        value = loads(" ".join(_as_json(tokens, kinds)))
        return Mended(value, tuple(kind for kind in KINDS if kind in kinds))
    except (NotJson, _Unclear):
        pass
    if _is_python(tokens) and not _side_by_side(tokens):
        try:
            return Mended(literal(text), ("python_literal",))
        except NotLiteral:
            return None
    return _guessed(text) if guess and not _has_hole(tokens) else None


def _as_json(tokens: list[_Token], kinds: list[str]) -> Iterator[str]:
    """The tokens as JSON; `kinds` gets what had to be changed. Raises _Unclear."""
    previous, python = "", _is_python(tokens)
    for token, following in zip(tokens, [*(t.text for t in tokens[1:]), ""], strict=True):
        if token.kind == "text":
            yield _text(token.text, kinds, python)
        elif token.kind == "word":
            yield _word(token.text, following, kinds)
        elif token.kind == "other" or token.text in "()":
            raise _Unclear(token.text)
        elif token.text == "," and following in ("}", "]") and previous not in ("{", "[", ",", ":"):
            kinds.append("trailing_comma")
        else:
            yield token.text
        previous = token.text


def _word(word: str, following: str, kinds: list[str]) -> str:
    if following == ":":
        kinds.append("unquoted_key")
        return canonical(word)
    if word in _PYTHON_WORDS:
        kinds.append("python_literal")
    return _PYTHON_WORDS.get(word, word)


def _text(token: str, kinds: list[str], python: bool) -> str:
    """A quoted text of any kind as a JSON string."""
    quote, body = token[0], token[1:-1]
    if quote != '"':
        kinds.append("python_literal" if quote == "'" else "smart_quotes")
    elif _is_json(token):
        return token
    if any(character < " " for character in body):
        kinds.append("control_character")
    mended = f'"{_IN_TEXT.sub(_escaped, body)}"'
    if not _is_json(mended):
        if python:
            return _python_text(mended)
        mended = _with_backslashes(mended)
        kinds.append("bad_escape")
    elif quote == '"' and "\\'" in body:
        kinds.append("bad_escape")
    return mended


def _python_text(token: str) -> str:
    try:
        return canonical(literal(token))
    except NotLiteral:
        raise _Unclear(token) from None


def _with_backslashes(token: str) -> str:
    """Each backslash before what JSON does not escape (`\\d`) stands for itself; then `\\n` beside it is unclear."""
    if any(match.group("letter") for match in _ESCAPE.finditer(token)):
        raise _Unclear(token)
    return _ESCAPE.sub(lambda match: match.group("sign") or "\\\\", token)


def _escaped(match: re.Match[str]) -> str:
    found = match.group()
    if found == "\\'":
        return "'"
    if len(found) == 2 and found[1] < " ":  # a backslash at the end of a line: both are kept
        return "\\\\" + json.dumps(found[1])[1:-1]
    return found if len(found) == 2 else json.dumps(found)[1:-1]


def _is_json(text: str) -> bool:
    try:
        loads(text)
        return True
    except NotJson:
        return False


def _is_python(tokens: list[_Token]) -> bool:
    return any(
        token.text == "(" or token.text in _PYTHON_WORDS or (token.kind == "text" and token.text[0] == "'")
        for token in tokens
    )


def _side_by_side(tokens: list[_Token]) -> bool:
    """Python joins two strings without a comma between them; a person may have meant quotes inside one."""
    return any(one.kind == other.kind == "text" for one, other in pairwise(tokens))


def _has_hole(tokens: list[_Token]) -> bool:
    return any(one.text == other.text == "," for one, other in pairwise(tokens))


def _guessed(text: str) -> Mended | None:
    """What json-repair makes of it, unless that loses or invents anything but commas, colons and blanks."""
    depth = max(text.count("{"), text.count("["))
    stray = any(match.lastgroup is None for match in _ESCAPE.finditer(text))
    if len(text) > _GUESS_LENGTH or depth > _GUESS_DEPTH or stray:
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
