"""How models write a call into their text: a mark that nothing else has, then JSON, tags or a name with JSON.

A reader gives the calls behind its mark and where they end; None where they are not exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from logforge.connectors.episodes.arguments import parse_arguments
from logforge.connectors.episodes.builder import Call
from logforge.connectors.episodes.text_calls import function_calls
from logforge.connectors.records import NotJson, NotLiteral, literal, loads


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
