"""What rollouts share: which messages the policy decided, calls that are JSON text, and several episodes of one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from logforge.connectors.chat import add_given, add_message
from logforge.connectors.episodes import EpisodeBuilder
from logforge.connectors.records import NotJson, loads
from logforge.schemas import Episode, Reading, Reject


class Talk:
    """Takes the messages of a rollout in order: those that the policy decided, and those that it was given."""

    def __init__(self, builder: EpisodeBuilder) -> None:
        self.builder = builder
        self._given: set[str] = set()

    def add(self, message: Any, where: str, *, decided: bool) -> None:
        """Take one message. One of the assistant that the policy did not decide is history, and so are the answers to it."""
        role = message.get("role") if isinstance(message, dict) else None
        call_id = message.get("tool_call_id") if role == "tool" else None
        if (role == "assistant" and not decided) or (isinstance(call_id, str) and call_id in self._given):
            add_given(self.builder, with_calls(message), where)
            self._given |= _ids(message)
        else:
            self._given -= _ids(message)
            add_message(self.builder, message, where)


def _ids(message: Any) -> set[str]:
    calls = with_calls(message).get("tool_calls") if isinstance(message, dict) else None
    return {
        call["id"]
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, dict) and isinstance(call.get("id"), str)
    }


def with_calls(message: Any) -> Any:
    """A message whose `tool_calls` are no JSON text, nor a list of JSON texts, any more. What is no JSON stays as it is."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if isinstance(calls, str):
        return message | {"tool_calls": _parsed(calls)}
    if isinstance(calls, list) and any(isinstance(call, str) for call in calls):
        return message | {"tool_calls": [_parsed(call) for call in calls]}
    return message


def _parsed(value: Any) -> Any:
    try:
        return loads(value) if isinstance(value, str) else value
    except NotJson:
        return value


def with_object(value: Any) -> Any:
    """A value whose JSON text holds an object as that object; any other as it is."""
    parsed = _parsed(value)
    return parsed if isinstance(parsed, dict) else value


def one_record(found: list[list[Reading]]) -> Iterator[Reading]:
    """The readings of several rollouts that are one record: the first with an episode accounts for it."""
    has_episode = [any(isinstance(item, Episode) for item in readings) for readings in found]
    first = has_episode.index(True) if True in has_episode else 0
    for index, readings in enumerate(found):
        for item in readings:
            if index == first or (isinstance(item, Reject) and item.level == "part"):
                yield item
            elif isinstance(item, Episode):
                yield msgspec.structs.replace(item, records=0)
