"""What an OpenAI-style message holds beside the keys that are read: facts about it, or what was said and done elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from logforge.connectors.episodes import Call, unread_calls, unsaid

_READ: Final = frozenset(
    {"role", "content", "tool_calls", "function_call", "tool_call_id", "tool_call_ids", "name", "type", "id"}
    | {
        "reasoning_content",
        "reasoning",
        "error",
        "is_error",
        "status",
        "propensity",
        "timestamp",
        "created_at",
    }
)
_ABOUT: Final = frozenset(
    {"usage", "token_usage", "usage_metadata", "logprobs", "annotations", "audio", "reasoning_details"}
    | {"thinking_blocks", "tools", "functions", "tool_choice", "timings", "cache_control"}
)
"""Keys whose values are objects or lists and no part of what the agent decided."""
_KNOWN = _READ | _ABOUT


def refusal_of(message: dict[str, Any]) -> str | None:
    """The words of an answer that refuses: they stand beside an empty content."""
    said = message.get("refusal")
    return said if isinstance(said, str) and said else None


def unread(message: dict[str, Any], calls: Iterable[Call]) -> dict[str, Any]:
    """The keys of an agent's message in which a call may lie that was not read from where calls are read."""
    if message.keys() <= _READ:
        return {}
    return unread_calls(message, _KNOWN, [call.call_id for call in calls if call.call_id is not None])


def elsewhere(message: dict[str, Any]) -> dict[str, Any]:
    """The keys of a message without any content that may hold what it says. A refusal is read."""
    return unsaid(message, _KNOWN | {"refusal"})
