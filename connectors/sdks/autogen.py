"""Runs of AutoGen's agents: messages and events of a team or an agent (`TaskResult`), and an agent's own context.

A record is one run, or one message where messages stand alone. Agents of a team share one conversation: it is one episode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.episodes import (
    EpisodeBuilder,
    count_or_none,
    first_text,
    micros,
    object_or_empty,
    part_text,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.sdks.pieces import Pieces, Result, add_pieces, leftover, told_text
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

_LISTS = ("messages", "llm_context/messages")
_KEYS = frozenset(
    {
        "id",
        "source",
        "models_usage",
        "metadata",
        "created_at",
        "content",
        "type",
        "thought",
        "full_message_id",
    }
    | {"target", "context", "results", "tool_calls", "format_string"}
)
_SAID = (
    "TextMessage",
    "MultiModalMessage",
    "StructuredMessage",
    "UserMessage",
    "AssistantMessage",
    "StopMessage",
)
_CALLS = ("ToolCallRequestEvent", "ToolCallMessage", "AssistantMessage")
_RESULTS = ("ToolCallExecutionEvent", "ToolCallResultMessage", "FunctionExecutionResultMessage")
_TOLD = ("ToolCallSummaryMessage", "HandoffMessage")
"""What the framework writes in an agent's name: results once more, and that another agent goes on."""
_PASSING = (
    "ModelClientStreamingChunkEvent",
    "UserInputRequestedEvent",
    "SelectSpeakerEvent",
    "SelectorEvent",
)
"""Pieces of messages that come whole later, and who is to speak."""
_USERS = re.compile(r"user(?:_?proxy)?\w*|human|admin", re.IGNORECASE)
_CAPPED = re.compile(r"Maximum number of|Token usage limit|Timeout|External termination", re.IGNORECASE)
_TYPES = re.compile(
    rb'"type"\s*:\s*"(?:TextMessage|ToolCallRequestEvent|ToolCallExecutionEvent|AssistantMessage|'
    rb'FunctionExecutionResultMessage|ThoughtEvent|MultiModalMessage|ToolCallSummaryMessage)"'
)


class Autogen:
    """Runs of AutoGen."""

    name = "autogen"
    version = 1
    record = "one run (a line, an array element or the document), or one message where messages stand alone"
    fills = ("outcome", "score", "thoughts", "tokens", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Messages with a source and a type of AutoGen's."""
        if head.container not in ("object", "array") or not _TYPES.search(head.data):
            return 0.0
        named = [head.keys[path] for path in ("messages", "llm_context.messages") if path in head.keys]
        keys = named[0] if named else head.top
        return 0.95 if {"source", "content", "type"} <= keys and "role" not in keys else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per run."""
        return read_talks([source], Sdk(self.name, _LISTS, _is_message, _add, _add_row))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and "content" in value


def _add_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    """Why the run stopped."""
    reason = first_text(row, "stop_reason")
    if reason is not None and _CAPPED.match(reason):
        told.cut = reason[:80]
    elif reason is not None and reason.startswith(("Text '", "Stop message")):
        told.ended = reason[:80]


def _add(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    thoughts: list[tuple[Any, str]] = []
    agents: dict[str, None] = {}
    for message, where in messages:
        kind = message.get("type") if _is_message(message) else None
        if not isinstance(message, dict) or not isinstance(kind, str):
            builder.unknown(where, message, decides=True)
        elif kind == "ThoughtEvent":
            thoughts.append((message.get("content"), at(where, "/content")))
        elif kind not in _PASSING:
            pieces = _read(message, kind, where)
            role = _role(message, kind)
            for thought, place in thoughts if role == "assistant" and kind not in _TOLD else ():
                if not pieces.think(thought, place):
                    pieces.puzzle(thought, place)
            thoughts = [] if role == "assistant" and kind not in _TOLD else thoughts
            if role == "assistant" and (name := text_or_none(message.get("source"))):
                agents[name] = None
            _add_message(builder, pieces, role, message, kind, where)
    for thought, place in thoughts:
        builder.message("assistant", None, place, thought=text_or_none(thought))
    told.more["agents"] = list(agents)


def _role(message: dict[str, Any], kind: str) -> str:
    source = text_or_none(message.get("source")) or ""
    if kind == "SystemMessage":
        return "system"
    if kind in _RESULTS:
        return "tool"
    return "user" if kind == "UserMessage" or _USERS.fullmatch(source) else "assistant"


def _add_message(
    builder: EpisodeBuilder, pieces: Pieces, role: str, message: dict[str, Any], kind: str, where: str
) -> None:
    usage = object_or_empty(message.get("models_usage"))
    more: dict[str, Any] = {"created_at": micros(message.get("created_at"))}
    if kind in _TOLD:
        builder.note(pieces.unknown, decides=False)
        builder.message("assistant", pieces.text, at(where, "/content"), **more)
        return
    if role == "assistant":
        more["tokens_in"] = count_or_none(usage.get("prompt_tokens"))
        more["tokens_out"] = count_or_none(usage.get("completion_tokens"))
    add_pieces(builder, role, pieces, where, **more)


def _read(message: dict[str, Any], kind: str, where: str) -> Pieces:
    pieces, content, place = Pieces(), message.get("content"), at(where, "/content")
    if message.get("thought") is not None and not pieces.think(message["thought"], at(where, "/thought")):
        pieces.puzzle({"thought": message["thought"]}, at(where, "/thought"))
    if kind in _CALLS and isinstance(content, list):
        for index, call in enumerate(content):
            _add_call(pieces, call, f"{place}/{index}")
    elif kind in _RESULTS and isinstance(content, list):
        for index, result in enumerate(content):
            _add_result(pieces, result, f"{place}/{index}")
    elif kind in _TOLD or kind in _SAID or kind == "SystemMessage":
        _say(pieces, content, kind, place)
    elif kind == "MemoryQueryEvent":
        pieces.puzzle({"memory": content}, place)
    else:
        pieces.puzzle(message, where)
    leftover(pieces, message, _KEYS, where)
    return pieces


def _add_call(pieces: Pieces, call: Any, where: str) -> None:
    inner = object_or_empty(call)
    if text_or_none(inner.get("id")) is None:
        pieces.puzzle(call, where)
    else:
        pieces.call(inner.get("name"), inner.get("arguments"), inner["id"], call, where)


def _add_result(pieces: Pieces, result: Any, where: str) -> None:
    inner = object_or_empty(result)
    call_id, failed = text_or_none(inner.get("call_id")), inner.get("is_error")
    if call_id is None or "content" not in inner:
        pieces.puzzle(result, where)
        return
    flag = failed if isinstance(failed, bool) else None
    pieces.results.append(Result(call_id, told_text(inner["content"]), at(where, "/content"), flag))


def _say(pieces: Pieces, content: Any, kind: str, where: str) -> None:
    """A text, a list of texts and pictures, or an object (a structured message)."""
    if isinstance(content, list):
        for index, part in enumerate(content):
            text = part_text(part)
            if text is None and isinstance(part, dict) and part.keys() <= {"data", "url", "detail"}:
                text = "[image]"
            if text is None or not pieces.say(text, f"{where}/{index}"):
                pieces.puzzle(part, f"{where}/{index}")
    elif isinstance(content, dict) and kind == "StructuredMessage":
        pieces.say(canonical(content), where)
    elif content is not None and not pieces.say(content, where):
        pieces.puzzle({"content": content}, where)
