"""Messages of LangChain and LangGraph, however they were dumped: `messages_to_dict`, `dumps` (constructors), or their fields.

A record is one conversation, or one message where messages stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.chat import calls_of, dialect_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    count_or_none,
    first_text,
    names_call,
    object_or_empty,
    part_text,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.connectors.sdks.pieces import Pieces, Result, add_pieces, leftover
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

LANGCHAIN_LISTS = ("messages", "values/messages", "chat_history", "history")
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
}
_CHAT_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
}
_KEYS = frozenset(
    {
        "content",
        "additional_kwargs",
        "response_metadata",
        "type",
        "name",
        "id",
        "tool_calls",
        "invalid_tool_calls",
    }
    | {"usage_metadata", "tool_call_id", "artifact", "status", "example", "role", "tool_call_chunks"}
    | {"chunk_position", "is_chunk", "content_blocks"}
)
_MORE_KEYS = frozenset(
    {"tool_calls", "function_call", "reasoning_content", "refusal", "__openai_function_call_ids__", "parsed"}
)
_CALL_LISTS = ("tool_calls", "invalid_tool_calls")
_CALLS = ("tool_use", "tool_call", "server_tool_use", "server_tool_call", "function_call")
_RESULTS = ("server_tool_result", "tool_result")
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")


class Langchain:
    """LangChain's messages."""

    name = "langchain"
    version = 1
    record = "one conversation (a line, an array element or the document), or one message where messages stand alone"
    fills = ("outcome", "score", "thoughts", "tokens")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Messages that are constructors (`lc`), have a type and `data`, or a type of LangChain's and no role."""
        return 0.95 if dialect_of(head) == "langchain" else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation."""
        return read_talks([source], Sdk(self.name, LANGCHAIN_LISTS, is_message, add_messages))


class _Message(NamedTuple):
    """A message without what is around it."""

    kind: str
    fields: dict[str, Any]
    where: str


def is_message(value: Any) -> bool:
    """True for a message in any of its forms."""
    return _opened(value, "") is not None


def _opened(value: Any, where: str) -> _Message | None:
    """A message in any of its forms; None when it is none."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("kwargs"), dict) and isinstance(value.get("id"), list) and "lc" in value:
        named = value["id"][-1] if value["id"] else None
        fields, where = value["kwargs"], at(where, "/kwargs")
        kind = fields.get("type") or named
    elif isinstance(value.get("data"), dict) and "content" in value["data"]:
        fields, where, kind = value["data"], at(where, "/data"), value.get("type")
    else:
        fields, kind = value, value.get("type")
    if not isinstance(kind, str) or not ("content" in fields or fields.get("tool_calls")):
        return None
    kind = kind.removesuffix("Chunk").removesuffix("Message").lower()
    return _Message(kind, fields, where)


