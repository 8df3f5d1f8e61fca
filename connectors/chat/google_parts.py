"""Content of Google's APIs: {role, parts: [{text | thought | functionCall | functionResponse | …}]}, keys in camel or snake case."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Speech,
    Text,
    Unknown,
    bad_part,
    count_or_none,
    text_or_none,
)
from logforge.connectors.records import at, canonical
from logforge.schemas import Reject

_BREAK = re.compile(r"_([a-z])")
_KNOWN_ALONE = frozenset({"thought", "thought_signature", "thoughtSignature", "text"})
"""A part of these alone says nothing."""
_MARKS = ("inline_data", "file_data", "executable_code", "code_execution_result")


class Response(NamedTuple):
    """A function's response. `failed` is known where it holds nothing but an output or an error."""

    call_id: str | None
    name: str | None
    text: str | None
    failed: bool | None
    locator: str


@dataclass
class GoogleParts(Speech):
    """What the parts of one content hold, by kind and in order."""

    calls: list[Call] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    """What is not understood, by its locator: EpisodeBuilder.note takes it."""

    @property
    def decides(self) -> bool:
        """True when nothing else is left of a message that holds what is not understood."""
        return not (self.texts or self.responses)


def key_of(row: dict[str, Any], name: str) -> str:
    """The spelling of a key that the row has: `function_call` as it is, else `functionCall`."""
    return name if row.get(name) is not None else _BREAK.sub(lambda found: found.group(1).upper(), name)


def value_of(row: Any, name: str) -> Any:
    """The value under a key in either spelling; None when the row is no object."""
    return row.get(key_of(row, name)) if isinstance(row, dict) else None


def read_parts(content: Any, where: str) -> GoogleParts:
    """Sort the parts of a content: a text, a part, a list of parts, or an object with `parts`."""
    parts = GoogleParts()
    if isinstance(content, dict) and "parts" in content:
        content, where = content["parts"], at(where, "/parts")
    if isinstance(content, str):
        if content:
            parts.texts.append(Text(content, where))
    elif isinstance(content, dict):
        _read_part(parts, content, where)
    elif isinstance(content, list):
        for index, part in enumerate(content):
            _read_part(parts, part, at(where, f"/{index}"))
    elif content is not None:
        parts.rejects.append(bad_part(where, "content is no text and no parts", "bad_content", content))
    return parts


def _read_part(parts: GoogleParts, part: Any, where: str) -> None:
    if isinstance(part, str):
        parts.texts += [Text(part, where)] if part else []
        return
    if not isinstance(part, dict):
        parts.rejects.append(bad_part(where, "part is no object", "bad_part", part))
        return
    call, response = value_of(part, "function_call"), value_of(part, "function_response")
    if call is not None:
        read_call(parts, call, at(where, "/" + key_of(part, "function_call")))
    if response is not None:
        pointer = at(where, "/" + key_of(part, "function_response"))
        if isinstance(response, dict):
            parts.responses.append(read_response(response, pointer))
        else:
            parts.rejects.append(bad_part(pointer, "response is no object", "bad_response", response))
    if isinstance(part.get("text"), str):
        if part["text"]:
            kind = parts.thoughts if part.get("thought") is True else parts.texts
            kind.append(Text(part["text"], at(where, "/text")))
    elif marks := [name for name in _MARKS if value_of(part, name) is not None]:
        parts.texts += [Text(_mark(part, name), at(where, "/" + key_of(part, name))) for name in marks]
    elif call is None and response is None and not part.keys() <= _KNOWN_ALONE:
        parts.unknown.append(Unknown(where, part))


def _mark(part: dict[str, Any], name: str) -> str:
    """Code and what it gave are texts; files and pictures leave a mark."""
    return f"[{name}]" if name in ("inline_data", "file_data") else canonical(value_of(part, name))


def read_call(parts: GoogleParts, call: Any, where: str) -> None:
    """Add a function call."""
    name = call.get("name") if isinstance(call, dict) else None
    if isinstance(name, str) and name:
        parts.calls.append(Call(name, call.get("args"), text_or_none(call.get("id")), where))
    else:
        parts.rejects.append(bad_part(where, "tool call without a name", "nameless_call", call))


def read_response(response: dict[str, Any], where: str) -> Response:
    """A function response. {"output": text} and {"error": text} are the texts themselves."""
    pointer = at(where, "/response") if "response" in response else where
    body, failed = response.get("response"), None
    if isinstance(body, dict) and len(body) == 1:
        key, value = next(iter(body.items()))
        if key in ("output", "error") and isinstance(value, str):
            body, pointer, failed = value, at(pointer, f"/{key}"), key == "error"
    text = body if isinstance(body, str) or body is None else canonical(body)
    name = response.get("name")
    return Response(
        text_or_none(response.get("id")), name if isinstance(name, str) else None, text, failed, pointer
    )


def tokens(usage: Any) -> tuple[int | None, int | None]:
    """Tokens read and written (thoughts included) of a usage object."""
    asked = count_or_none(value_of(usage, "prompt_token_count"))
    said = [count_or_none(value_of(usage, f"{kind}_token_count")) for kind in ("candidates", "thoughts")]
    known = [count for count in said if count is not None]
    return asked, count_or_none(sum(known)) if known else None


class CallOrder(EpisodeBuilder):
    """An episode whose results may come without an id: what else tells their call puts it first in line."""

    def open_calls(self) -> list[tuple[int, str]]:
        """Step and action of the latest turn's calls that have no result yet, in order."""
        return [(index, self._steps[index].action) for index in self._open.waiting]

    def answer_next(self, index: int) -> None:
        """The next result without an id is that of this open call."""
        waiting = self._open.waiting
        if index in waiting:
            waiting.remove(index)
            waiting.insert(0, index)
            self._told = index
