"""One request of Anthropic's Messages API with its response, and what makes two of its messages equal."""

from __future__ import annotations

from typing import Any, NamedTuple

from logforge.connectors.base import at
from logforge.connectors.content import first_text, micros, text_of
from logforge.connectors.jsontext import NotJson, canonical, loads

_THINKING = ("thinking", "redacted_thinking")


class Exchange(NamedTuple):
    """A request, its response, and where both stand."""

    row: dict[str, Any]
    locator: str
    request: dict[str, Any]
    asked: str
    response: dict[str, Any]
    given: str

    @property
    def messages(self) -> list[Any]:
        """The conversation that was sent."""
        messages: list[Any] = self.request["messages"]
        return messages

    @property
    def time(self) -> int | None:
        """When it was made."""
        return micros(first_text(self.row, "timestamp", "created_at", "start_time", "time"))


def body_of(value: Any, where: str) -> tuple[str, Any]:
    """A request or response, which may be JSON text or lie under `body`. With where it stands."""
    if isinstance(value, str):
        try:
            value, where = loads(value), where + "#"
        except NotJson:
            return where, None
    if isinstance(value, dict) and isinstance(value.get("body"), dict | str) and "messages" not in value:
        return body_of(value["body"], at(where, "/body"))
    return where, value


def answers(response: dict[str, Any]) -> bool:
    """True for a response with an answer in it."""
    return isinstance(response.get("content"), str | list) and bool(response["content"])


def message_name(role: Any, content: Any) -> str:
    """A text that is equal for equal messages: thinking is not sent again, and cache marks come and go."""
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
