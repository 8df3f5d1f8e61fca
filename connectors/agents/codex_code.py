"""Codex's code mode: a call is a JavaScript snippet, and the tool that it runs stands inside it.

`const r = await tools.exec_command({cmd: "ls"}); text(r.output);` is a call of `exec_command`. A snippet is data: it is
looked at and never run. One that names several tools, or none, stays `exec`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NAME = "exec"
"""The custom tool whose input is a snippet."""
_LONGEST = 2_000_000
_DEPTH = 60
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|`(?:[^`\\]|\\.)*+`?
    |(?<![\w.$])tools\s*(?:\?\.|\.)\s*(?P<name>[A-Za-z_$][\w$]*)\s*\(
    |(?<![\w.$])tools\s*(?:\?\.)?\s*\[\s*(?P<quoted>"[\w.-]+"|'[\w.-]+')\s*\]\s*\(
    |\bconst\s+(?P<const>[A-Za-z_$][\w$]*)\s*=\s*""",
    re.DOTALL | re.VERBOSE,
)
_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(
    r'"((?:[^"\\\n]|\\.)*+)"|\'((?:[^\'\\\n]|\\.)*+)\'|(String\.raw)?`((?:[^`\\]|\\.)*+)`', re.DOTALL
)
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|\r\n|.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d+)?(?:[eE][+-]?\d{1,3})?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_WORDS = {"true": True, "false": False, "null": None}


class Inner(NamedTuple):
    """The tool that a snippet calls, and what it gives it."""

    name: str
    arguments: dict[str, Any]


class _NoLiteral(Exception):
    """What stands there is computed."""


def inner_call(snippet: Any) -> Inner | None:
    """The one tool that a snippet calls; None when it calls several or none.

    What is given in full is the arguments, with the snippet around it as `snippet` (the given value is `…` there); else
    the snippet is `input`.
    """
    if not isinstance(snippet, str) or len(snippet) > _LONGEST:
        return None
    found = list(_calls(snippet))
    if len(found) != 1:
        return None
    name, end = found[0]
    try:
        value, rest = _value(snippet, end, _constants(snippet), 0)
    except (_NoLiteral, RecursionError):
        return Inner(name, {"input": snippet})
    given = value if isinstance(value, dict) else {"input": value}
    after = snippet[_BLANK.match(snippet, rest).end() :]  # type: ignore[union-attr]
    if not after.startswith(")") or "snippet" in given:
        return Inner(name, {"input": snippet})
    return Inner(name, {**given, "snippet": f"{snippet[:end]}…{after}"})


def _calls(snippet: str) -> Iterator[tuple[str, int]]:
    """Name of each tool that is called, and where its arguments begin."""
    for token in _TOKEN.finditer(snippet):
        if name := token["name"] or (token["quoted"] or "")[1:-1]:
            yield name, token.end()


def _constants(snippet: str) -> dict[str, int]:
    """Where the value of each constant begins; a name that comes twice means nothing."""
    found: dict[str, int] = {}
    for token in _TOKEN.finditer(snippet):
        if name := token["const"]:
            found[name] = -1 if name in found else token.end()
    return {name: place for name, place in found.items() if place >= 0}


def _value(text: str, place: int, names: dict[str, int], depth: int) -> tuple[Any, int]:
    """The literal at a place, and where it ends. Raises _NoLiteral."""
    place = _skip(text, place)
    if depth > _DEPTH:
        raise _NoLiteral
    if found := _STRING.match(text, place):
        return _string(found), found.end()
    if found := _NUMBER.match(text, place):
        number = found.group()
        return (int(number) if re.fullmatch(r"-?\d+", number) else float(number)), found.end()
    if text[place : place + 1] == "[":
        return _list(text, place + 1, names, depth)
    if text[place : place + 1] == "{":
        return _object(text, place + 1, names, depth)
    return _named(text, place, names, depth)


def _named(text: str, place: int, names: dict[str, int], depth: int) -> tuple[Any, int]:
    """A word of the language, or a constant that the snippet gives a literal."""
    word = _WORD.match(text, place)
    if word is None or text[word.end() : word.end() + 1] in (".", "(", "["):
        raise _NoLiteral
    if word.group() in _WORDS:
        return _WORDS[word.group()], word.end()
    if word.group() not in names:
        raise _NoLiteral
    others = {name: at for name, at in names.items() if name != word.group()}
    value, end = _value(text, names[word.group()], others, depth + 1)
    after = _skip(text, end)
    follows = text[after : after + 1]
    goes_on = "\n" not in text[end:after] or not (follows.isalnum() or follows in "_$}")
    if follows not in (";", "") and goes_on:
        raise _NoLiteral
    return value, word.end()


