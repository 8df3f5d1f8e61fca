"""The tokens of text that was meant as JSON, and what they certainly mean, written as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from logforge.connectors.records.json import NotJson, canonical, loads
from logforge.connectors.records.pyliteral import NotLiteral, literal

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
_ESCAPE = re.compile(
    r"(?P<sign>\\[\"\\/])|(?P<letter>\\(?:[bfnrt]|u[0-9a-fA-F]{4}))"
    r"|(?P<python>\\(?:x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}))|\\"
)


class Token(NamedTuple):
    """A piece of text: a quoted `text`, a `word` or number, a `mark` (bracket, comma, colon) or something `other`."""

    kind: str
    text: str


class Unclear(ValueError):
    """The tokens do not say what is meant."""


def scan(text: str, start: int) -> tuple[list[Token], int] | None:
    """The tokens from a bracket to the one that closes it, blanks left out; None when that one is not there."""
    tokens: list[Token] = []
    closing: list[str] = []
    for match in _TOKEN.finditer(text, start):
        token = Token(match.lastgroup or "", match.group())
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


def is_python(tokens: list[Token]) -> bool:
    """Some token is Python's and not JSON's."""
    return any(
        token.text == "(" or token.text in _PYTHON_WORDS or (token.kind == "text" and token.text[0] == "'")
        for token in tokens
    )


def side_by_side(tokens: list[Token]) -> bool:
    """Python joins two strings without a comma between them; a person may have meant quotes inside one."""
    return any(one.kind == other.kind == "text" for one, other in pairwise(tokens))


def has_hole(tokens: list[Token]) -> bool:
    """Nothing stands between two commas."""
    return any(one.text == other.text == "," for one, other in pairwise(tokens))


def has_stray_backslash(text: str) -> bool:
    """A backslash before what JSON does not escape."""
    return any(match.lastgroup in (None, "python") for match in _ESCAPE.finditer(text))


def as_json(tokens: list[Token], kinds: list[str]) -> Iterator[str]:
    """The tokens as JSON; `kinds` gets what had to be changed. Raises Unclear."""
    previous, python = "", is_python(tokens)
    for token, following in zip(tokens, [*(t.text for t in tokens[1:]), ""], strict=True):
        if token.kind == "text":
            yield _text(token.text, kinds, python)
        elif token.kind == "word":
            yield _word(token.text, following, kinds)
        elif token.kind == "other" or token.text in "()":
            raise Unclear(token.text)
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
        raise Unclear(token) from None


def _with_backslashes(token: str) -> str:
    """Each backslash before what JSON does not escape (`\\d`) stands for itself; `\\n` beside it is unclear then, and `\\x41`
    always is."""
    if any(match.lastgroup in ("letter", "python") for match in _ESCAPE.finditer(token)):
        raise Unclear(token)
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
