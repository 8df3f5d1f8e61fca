"""Calls that stand in an assistant's text because nobody parsed them: as the models write them, and no other way.

A call is recovered where its text is exact: a mark that only calls have (`<tool_call>`, `<functioncall>`, `[TOOL_CALLS]`, …)
with JSON behind it, or a text that is nothing but calls. Without a mark JSON could be an answer: it is a call where its tools
were offered. What is a call and cannot be read for certain decides something that the log no longer tells.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from logforge.connectors.episodes.builder import Call
from logforge.connectors.episodes.call_syntaxes import MARKS, SYNTAXES, blanks_end, json_calls, json_value
from logforge.connectors.records import NotJson, NotLiteral, literal, loads

_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>")
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_BETWEEN = re.compile(r"[\s;]*")
_LIKE_A_CALL = re.compile(r"\[[\w.]+\(\s*\w+\s*=")
_WORDY_NAME = re.compile(r"\s*([A-Za-z_](?:[\w./\- ]|:(?! )){0,99}?)\s*\(")
_PARAMETER_NAME = re.compile(r"\s*([A-Za-z_][\w.\-\[\]]*)\s*=(?!=)")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_TOKEN = re.compile(rf"{_STRING.pattern}|[\[\](){{}},'\"]", re.DOTALL)
_FENCED = re.compile(r"\A```(?:json|tool_call|tool_calls)?[ \t]*\n(.*)\n```\Z", re.DOTALL)
_JSON_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_MAX_LENGTH = 1_000_000
"""Longer texts are no calls that a model said."""


def said_calls(text: str | None, offered: Collection[str] | None, where: str) -> list[Call] | None:
    """The calls that an assistant's text holds. None: it holds none. Empty: it holds one that cannot be read for certain.

    `offered` are the names of the tools on offer, None where the log does not say; `where` is the place of the text. What
    stands in thinking (`<think>`) or behind a backtick calls nothing; what stands in a fence, nobody can tell.
    """
    if not text or len(text) > _MAX_LENGTH:
        return None
    whole = _whole(_answer_of(text), offered)
    found = whole if whole or not MARKS.search(text) else _marked(text)
    return None if found is None else [call._replace(locator=where) for call in found]


def _marked(body: str) -> list[Call] | None:
    """The calls behind the marks; none when one of them is not exact. What a thought only considers is no call."""
    calls: list[Call] = []
    place, fences, thinks = 0, 0, False
    while mark := MARKS.search(body, place):
        gap = body[place : mark.start()]
        if _THOUGHT_ENDS.search(gap):
            calls, fences, thinks = [], 0, False
            gap = _THOUGHT_ENDS.split(gap)[-1]
        fences, thinks = fences + len(_FENCE.findall(gap)), thinks or "<think" in gap
        read = None if fences % 2 else SYNTAXES[mark.lastindex or 0][1](body, mark.end())
        if read is None:
            thought = _THOUGHT_ENDS.search(body, mark.end())
            if thought is None:
                return []
            place = thought.start()
        else:
            calls += read.calls
            place = max(read.end, mark.end())
    if _THOUGHT_ENDS.search(body, place):
        return None
    return [] if thinks else calls


def _answer_of(text: str) -> str:
    """A text without the thought before it and without the fence that it may stand in."""
    body = text.strip()
    if body[:1] not in ("{", "[") and (thought := _THOUGHT_ENDS.search(body)):
        body = body[thought.end() :].strip()
    fence = _FENCED.match(body)
    return fence.group(1).strip() if fence else body


def _whole(body: str, offered: Collection[str] | None) -> list[Call] | None:
    """A text that is nothing but calls, without a mark."""
    if body[:1] in ("{", "[") and (calls := _bare_json(body)) is not None:
        if offered is not None and (not offered or not _names(calls) & set(offered)):
            return None  # an answer in JSON: no tool was meant
        return calls if offered is not None and _names(calls) <= set(offered) else []
    if body[:1] == "[" and body[-1:] == "]":
        return _bracketed(body, offered)
    if body[-1:] == ")" and offered:
        named = _call_at(body, 0)
        return [named[0]] if named and named[0].name in offered and named[1] == len(body) else None
    return None


def _names(calls: list[Call]) -> set[str]:
    return {call.name for call in calls}


def _bare_json(body: str) -> list[Call] | None:
    """JSON calls with their arguments, one behind another (Llama puts `;` between them)."""
    calls: list[Call] = []
    place = 0
    while place < len(body):
        found = json_value(body, place)
        more = json_calls(found[0]) if found else None
        if found is None or not more or any(not isinstance(call.arguments, dict) for call in more):
            return None
        calls += more
        place = blanks_end(body, found[1], _BETWEEN)
    return calls or None


def _bracketed(body: str, offered: Collection[str] | None) -> list[Call] | None:
    """`[f(x=1), g(y="a")]`. Where no tools are known, a parameter by name tells a call from an aside in brackets."""
    calls: list[Call] = []
    place = 1
    while (read := _call_at(body, place)) is not None:
        calls.append(read[0])
        place = blanks_end(body, read[1])
        if body[place : place + 1] != ",":
            break
        place += 1
    known, names = set(offered or ()), _names(calls)
    if calls and read is not None and place == len(body) - 1:
        if names <= known or (offered is None and any(call.arguments for call in calls)):
            return calls
        return (
            []
            if names & known or not any(" " in call.name and not call.arguments for call in calls)
            else None
        )
    first = _WORDY_NAME.match(body, 1)
    return [] if first and (first.group(1) in known or _LIKE_A_CALL.match(body)) else None


def _call_at(body: str, begin: int) -> tuple[Call, int] | None:
    """The call `name(key=value, …)` that begins there, and where it ends. Values are literals; a name may have blanks in it."""
    name = _WORDY_NAME.match(body, begin)
    if name is None:
        return None
    pieces = _arguments_at(body, name.end())
    if pieces is None:
        return None
    arguments: dict[str, Any] = {}
    for piece in pieces[0]:
        key = _PARAMETER_NAME.match(piece)
        if key is None or key.group(1) in arguments:
            return None
        try:
            arguments[key.group(1)] = _literal(piece[key.end() :].strip())
        except (NotLiteral, NotJson):
            return None
    return Call(name.group(1), arguments), pieces[1]


def _literal(text: str) -> Any:
    if text in _JSON_WORDS:
        return _JSON_WORDS[text]
    try:
        return literal(text)
    except NotLiteral:
        return loads(text)


def _arguments_at(body: str, begin: int) -> tuple[list[str], int] | None:
    """The pieces between the commas of a call's outermost level, and where its bracket is closed."""
    depth, start = 0, begin
    pieces: list[str] = []
    for token in _TOKEN.finditer(body, begin):
        char = token.group()
        if char in ("'", '"'):
            return None  # a text that is left open
        if char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char in ")]}":
            last = body[start : token.start()]
            return (pieces + ([last] if last.strip() else []), token.end()) if char == ")" else None
        elif char == "," and not depth:
            pieces.append(body[start : token.start()])
            start = token.end()
    return None
