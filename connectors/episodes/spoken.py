"""Calls that stand in an assistant's text because nobody parsed them: as the models write them, and no other way.

A call is recovered where its text is exact: a mark that only calls have (`<tool_call>`, `<functioncall>`, `[TOOL_CALLS]`, …)
with JSON behind it, or a text that is nothing but calls. Without a mark JSON could be an answer: it is a call where its tools
were offered. What is a call and cannot be read for certain decides something that the log no longer tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple

from logforge.connectors.episodes.arguments import parse_arguments
from logforge.connectors.episodes.builder import Call
from logforge.connectors.episodes.text_calls import function_calls
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
    if not text or len(text) > _MAX_LENGTH or not _may_call(text):
        return None
    whole = _whole(_answer_of(text), offered)
    found = whole if whole or not MARKS.search(text) else _marked(text)
    return None if found is None else [call._replace(locator=where) for call in found]


def _may_call(text: str) -> bool:
    """False for a text that holds no mark, thought or fence, and is no call as a whole either: nearly all are told at once."""
    if "<" in text or "```" in text or "[TOOL_CALLS]" in text:
        return True
    body = text.strip()
    return body[:1] in ("{", "[") or body[-1:] == ")"


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


# --- behind a mark: a reader gives the calls and where they end; None where they are not exact -------------------------


class _Read(NamedTuple):
    """What was read behind a mark, and where it ends."""

    calls: list[Call]
    end: int


_Reader = Callable[[str, int], _Read | None]

_NAME = r"[A-Za-z_][\w.:/\-]*"
_CALL_KEYS = frozenset({"name", "arguments", "parameters", "args", "id", "type", "tool_call_id"})
_GLAIVE = re.compile(
    r"\s*\{\s*\"name\"\s*:\s*\"([^\"]+)\"\s*,\s*\"arguments\"\s*:\s*'(.*)'\s*\}\s*\Z", re.DOTALL
)


_DECODER = json.JSONDecoder()


_BLANKS = re.compile(r"\s*")


def blanks_end(body: str, begin: int, blanks: re.Pattern[str] = _BLANKS) -> int:
    """Where the blanks that begin there end."""
    found = blanks.match(body, begin)
    return found.end() if found else begin


def json_value(body: str, begin: int) -> tuple[Any, int] | None:
    """The JSON value that begins there and where it ends."""
    start = blanks_end(body, begin)
    try:
        _, end = _DECODER.raw_decode(body, start)
        return loads(body[start:end]), end
    except (ValueError, RecursionError):
        return None


def json_calls(value: Any) -> list[Call] | None:
    """The calls that a value is: one call or a list of them, and nothing else."""
    listed = value if isinstance(value, list) else [value]
    calls = [_json_call(item) for item in listed]
    found = [call for call in calls if call is not None]
    return found if found and len(found) == len(calls) else None


def _json_call(value: Any) -> Call | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict) and value.keys() <= {"function", "type", "id"}:
        call = _json_call(inner)
        return call and call._replace(call_id=_id_of(value) or call.call_id)
    name = value.get("name")
    given = [value[key] for key in ("arguments", "parameters", "args") if key in value]
    if not isinstance(name, str) or not name.strip() or len(given) > 1 or not value.keys() <= _CALL_KEYS:
        return None
    arguments = given[0] if given else None
    if not isinstance(arguments, dict | str | None) or parse_arguments(arguments).status == "invalid":
        return None
    return Call(name, arguments, _id_of(value))


def _id_of(value: dict[str, Any]) -> str | None:
    found = value.get("id", value.get("tool_call_id"))
    return found if isinstance(found, str) and found else None


_CLOSE = "</tool_call>"


def _tagged(body: str, begin: int) -> _Read | None:
    """JSON, a Python literal of the same shape, `<function=…>` or GLM's keys and values, up to the closing tag or the end."""
    found = json_value(body, begin)
    if found is not None:
        calls, end = json_calls(found[0]), blanks_end(body, found[1])
        closed = body.startswith(_CLOSE, end) or end == len(body)
        return _Read(calls, end + len(_CLOSE)) if calls is not None and closed else None
    end = body.find(_CLOSE, begin)
    inner = body[begin:] if end < 0 else body[begin:end]
    calls = _literal_calls(inner) or _xml_calls(inner) or _glm_call(inner)
    return None if calls is None else _Read(calls, begin + len(inner) + len(_CLOSE))


def _literal_calls(inner: str) -> list[Call] | None:
    try:
        return json_calls(literal(inner.strip()))
    except NotLiteral:
        return None


