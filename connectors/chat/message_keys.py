"""What an OpenAI-style message holds beside the keys that are read: facts about it, or what was said and done elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from logforge.connectors.episodes import Call, names_call

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
_WORDS: Final = frozenset({"refusal"})


def refusal_of(message: dict[str, Any]) -> str | None:
    """The words of an answer that refuses: they stand beside an empty content."""
    said = message.get("refusal")
    return said if isinstance(said, str) and said else None


def unread(message: dict[str, Any], calls: Iterable[Call]) -> dict[str, Any]:
    """The keys of an agent's message in which a call may lie that was not read from where calls are read.

    A copy of a call that was read (same id) is none.
    """
    if message.keys() <= _READ:
        return {}
    ids = [call.call_id for call in calls if call.call_id is not None]
    return {
        key: value
        for key, value in message.items()
        if key not in _READ and key not in _ABOUT and names_call(key, value, ids)
    }


def unsaid(message: dict[str, Any]) -> dict[str, Any]:
    """The keys of a message without any content that may hold what it says: words, objects and lists that nobody reads."""
    return {
        key: value
        for key, value in message.items()
        if key not in _READ and key not in _ABOUT and key not in _WORDS and _may_say(value)
    }


def _may_say(value: Any) -> bool:
    return bool(value) and isinstance(value, str | dict | list)
