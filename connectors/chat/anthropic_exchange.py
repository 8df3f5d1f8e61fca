"""What makes two messages of Anthropic's Messages API equal, and which response holds an answer."""

from __future__ import annotations

from typing import Any

from logforge.connectors.episodes.content import text_of, text_or_none
from logforge.connectors.records.json import canonical

_THINKING = ("thinking", "redacted_thinking")


def answer_of(response: dict[str, Any]) -> dict[str, Any] | None:
    """The message that a response gives; None for one without an answer in it."""
    content = response.get("content")
    return {"role": "assistant", "content": content} if isinstance(content, str | list) and content else None


def response_id(response: dict[str, Any]) -> str | None:
    """The id that the API gave to a response."""
    native = text_or_none(response.get("id"))
    return native if native is not None and native.startswith("msg_") else None


def message_name(message: Any) -> str:
    """A text that is equal for equal messages: thinking is not sent again, and cache marks come and go."""
    if not isinstance(message, dict):
        return canonical(message)
    role, content = message.get("role"), message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        return canonical([role, blocks])
    return canonical([role, [_essence(block) for block in blocks if not _is_thinking(block)]])


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _THINKING


def _essence(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    kind = block.get("type")
    if kind == "text":
        return ["text", block.get("text")]
    if kind == "tool_use":
        return [kind, block.get("id"), block.get("name"), block.get("input")]
    if kind == "tool_result":
        return [kind, block.get("tool_use_id"), text_of(block.get("content"))]
    return {key: value for key, value in block.items() if key != "cache_control"}
