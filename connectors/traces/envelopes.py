"""What vendors and frameworks put around messages: requests and responses of their APIs, LangChain's classes, Gemini's candidates.

Each is brought to the form that messages.py reads, with where its pieces stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logforge.connectors.episodes import may_hold_call
from logforge.connectors.records import NotJson, loads

Where = Callable[[str], str]
"""Gives the locator of a JSON pointer inside the value at hand."""

_DEPTH = 4
_LISTS = ("messages", "choices", "candidates", "generations", "contents", "output", "input")
"""Keys under which an API lists messages, the surest first."""
_ENVELOPE = frozenset(
    {"role", "message", "messages", "choices", "candidates", "generations", "contents", "parts", "tool_calls"}
    | {"usage", "usageMetadata", "finish_reason", "stop_reason", "finishReason", "stopReason", "kwargs"}
)
"""Keys of messages and of what vendors put around them."""
_CLASSES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
ITEMS = frozenset(
    {
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "reasoning",
        "message",
    }
)
"""Types of the items of OpenAI's Responses API that hold what was said and done."""


def below(where: Where, pointer: str) -> Where:
    """The locators inside something inside the value at hand."""
    return lambda more: where(pointer + more)


def opened(value: Any, where: Where) -> tuple[Any, Where]:
    """The list of messages in a request or a response, or the value itself."""
    if isinstance(value, dict):
        for key in _LISTS:
            inner = value.get(key)
            if isinstance(inner, list) and (key not in ("output", "input") or _are_items(inner)):
                return opened(inner, below(where, f"/{key}"))
        output = value.get("output")
        if isinstance(output, dict) and isinstance(output.get("message"), dict):  # Bedrock's
            return output["message"], below(where, "/output/message")
    if (
        isinstance(value, list) and len(value) == 1 and isinstance(value[0], list)
    ):  # a list of prompts, LangChain's
        return value[0], below(where, "/0")
    return value, where


def _are_items(values: list[Any]) -> bool:
    return bool(values) and any(
        isinstance(value, dict) and ("role" in value or value.get("type") in list(ITEMS)) for value in values
    )


def as_message(value: dict[str, Any], where: Where) -> tuple[dict[str, Any], Where]:
    """A message with a role, where LangChain's class or Gemini's candidate tells it."""
    if isinstance(value.get("kwargs"), dict) and isinstance(value.get("id"), list) and value["id"]:
        kind, value, where = value["id"][-1], value["kwargs"], below(where, "/kwargs")
    else:
        kind = value.get("type")
    if "role" not in value and isinstance(kind, str):
        role = _CLASSES.get(kind.lower().removesuffix("chunk").removesuffix("message"))
        if role is not None and ("content" in value or "tool_calls" in value):
            own = {key: inner for key, inner in value.items() if inner not in (None, [])}
            return {**_vendors(value), **own, "role": role}, where
    content = value.get("content")
    if "role" not in value and isinstance(content, dict) and "parts" in content:
        return {"role": "assistant", **content}, below(where, "/content")
    return value, where


def _vendors(value: dict[str, Any]) -> dict[str, Any]:
    """A vendor's own fields, which LangChain keeps below `additional_kwargs`; its calls are the message's where both are there."""
    inner = value.get("additional_kwargs")
    names = (
        ("reasoning_content",)
        if value.get("tool_calls")
        else ("tool_calls", "function_call", "reasoning_content")
    )
    return {key: inner[key] for key in names if inner.get(key)} if isinstance(inner, dict) else {}


def is_item(value: Any) -> bool:
    """An item of the Responses API that names no role."""
    return isinstance(value, dict) and "role" not in value and value.get("type") in list(ITEMS)


def is_foreign(value: Any, depth: int = _DEPTH) -> bool:
    """True for JSON in which something is called or said in a way that is not known. Any other is an answer in JSON."""
    if may_hold_call(value):
        return True
    if isinstance(value, str) and depth < _DEPTH and value.lstrip()[:1] in ("{", "["):
        try:
            return is_foreign(loads(value), depth - 1)
        except NotJson:
            return False
    if isinstance(value, dict):
        if value.keys() & _ENVELOPE or ("type" in value and value.keys() & {"text", "content"}):
            return True
        return depth > 0 and any(is_foreign(inner, depth - 1) for inner in value.values())
    return isinstance(value, list) and depth > 0 and any(is_foreign(inner, depth - 1) for inner in value)