def add_messages(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    """Add a conversation."""
    for value, place in messages:
        message = _opened(value, place)
        if message is None:
            builder.unknown(place, value, decides=True)
            continue
        kind, fields, where = message
        said_by = fields.get("role") if kind == "chat" else None
        role = _CHAT_ROLES.get(said_by) if isinstance(said_by, str) else _ROLES.get(kind)
        if role is None:
            builder.unknown(where, value, decides=kind != "remove")
        elif role == "tool":
            pieces = Pieces(results=[_answer(fields, where)])
            leftover(pieces, fields, _KEYS, where)
            add_pieces(builder, role, pieces, where)
        else:
            _add(builder, role, fields, where, told)


def _answer(fields: dict[str, Any], where: str) -> Result:
    failed = True if fields.get("status") == "error" else None
    text = text_of(fields.get("content"))
    place = at(where, "/content")
    return Result(text_or_none(fields.get("tool_call_id")), text, place, failed)


def _add(builder: EpisodeBuilder, role: str, fields: dict[str, Any], where: str, told: Told) -> None:
    steps = _read(fields, where)
    more: dict[str, Any] = {}
    if role == "assistant":
        facts = object_or_empty(fields.get("response_metadata"))
        usage = object_or_empty(fields.get("usage_metadata"))
        model = first_text(facts, "model_name", "model", "model_id")
        told.model = told.model or model
        told.stop = first_text(facts, "finish_reason", "stop_reason", "stopReason", "done_reason")
        more = {
            "model": model,
            "tokens_in": count_or_none(usage.get("input_tokens")),
            "tokens_out": count_or_none(usage.get("output_tokens")),
        }
    leftover(steps[-1], fields, _KEYS, where)
    for pieces in steps:
        add_pieces(builder, role, pieces, where, **more)


def _read(fields: dict[str, Any], where: str) -> list[Pieces]:
    """What a message says, thinks and calls. What stands behind a result, of a tool that the provider ran, was decided later.

    Calls in `tool_calls` are there once more as blocks, and in the vendor's own form.
    """
    steps, place, content = [Pieces()], at(where, "/content"), fields.get("content")
    known = {
        text_or_none(object_or_empty(call).get("id"))
        for key in _CALL_LISTS
        for call in _listed(fields.get(key))
    }
    if isinstance(content, list):
        for index, block in enumerate(content):
            if steps[-1].results and not _is_result(block):
                steps.append(Pieces())
            _read_block(steps[-1], block, at(place, f"/{index}"), known)
    elif content is not None and not steps[-1].say(content, place):
        steps[-1].puzzle({"content": content}, place)
    for key in _CALL_LISTS:
        calls = fields.get(key)
        for index, call in enumerate(_listed(calls)):
            inner, spot = object_or_empty(call), at(where, f"/{key}/{index}")
            steps[-1].call(inner.get("name"), inner.get("args"), inner.get("id"), call, spot)
        if calls and not isinstance(calls, list):
            steps[-1].puzzle({key: calls}, at(where, f"/{key}"))
    _beside(steps[-1], object_or_empty(fields.get("additional_kwargs")), at(where, "/additional_kwargs"))
    return steps


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_result(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and (kind in _RESULTS or kind.endswith("_tool_result"))


def _beside(pieces: Pieces, more: dict[str, Any], where: str) -> None:
    """What the vendor's answer held that no field of LangChain takes."""
    if not pieces.calls:
        pieces.calls += calls_of(more, where, pieces.rejects)
    if not pieces.thoughts:
        pieces.think(more.get("reasoning_content"), at(where, "/reasoning_content"))
    if not pieces.texts:
        pieces.say(more.get("refusal"), at(where, "/refusal"))
    ids = [call.call_id for call in pieces.calls if call.call_id is not None]
    for key, value in more.items():
        if key not in _MORE_KEYS and names_call(key, value, ids):
            pieces.puzzle({key: value}, at(where, f"/{key}"))


def _read_block(pieces: Pieces, block: Any, where: str, known: set[str | None]) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict) and kind in _CALLS:
        call_id = text_or_none(block.get("call_id")) or text_or_none(block.get("id"))
        if call_id is None or call_id not in known:
            key = next((key for key in ("input", "args", "arguments") if key in block), "input")
            run_there = kind in ("server_tool_use", "server_tool_call")
            pieces.call(block.get("name"), block.get(key), call_id, block, where)
            if run_there and pieces.calls:
                pieces.calls[-1] = pieces.calls[-1]._replace(offered=True)
    elif _is_result(block):
        call_id = first_text(block, "tool_call_id", "tool_use_id")
        key = "output" if "output" in block else "content"
        failed = True if block.get("status") == "error" or block.get("is_error") is True else None
        pieces.results.append(Result(call_id, text_of(block.get(key)), at(where, f"/{key}"), failed))
    elif isinstance(block, dict) and kind in _THOUGHTS:
        _think(pieces, block, where)
    elif (text := part_text(block)) is not None:
        pieces.say(text, where)
    else:
        pieces.puzzle(block, where)


def _think(pieces: Pieces, block: dict[str, Any], where: str) -> None:
    """Thinking, as text or as a summary of several; encrypted thinking tells nothing."""
    for key in ("thinking", "reasoning", "text"):
        if pieces.think(block.get(key), at(where, f"/{key}")):
            return
    for key in ("summary", "content"):
        listed = block.get(key)
        for index, part in enumerate(listed if isinstance(listed, list) else ()):
            pieces.think(object_or_empty(part).get("text"), at(where, f"/{key}/{index}/text"))
