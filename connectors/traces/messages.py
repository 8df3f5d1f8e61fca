"""What was said, as tracing tools log it: a message of OpenAI, Anthropic, Bedrock or OpenTelemetry parts, read the same way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Absent,
    Answer,
    Call,
    Text,
    Unknown,
    bad_part,
    may_hold_call,
    names_call,
    parse_arguments,
    part_text,
    text_of,
    text_or_none,
)
from logforge.connectors.records import NotJson, canonical, loads
from logforge.connectors.traces.envelopes import Where, as_message, below, is_foreign, is_item, opened
from logforge.schemas import Reject

_THOUGHTS = frozenset({"reasoning", "thinking", "redacted_thinking"})
_CALLS = frozenset(
    {"tool_call", "tool_use", "server_tool_call", "server_tool_use", "function_call", "tool-call"}
)
_ANSWERS = frozenset({"tool_call_response", "tool_result", "server_tool_call_response", "tool-result"})
_MEDIA = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "audio",
        "input_audio",
        "video",
        "blob",
        "file",
        "input_file",
        "uri",
    }
)
"""Parts that are no text, whatever they hold (a blob's content is base64); each leaves a mark."""
_PARTS = _THOUGHTS | _CALLS | _ANSWERS | _MEDIA
_PARTS |= {"text", "input_text", "output_text", "refusal", "document", "compaction"}
_MESSAGE = frozenset(
    {"role", "parts", "content", "contents", "reasoning_content", "reasoning", "tool_calls", "function_call"}
    | {"message", "name", "id", "tool_call_id", "tool_use_id", "is_error", "error", "finish_reason", "index"}
    | {"type", "status", "refusal", "annotations", "audio", "logprobs", "event_name", "example", "text"}
    | {"additional_kwargs", "response_metadata", "usage_metadata", "finishReason", "phase"}
)
_THOUGHT = frozenset({"type", "id", "signature", "data", "encrypted_content", "summary", "status", "index"})
_CALL = frozenset({"type", "name", "toolName", "function", "index", "status", "caller", "cache_control"})
_CALL_IDS = ("id", "tool_call_id", "toolUseId", "toolCallId", "call_id")
_GEMINI = (
    ("functionCall", "tool_call"),
    ("function_call", "tool_call"),
    ("functionResponse", "tool_result"),
    ("function_response", "tool_result"),
)
"""Gemini's parts, as they are called elsewhere."""
_AGENTS = frozenset({"agent", "gpt", "llm", "chatbot", "computer"})
"""Roles by which others call the agent."""
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant", "function": "tool"}
KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


@dataclass
class Said:
    """One message: its text, thoughts, calls and answers, apart."""

    role: str
    locator: str
    texts: list[Text] = field(default_factory=list)
    thoughts: list[Text] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    finish: str | None = None
    unknown: list[Unknown] = field(default_factory=list)
    """What is not understood, by its locator: EpisodeBuilder.note takes it."""

    @property
    def text(self) -> str | None:
        """The texts, joined by line breaks; None when there is none."""
        return "\n".join(text for text, _ in self.texts) if self.texts else None

    @property
    def thought(self) -> str | None:
        """The thinking, joined by line breaks; None when there is none."""
        return "\n".join(text for text, _ in self.thoughts) or None

    @property
    def place(self) -> str:
        """The locator of its first piece."""
        pieces = self.texts or self.thoughts
        return pieces[0].locator if pieces else self.locator


class Atom(NamedTuple):
    """What makes two copies of a message the same: neither ids, nor thoughts, nor how arguments are written."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()


def atom_of(said: Said) -> Atom:
    """The atom of a message that is no tool answer."""
    calls = tuple((call.name, parse_arguments(call.arguments)[0]) for call in said.calls)
    return Atom(said.role, (said.text or "").strip(), calls)


def answer_atom(answer: Answer) -> Atom:
    """The atom of a tool's answer."""
    return Atom("tool", (answer.text or "").strip())


Piece = tuple[Atom, Said, Answer | None]
"""An atom and what it was made of: a message, or one answer in it."""


def atoms(heard: list[Said]) -> list[Piece]:
    """Messages as atoms: each answer of a message on its own, before what else it says."""
    found: list[Piece] = []
    for said in heard:
        found += [(answer_atom(answer), said, answer) for answer in said.answers]
        if said.texts or said.calls or said.thoughts or not said.answers:
            found.append((atom_of(said), said, None))
    return found


def plain(role: str, text: Any, locator: str) -> Said:
    """A message that is nothing but a text."""
    said = Said(role, locator)
    if (found := text_of(text)) is not None:
        said.texts.append(Text(found, locator))
    return said


def inside(value: Any, where: Where) -> tuple[Any, Where]:
    """A value and its locators, unwrapped when it is JSON text of an object or a list."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found = loads(value)
        except NotJson:
            return value, where
        if isinstance(found, dict | list):
            return found, lambda pointer: where("#" + pointer)
    return value, where


_CUT = re.compile(
    r"""\s*(?:\[\s*\{|\{\s*"(?:messages|choices)"\s*:\s*\[\s*\{)\s*"(?:role|parts|type|content|tool_calls|message|finish_reason)"\s*:"""
    r"|<truncated due to size exceeding limit"
)
"""How messages begin that are no whole JSON: OpenTelemetry's SDKs cut attributes, Langfuse's puts words in their place."""


def read_messages(
    given: Any, place: Where, role: str, rejects: list[Reject], *, named: bool = False
) -> list[Said]:
    """The messages of a payload: a list of them, an object that holds one, a message, or a bare text said by `role`.

    What is JSON but no message stays the text that it is: a model may well answer in JSON. Not so where the log calls it
    messages (`named`).
    """
    whole, outer = inside(given, place)
    value, where = opened(whole, outer)
    if isinstance(value, dict):
        message, inner = as_message(value, where)
        if _is_message(message) or is_item(message):
            return [said] if (said := read_message(message, inner, role, rejects)) else []
        if value.keys() == {"content"} and isinstance(value["content"], str):
            return [plain(role, value["content"], where("/content"))]
    elif value is whole and isinstance(value, list) and value and all(map(_is_part, value)):
        return [_parts_only(value, where, role, rejects)]
    elif isinstance(value, list) and (value is not whole or any(map(_is_said, value))):
        return _read_list(value, where, role, rejects)
    if given is None or given == "" or value in ([], {}):
        return []
    if isinstance(value, str) and _CUT.match(value):
        reason = "messages that a limit of length cut off: what follows is lost"
        rejects.append(bad_part(place(""), reason, "cut_attribute", value))
        return [undecided(place(""), value)] if role == "assistant" else []
    if role == "assistant" and (is_foreign(value) or (named and isinstance(value, dict | list))):
        return [undecided(place(""), value)]
    return [plain(role, _text(given), place(""))]


def undecided(where: str, value: Any) -> Said:
    """What is not understood and may be the agent's doing: a message of it with nothing else in it."""
    return Said("assistant", where, unknown=[Unknown(where, value)])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and bool({"role", "parts", "tool_calls", "message"} & value.keys())


def _is_said(value: Any) -> bool:
    return isinstance(value, dict) and (is_item(value) or _is_message(as_message(value, str)[0]))


def _is_part(part: Any) -> bool:
    """A part by its kind, and no row of data that has a `type` too."""
    if not isinstance(part, dict) or "role" in part or (is_item(part) and "call_id" in part):
        return False
    kind = part.get("type")
    bedrock = any(isinstance(part.get(key), dict) for key in ("toolUse", "toolResult"))
    return bedrock or part.keys() == {"text"} or (isinstance(kind, str) and kind in _PARTS)


def _read_list(values: list[Any], where: Where, role: str, rejects: list[Reject]) -> list[Said]:
    named = any(isinstance(value, dict) and "role" in value for value in values)
    found: list[Said] = []
    items = False
    for index, value in enumerate(values):
        here = below(where, f"/{index}")
        if isinstance(value, list) and value:  # one prompt's candidates, LangChain's
            value, here = value[0], below(here, "/0")
        inner, here = as_message(value, here) if isinstance(value, dict) else (value, here)
        if (
            named
            and isinstance(inner, dict)
            and inner
            and not {"role", "message"} & inner.keys()
            and not is_item(inner)
        ):
            found.append(undecided(here(""), inner))  # whose it is, the others say of themselves
        elif (said := read_message(inner, here, role, rejects)) is not None:
            items = items or is_item(inner)
            _append(found, said, joined=items)
    return found


def _append(found: list[Said], said: Said, *, joined: bool) -> None:
    """Add a message; the items of one response follow each other."""
    last = found[-1] if found else None
    if not joined or last is None or not last.role == said.role == "assistant":
        found.append(said)
        return
    for name in ("texts", "thoughts", "calls", "unknown"):
        getattr(last, name).extend(getattr(said, name))


def _parts_only(values: list[Any], where: Where, role: str, rejects: list[Reject]) -> Said:
    """A list that holds the parts of one message."""
    said = Said(role, where(""))
    for index, value in enumerate(values):
        _read_part(said, value, below(where, f"/{index}"), rejects)
    return said


def read_message(value: Any, where: Where, role: str, rejects: list[Reject]) -> Said | None:
    """One message; None when it is none (it goes to `rejects`)."""
    if isinstance(value, str):
        return plain(role, value, where(""))
    if not isinstance(value, dict):
        rejects.append(bad_part(where(""), "message is no object", "bad_message", value))
        return None
    if is_item(value) and value["type"] != "message":
        return _read_item(value, where, rejects)
    finish = text_or_none(value.get("finish_reason", value.get("finishReason")))
    value, where = as_message(value, where)
    wrapped, inner = inside(value.get("message"), below(where, "/message"))
    if isinstance(wrapped, dict | list) and not isinstance(value.get("role"), str):
        found = read_messages(wrapped, inner, role, rejects)
        for said in found[:1]:
            said.finish = said.finish or finish
        return found[0] if found else None
    if isinstance(wrapped, str) and "content" not in value:
        return plain(role, wrapped, where("/message"))
    named = value.get("role") if value.get("role") is not None else role
    name = _ROLES.get(named, named) if isinstance(named, str) else None
    if name not in KNOWN_ROLES:
        if may_hold_call(value) or not isinstance(named, str) or named.lower() in _AGENTS:
            return undecided(where(""), value)
        known = ", ".join(sorted(KNOWN_ROLES))
        rejects.append(bad_part(where(""), f"message whose role is none of {known}", "unknown_role", value))
        return None
    return _read_fields(Said(str(name), where(""), finish=finish), value, where, rejects)


def _read_item(value: dict[str, Any], where: Where, rejects: list[Reject]) -> Said:
    """A call, a result or reasoning that is an item of its own."""
    kind = value["type"]
    said = Said("tool" if kind.endswith("_output") else "assistant", where(""))
    if kind == "reasoning":
        for key in ("summary", "content"):
            for index, part in enumerate(value[key] if isinstance(value.get(key), list) else ()):
                text = part.get("text") if isinstance(part, dict) else part
                if isinstance(text, str):
                    said.thoughts += [Text(text, where(f"/{key}/{index}"))] if text else []
                else:
                    said.unknown.append(Unknown(where(f"/{key}/{index}"), part))
    elif said.role == "tool":
        _read_answer(said, {"id": value.get("call_id"), **value, "tool_call_id": value.get("call_id")}, where)
    else:
        _read_call(said, {**value, "id": value.get("call_id")}, where, rejects)
    return said


def _read_fields(said: Said, value: dict[str, Any], where: Where, rejects: list[Reject]) -> Said:
    for key in ("parts", "content", "contents"):
        if key in value:
            _read_content(said, value[key], below(where, f"/{key}"), rejects)
    for key in ("reasoning_content", "reasoning"):
        if isinstance(value.get(key), str) and value[key] and not said.thoughts:
            said.thoughts.append(Text(value[key], where(f"/{key}")))
    listed, inner = inside(value.get("tool_calls"), below(where, "/tool_calls"))
    for index, call in enumerate(listed if isinstance(listed, list) else ()):
        _read_call(said, call, below(inner, f"/{index}"), rejects)
    if isinstance(value.get("function_call"), dict) and not said.calls:
        _read_call(said, value["function_call"], below(where, "/function_call"), rejects)
    if not said.texts and isinstance(value.get("refusal"), str) and value["refusal"]:
        said.texts.append(Text(value["refusal"], where("/refusal")))
    if said.calls and said.role != "assistant":
        return undecided(where(""), value)
    _note_unread(said, value, where)
    if said.role == "tool" and not said.answers:
        _whole_answer(said, value)
    return said


def _note_unread(said: Said, value: dict[str, Any], where: Where) -> None:
    """What a message has under keys that nobody reads: calls always, anything where nothing else is in it."""
    ids = [call.call_id for call in said.calls if call.call_id]
    empty = not (said.texts or said.thoughts or said.calls or said.answers)
    for key, inner in value.items():
        told = inner not in (None, "", [], {}) and empty
        if _is_misshapen(key, inner) or (key not in _MESSAGE and (told or names_call(key, inner, ids))):
            said.unknown.append(Unknown(where(f"/{key}"), inner))
    if said.unknown and said.role in ("system", "developer", "user") and empty:
        said.role = "assistant"  # whose it is can no more be told


def _is_misshapen(key: str, value: Any) -> bool:
    """A field of calls or thoughts that holds neither."""
    if key == "tool_calls":
        return bool(value) and not isinstance(inside(value, str)[0], list)
    if key in ("reasoning_content", "reasoning"):
        return isinstance(value, dict) and bool(value)
    return key == "function_call" and bool(value) and not isinstance(value, dict)


def _whole_answer(said: Said, value: dict[str, Any]) -> None:
    """A tool message that is one answer as a whole."""
    call_id = next(
        (t for k in ("tool_call_id", "id", "tool_use_id") if (t := text_or_none(value.get(k)))), None
    )
    failed = value.get("is_error") is True or bool(value.get("error"))
    said.answers.append(Answer(call_id, said.text, failed, said.place))
    said.texts = []


def _read_content(said: Said, content: Any, where: Where, rejects: list[Reject]) -> None:
    if isinstance(content, str) and said.role != "tool":  # a tool may well return a list of typed rows
        found, inner = inside(content, where)
        if isinstance(found, list) and found and all(_is_part(part) for part in found):
            content, where = found, inner
    if isinstance(content, str):
        if content:
            said.texts.append(Text(content, where("")))
    elif isinstance(content, list):
        for index, part in enumerate(content):
            _read_part(said, part, below(where, f"/{index}"), rejects)
    elif isinstance(content, dict) and said.role != "tool":
        said.unknown.append(Unknown(where(""), content))
    elif content is not None:
        said.texts.append(Text(canonical(content), where("")))


def _read_part(said: Said, part: Any, where: Where, rejects: list[Reject]) -> None:
    if isinstance(part, dict) and isinstance(part.get("toolUse"), dict):  # Bedrock
        part, where = {**part["toolUse"], "type": "tool_use"}, below(where, "/toolUse")
    elif isinstance(part, dict) and isinstance(part.get("toolResult"), dict):
        part, where = {**part["toolResult"], "type": "tool_result"}, below(where, "/toolResult")
    elif isinstance(part, dict) and (
        pair := next((p for p in _GEMINI if isinstance(part.get(p[0]), dict)), None)
    ):
        part, where = {**part[pair[0]], "type": pair[1]}, below(where, f"/{pair[0]}")
    kind = part.get("type") if isinstance(part, dict) else None
    kind = kind if isinstance(kind, str) else None
    if kind in _THOUGHTS:
        _read_thought(said, part, where)
    elif kind in _CALLS:
        _read_call(said, part, where, rejects)
    elif kind in _ANSWERS or (kind or "").endswith("_tool_result"):
        _read_answer(said, part, where)
    elif isinstance(part, dict) and part.get("thought") is True and isinstance(part.get("text"), str):
        said.thoughts += [Text(part["text"], where("/text"))] if part["text"] else []
    elif kind in _MEDIA:
        said.texts.append(Text(f"[{kind}]", where("")))
    elif part is not None and (text := part_text(part)) is None:
        if said.role == "tool":
            said.texts.append(Text(canonical(part), where("")))
        else:
            said.unknown.append(Unknown(where(""), part))
    elif part is not None and text:
        said.texts.append(Text(text, where("")))


def _read_thought(said: Said, part: dict[str, Any], where: Where) -> None:
    text = next((t for k in ("content", "thinking", "text") if isinstance(t := part.get(k), str)), None)
    if text is None and any(value for key, value in part.items() if key not in _THOUGHT):
        said.unknown.append(Unknown(where(""), part))
    elif text != "":
        said.thoughts.append(Text(text or f"[{part['type']}]", where("")))


def _read_call(said: Said, call: Any, where: Where, rejects: list[Reject]) -> None:
    if isinstance(call, str):
        call, where = inside(call, where)
    inner = call.get("function") if isinstance(call, dict) else None
    inner = inner if isinstance(inner, dict) else call if isinstance(call, dict) else {}
    name = next((n for k in ("name", "toolName") if isinstance(n := inner.get(k), str) and n), None)
    if name is None:
        rejects.append(bad_part(where(""), "tool call without a name", "nameless_call", call))
        return
    keys = ("arguments", "input", "args", "server_tool_call", "parameters")
    arguments = next((inner[key] for key in keys if key in inner), _not_given(inner))
    call_id = next((t for key in _CALL_IDS if (t := text_or_none(call.get(key)))), None)
    said.calls.append(Call(name, arguments, call_id, where("")))


def _not_given(call: dict[str, Any]) -> Absent | None:
    """The arguments of a call that has none, or has them under a key that is not known."""
    others = call.keys() - _CALL - set(_CALL_IDS)
    return Absent() if any(call[key] not in (None, "", [], {}) for key in others) else None


def _read_answer(said: Said, part: dict[str, Any], where: Where) -> None:
    keys = ("response", "result", "content", "output", "server_tool_call_response")
    key = next((key for key in keys if key in part), None)
    ids = ("id", "tool_call_id", "tool_use_id", "toolUseId", "toolCallId")
    call_id = next((t for name in ids if (t := text_or_none(part.get(name)))), None)
    failed = part.get("is_error") is True or part.get("isError") is True or part.get("status") == "error"
    wrapped = part[key] if key else None
    if isinstance(wrapped, dict) and wrapped.keys() == {"type", "value"}:  # the AI SDK's tool outputs
        failed = failed or str(wrapped["type"]).startswith("error")
        part, where, key = wrapped, below(where, f"/{key}"), "value"
    text = text_of(part[key]) if key else _whole(part)
    said.answers.append(Answer(call_id, text, failed, where(f"/{key}") if key else where("")))


def _whole(part: dict[str, Any]) -> str | None:
    """An answer that says what it says under a key that is not known, as JSON."""
    others = (
        part.keys()
        - {"type", "is_error", "isError", "status", "name", "toolName", "cache_control"}
        - set(_CALL_IDS)
    )
    return canonical(part) if any(part[key] for key in others - {"tool_use_id"}) else None