_XML = re.compile(
    r"\s*(?:<function=[^>\s]+>(?:\s*<parameter=[^>\s]+>(?:(?!</parameter>).)*+</parameter>)*+\s*</function>\s*)++\Z",
    re.DOTALL,
)
_GLM = re.compile(
    rf"\s*({_NAME})\s*((?:<arg_key>[^<]+</arg_key>\s*<arg_value>(?:(?!</arg_value>).)*+</arg_value>\s*)++)\Z",
    re.DOTALL,
)
_GLM_PAIR = re.compile(r"<arg_key>([^<]+)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _xml_calls(inner: str) -> list[Call] | None:
    return function_calls(inner, "") if _XML.match(inner) else None


def _glm_call(inner: str) -> list[Call] | None:
    """`name`, then a key and a value each; as with other tags the values are text."""
    found = _GLM.match(inner)
    if found is None:
        return None
    return [Call(found.group(1), {key.strip(): value for key, value in _GLM_PAIR.findall(found.group(2))})]


def _function_tag(body: str, begin: int) -> _Read | None:
    """`name>` then JSON (Llama) or `<parameter=…>` (Qwen), and `</function>`."""
    end = body.find("</function>", begin)
    name = re.compile(r"([^>\s]+)>").match(body, begin)
    if end < 0 or name is None:
        return None
    inner = body[name.end() : end]
    after = end + len("</function>")
    if calls := _xml_calls(f"<function={body[begin:after]}"):
        return _Read(calls, after)
    found = json_value(inner, 0)
    if found is None or inner[found[1] :].strip() or not isinstance(found[0], dict):
        return None
    return _Read([Call(name.group(1), found[0])], after)


_GLAIVE_END = re.compile(r"<\|endoftext\|>|</?functioncall>")


def _glaive(body: str, begin: int) -> _Read | None:
    """Glaive's object, whose arguments are JSON text in single quotes."""
    stop = _GLAIVE_END.search(body, begin)
    end = stop.start() if stop else len(body)
    inner = body[begin:end]
    quoted = _GLAIVE.match(inner)
    if quoted is None:
        found = json_value(inner, 0)
        calls = json_calls(found[0]) if found and not inner[found[1] :].strip() else None
        return None if calls is None else _Read(calls, end)
    arguments = quoted.group(2)
    for text in (arguments, arguments.replace("\\'", "'")):
        with suppress(NotJson):
            if isinstance(value := loads(text), dict):
                return _Read([Call(quoted.group(1), value)], end)
    return None


def _mistral(body: str, begin: int) -> _Read | None:
    """A list of calls; or, in later models, `name{…}` or `name[ARGS]{…}`."""
    named = re.compile(rf"\s*({_NAME})(?:\[CALL_ID\](\w+))?(?:\[ARGS\])?(?=\s*\{{)").match(body, begin)
    found = json_value(body, named.end() if named else begin)
    if found is None:
        return None
    if named is None:
        calls = json_calls(found[0])
        return None if calls is None else _Read(calls, found[1])
    call = Call(named.group(1), found[0], named.group(2))
    return _Read([call], found[1]) if isinstance(found[0], dict) else None


def _json_after(body: str, begin: int) -> _Read | None:
    """Calls as JSON directly behind the mark, one or a list, up to the end of the text."""
    found = json_value(body, begin)
    calls = json_calls(found[0]) if found else None
    rest = body[found[1] :].strip() if found else ""
    return _Read(calls, len(body)) if calls and rest in ("", "<|eom_id|>", "<|eot_id|>") else None


_DEEPSEEK = re.compile(
    rf"(?:function<｜tool▁sep｜>)?({_NAME})(?:<｜tool▁sep｜>|\n```json\n)(.*?)(?:\n```)?<｜tool▁call▁end｜>", re.DOTALL
)  # fmt: skip
_KIMI = re.compile(
    rf"\s*((?:functions\.)?({_NAME}?):\d+)\s*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>",
    re.DOTALL,
)


def _deepseek(body: str, begin: int) -> _Read | None:
    return _named_json(_DEEPSEEK.match(body, begin), 1, 2)


def _kimi(body: str, begin: int) -> _Read | None:
    return _named_json(_KIMI.match(body, begin), 2, 3)


def _named_json(found: re.Match[str] | None, name: int, arguments: int) -> _Read | None:
    """A call whose name and JSON arguments a pattern has found."""
    value = json_value(found.group(arguments), 0) if found else None
    if found is None or value is None or found.group(arguments)[value[1] :].strip():
        return None
    return _Read([Call(found.group(name), value[0])], found.end()) if isinstance(value[0], dict) else None


def _never(body: str, begin: int) -> _Read | None:
    """Marks of a harness's own: code and commands, whose tools the text alone does not name."""
    return None


SYNTAXES: dict[int, tuple[str, _Reader]] = dict(
    enumerate(
        (
            (r"<tool_call>|<\|tool_call\|>", _tagged),
            (r"<functioncall>", _glaive),
            (r"<function=", _function_tag),
            (r"\[TOOL_CALLS\]", _mistral),
            (r"<\|python_tag\|>", _json_after),
            (r"<｜tool▁call▁begin｜>", _deepseek),
            (r"<\|tool_call_begin\|>", _kimi),
            (r"<execute(?:_\w+)?>|<invoke name=|```mswea_bash_command|```tool_code", _never),
        ),
        1,
    )
)
MARKS = re.compile("(?<!`)(?:" + "|".join(f"({mark})" for mark, _ in SYNTAXES.values()) + ")")
"""The number of the group that matched is that of the syntax. Behind a backtick a mark is spoken of, not used."""
