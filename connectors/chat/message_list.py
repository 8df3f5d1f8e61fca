"""Bare lists of messages, as a script dumps what it sent: `[{"role": …, "content": …}, …]`, OpenAI's or Anthropic's.

The list is one conversation, and a record is a message of it. In a list of such lists each is a conversation and a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat.dialects import dialect_of
from logforge.connectors.chat.dialogue import chat_ending
from logforge.connectors.chat.openai_turns import add_message
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    content_id,
    first_user_text,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.schemas import Reading, Reject

_KEYS = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "reasoning_content",
        "reasoning",
    }
    | {"refusal", "audio", "annotations", "thinking_blocks", "provider_specific_fields"}
    | {"id", "timestamp", "created_at", "model", "is_error", "status", "error"}
)
"""What a message of such a list may have. One more key, and somebody else's rows only look like it."""
_ROLE = re.compile(rb'"role"\s*:\s*"([^"]*)"')
_ROLES = (b"system", b"developer", b"user", b"assistant")
_OTHERS = re.compile(
    rb"```mswea_bash_command|<returncode>|<environment_details>|<function=|<tool_call>|<execute>|\] Result:"
)
"""Marks of harnesses that write calls and results into texts; the connectors of their own read them."""


class MessageList:
    """A bare list of messages."""

    name = "message_list"
    version = 1
    record = "one message of the list; where lists stand in a list, one of them"
    fills = ("thoughts", "times")

    def sniff(self, head: Head) -> float:
        """An array whose first object is a message and nothing more."""
        is_message = {"role", "content"} <= head.top <= _KEYS
        role = _ROLE.search(head.data)
        if head.container != "array" or not is_message or role is None or role[1] not in _ROLES:
            return 0.0
        return 0.0 if _OTHERS.search(head.data) or dialect_of(head) else 0.6

    def read(self, source: Source) -> Iterator[Reading]:
        """The messages of the list are one episode, which comes at the end."""
        listed: list[tuple[Any, str]] = []
        cut = False

        def row(value: Any, locator: str) -> Iterator[Reading]:
            if isinstance(value, dict) and "role" in value:
                listed.append((value, locator))
            elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
                messages = [(item, at(locator, f"/{index}")) for index, item in enumerate(value)]
                yield from self._conversation(messages, locator, 1, cut=False)
            else:
                yield reject(locator, "neither a message nor a list of messages", "", value)

        for reading in read_rows(source, row):
            cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
            yield reading
        if listed:
            yield from self._conversation(listed, listed[0][1], len(listed), cut=cut)

    def _conversation(
        self, messages: list[tuple[Any, str]], locator: str, records: int, *, cut: bool
    ) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        for message, where in messages:
            add_message(builder, message, where)
        ending, reason = chat_ending(builder)
        if cut:
            ending, reason = "truncated", "the log is cut off"
        models = (text_or_none(message.get("model")) for message, _ in messages)
        model = next((name for name in models if name is not None), None)
        episode = builder.finish(
            id=content_id(self.name, [message for message, _ in messages]),
            format=self.name,
            locator=locator,
            records=records,
            ending=ending,
            ending_reason=reason,
            task=first_user_text(builder),
            model=model,
            policy_id=model,
        )
        yield from close(builder, episode)
