"""Whose messages they are: SDKs that keep lists of messages with roles, as OpenAI's API does, and mean other blocks by them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from logforge.connectors.records import Head

Dialect = Literal["vercel", "bedrock", "responses", "langchain", "pydantic_ai", "gemini"]

LISTS = (
    *("messages", "contents", "items", "input", "input_items", "history", "chat_history"),
    *("initialMessages", "uiMessages", "message_history", "all_messages"),
)
"""Keys under which rows have their messages."""


class _Place(NamedTuple):
    """Where a head has messages: the keys of a message, and of the objects inside one."""

    head: Head
    path: str

    def keys(self, inner: str = "") -> set[str]:
        return self.head.keys.get(".".join(filter(None, (self.path, inner))), set())

    def shows(self, pattern: re.Pattern[bytes]) -> bool:
        return pattern.search(self.head.data) is not None


_VERCEL_CALL = re.compile(rb'"type"\s*:\s*"tool-(?:call|result)"')
_VERCEL_OLD = re.compile(rb'"toolInvocations?"\s*:')
_VERCEL_KEYS = frozenset({"providerOptions", "experimental_providerMetadata"})
_CALL_ID = re.compile(rb'"toolCallId"\s*:')


def _is_vercel(place: _Place) -> bool:
    """Messages with typed `parts`, with `toolInvocations`, or with blocks `tool-call` that have a toolCallId."""
    keys = place.keys()
    if "role" not in keys:
        return False
    if "parts" in keys:
        return "type" in place.keys("parts")
    if "content" not in keys:
        return False
    if _VERCEL_KEYS & (keys | place.keys("content")):
        return True
    return place.shows(_VERCEL_OLD) or (place.shows(_VERCEL_CALL) and place.shows(_CALL_ID))


_BEDROCK = frozenset(
    {"text", "toolUse", "toolResult", "image", "document", "video", "audio", "cachePoint", "guardContent"}
    | {"reasoningContent", "citationsContent"}
)
_TOOL_USE = re.compile(rb'"tool(?:Use|Result)"\s*:\s*\{[^{}]*"toolUseId"\s*:|"toolUse"\s*:\s*\{\s*"name"')


def _is_bedrock(place: _Place) -> bool:
    """Messages whose blocks are named by their keys, of which none is a type."""
    blocks = place.keys("content")
    if not {"role", "content"} <= place.keys():
        return False
    return (bool(blocks) and blocks <= _BEDROCK) or ("type" not in blocks and place.shows(_TOOL_USE))


_ITEM = re.compile(rb'"type"\s*:\s*"[a-z_]+_call(?:_output)?"')
_ITEM_ID = re.compile(rb'"call_id"\s*:')


def _is_responses(place: _Place) -> bool:
    """Items of calls, their outputs or reasoning among what has roles."""
    keys = place.keys()
    if "type" in keys and "role" not in keys:
        return bool(keys & {"call_id", "summary"}) and (place.shows(_ITEM) or "encrypted_content" in keys)
    if not {"role", "content"} <= keys:
        return False
    listed = place.path != "" and "type" in keys and bool(keys & {"call_id", "summary"})
    return listed or (place.path == "" and place.shows(_ITEM) and place.shows(_ITEM_ID))


_LANGCHAIN = re.compile(rb'"type"\s*:\s*"(?:human|ai|AIMessageChunk|HumanMessage|AIMessage)"')
_LANGCHAIN_KEYS = frozenset(
    {"additional_kwargs", "response_metadata", "tool_calls", "tool_call_id", "invalid_tool_calls"}
)


def _is_langchain(place: _Place) -> bool:
    """Messages that are constructors, have a type and `data`, or a type of LangChain's."""
    keys = place.keys()
    if {"lc", "kwargs"} <= keys:
        return bool({"content", "tool_calls"} & place.keys("kwargs")) and "id" in keys
    if {"type", "data"} <= keys:
        return "content" in place.keys("data") and place.shows(_LANGCHAIN)
    plain = {"type", "content"} <= keys and "role" not in keys
    return (
        plain
        and place.shows(_LANGCHAIN)
        and (bool(keys & _LANGCHAIN_KEYS) or keys <= {"type", "content", "id", "name"})
    )


def _is_pydantic_ai(place: _Place) -> bool:
    """Requests and responses whose parts have a `part_kind`."""
    return {"kind", "parts"} <= place.keys() and "part_kind" in place.keys("parts")


_GEMINI = frozenset(
    {
        "text",
        "thought",
        "functionCall",
        "function_call",
        "functionResponse",
        "function_response",
        "inlineData",
    }
    | {"inline_data", "fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult"}
)


def _is_gemini(place: _Place) -> bool:
    """Contents with a role and parts that have no type."""
    parts = place.keys("parts")
    return {"role", "parts"} <= place.keys() and "type" not in parts and bool(parts & _GEMINI)


_DIALECTS: tuple[tuple[Dialect, Callable[[_Place], bool]], ...] = (
    ("vercel", _is_vercel),
    ("bedrock", _is_bedrock),
    ("responses", _is_responses),
    ("langchain", _is_langchain),
    ("pydantic_ai", _is_pydantic_ai),
    ("gemini", _is_gemini),
)


def dialect_of(head: Head) -> Dialect | None:
    """The SDK whose messages a file holds; None where they are none of these, or are OpenAI's."""
    if head.container not in ("object", "array") or "trajectory_format" in head.top:
        return None
    listed = [key for key in LISTS if key in head.top]
    if {"values", "thread_id"} <= head.top:
        listed.append("values.messages")
    places = [_Place(head, path) for path in listed or [""]]
    return next((name for name, fits in _DIALECTS for place in places if fits(place)), None)