def _list(text: str, place: int, names: dict[str, int], depth: int) -> tuple[Any, int]:
    values: list[Any] = []
    while text[(place := _skip(text, place)) : place + 1] != "]":
        value, place = _value(text, place, names, depth + 1)
        values.append(value)
        place = _comma(text, place, "]")
    return values, place + 1


def _object(text: str, place: int, names: dict[str, int], depth: int) -> tuple[Any, int]:
    values: dict[str, Any] = {}
    while text[(place := _skip(text, place)) : place + 1] != "}":
        key = _STRING.match(text, place) or _WORD.match(text, place)
        if key is None:
            raise _NoLiteral
        name = _string(key) if key.re is _STRING else key.group()
        colon = _skip(text, key.end())
        if text[colon : colon + 1] == ":":
            values[name], place = _value(text, colon + 1, names, depth + 1)
        else:  # {cmd} is {cmd: cmd}
            values[name], place = _named(text, place, names, depth + 1)
        place = _comma(text, place, "}")
    return values, place + 1


def _comma(text: str, place: int, end: str) -> int:
    place = _skip(text, place)
    if text[place : place + 1] == ",":
        return place + 1
    if text[place : place + 1] != end:
        raise _NoLiteral
    return place


def _skip(text: str, place: int) -> int:
    blank = _BLANK.match(text, place)
    return blank.end() if blank else place


def _string(found: re.Match[str]) -> str:
    double, single, raw, template = found.groups()
    if template is not None and "${" in template:
        raise _NoLiteral
    if raw and template is not None:
        return template
    return _ESCAPE.sub(_unescaped, next(text for text in (double, single, template) if text is not None))


def _unescaped(found: re.Match[str]) -> str:
    mark = found.group(1)
    if mark[0] in "ux" and len(mark) > 1:
        code = int(mark[1:].strip("{}"), 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    return _PLAIN.get(mark, mark)


# --- how it went ------------------------------------------------------------------------------------------------------

_ENVELOPE = re.compile(r"\AScript (completed|failed|running)\b[^\n]*(?:\nWall time:? ([\d.]{1,12}) seconds)?")
_FAILED = frozenset({"failed", "declined", "error"})


class Ran(NamedTuple):
    """What a snippet's output says of it: whether the script failed, and how long it took."""

    failed: bool | None
    seconds: str | None


@dataclass
class CodeCalls:
    """The snippets that run, and how what they called went: an event tells it between a call and its output."""

    _open: dict[str, list[bool]] = field(default_factory=dict)

    def begin(self, item: dict[str, Any]) -> None:
        """A call; one that waits for a snippet is told of what that one calls meanwhile."""
        call_id, kind = item.get("call_id"), item.get("type")
        is_snippet = kind == "custom_tool_call" and item.get("name") == NAME
        if isinstance(call_id, str) and (
            is_snippet or (kind == "function_call" and item.get("name") == "wait")
        ):
            self._open[call_id] = []

    def completed(self, item: Any) -> bool:
        """An item of an event. True when it says how a snippet's call went; with several snippets at work none can be told."""
        failed = failed_item(item)
        if failed is None or len(self._open) != 1:
            return False
        next(iter(self._open.values())).append(failed)
        return True

    def end(self, call_id: str | None) -> bool | None:
        """Whether anything that a snippet called failed, once its output is here; None where nothing was told."""
        found = self._open.pop(call_id, None) if call_id is not None else None
        return any(found) if found else None


def ran(text: str) -> Ran | None:
    """What stands before the output of a snippet; None for another text."""
    found = _ENVELOPE.match(text)
    return Ran(True if found.group(1) == "failed" else None, found.group(2)) if found else None


def failed_item(item: Any) -> bool | None:
    """Whether what a tool ran inside a snippet failed, from the item that completed; None where it does not say."""
    if not isinstance(item, dict) or item.get("type") not in (
        "CommandExecution",
        "FileChange",
        "McpToolCall",
    ):
        return None
    code, status = item.get("exit_code"), item.get("status")
    if isinstance(code, int) and not isinstance(code, bool):
        return code != 0
    if item.get("error"):
        return True
    return status in _FAILED if isinstance(status, str) else None
