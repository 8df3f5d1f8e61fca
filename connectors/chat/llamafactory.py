"""LLaMA-Factory's v1 rows: messages whose content is a list of `{type, value}` blocks. A record is one conversation.

Blocks are text, reasoning (a thought) or tool_call (JSON text of a name and arguments). One tool message answers all calls
of the turn before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat.dialogue import answer_all, call_of
from logforge.connectors.chat.labelled_chat import labelled_chat
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Text,
    Unknown,
    bad_part,
    close,
    part_text,
    read_rows,
    reject,
    stopped_by,
    text_of,
)
from logforge.connectors.records import Head, Source, at
from logforge.schemas import Reading, Reject


class LlamaFactory:
    """LLaMA-Factory's v1 conversations."""

    name = "llamafactory_v1"
    version = 4
    record = "one conversation (a line, an array element or the document)"
    fills = ("tools", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows whose messages have a content of typed blocks with a value."""
        blocks = head.keys.get("messages.content", set())
        mine = {"type", "value"} <= blocks and "role" in head.keys.get("messages", set())
        return 0.9 if head.has_rows and mine else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
            yield reject(locator, "no list of messages", "", row)
            return
        chat = _Chat()
        for index, message in enumerate(row["messages"]):
            chat.add(message, at(locator, f"/messages/{index}"))
        episode = labelled_chat(self.name, chat.builder, chat.ids, row, locator, ("messages", "tools"))
        yield from close(chat.builder, episode)


class _Blocks:
    """A message's content, by kind and in order."""

    def __init__(self, content: Any, where: str, rejects: list[Reject]) -> None:
        self.texts: list[Text] = []
        self.thoughts: list[str] = []
        self.calls: list[Call] = []
        self.called = False
        self.unknown: list[Unknown] = []
        listed = content if isinstance(content, list) else []
        if not isinstance(content, list) and content is not None:
            self.texts.append(Text(text_of(content) or "", where))
        for index, block in enumerate(listed):
            self._add(block, f"{where}/{index}", rejects)

    def _add(self, block: Any, where: str, rejects: list[Reject]) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        value = block.get("value") if kind is not None else None
        place = f"{where}/value" if kind is not None and "value" in block else where
        if kind in ("tool_call", "reasoning", "text") and "value" not in block:
            self.unknown.append(Unknown(where, block))
        elif kind == "tool_call":
            self.called = True
            call = call_of(value, place, rejects)
            self.calls += [] if call is None else [call]
        elif kind == "reasoning":
            self.thoughts.append(text_of(value) or "")
        elif kind == "text":
            self.texts.append(Text(text_of(value) or "", place))
        elif (mark := part_text(block)) is not None and isinstance(kind, str):
            self.texts.append(Text(mark, where))
        elif isinstance(kind, str):
            self.unknown.append(Unknown(where, block))
        else:
            rejects.append(bad_part(where, "content block without a type", "bad_block", block))

    @property
    def text(self) -> str | None:
        return "\n".join(text for text, _ in self.texts) if self.texts else None

    @property
    def thought(self) -> str | None:
        return "\n".join(self.thoughts) or None


class _Chat:
    """Takes a conversation's messages in order."""

    def __init__(self) -> None:
        self.builder = EpisodeBuilder()
        self.ids: list[str] = []
        self._asked: list[str] = []

    def add(self, message: Any, where: str) -> None:
        """Take one message."""
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant", "tool"):
            self.builder.rejects.append(
                bad_part(where, "message of an unknown role", "unknown_role", message)
            )
            return
        content = message.get("content")
        blocks = _Blocks(content, at(where, "/content"), self.builder.rejects)
        self.builder.note(blocks.unknown, decides=role == "assistant" or not blocks.texts)
        place = blocks.texts[0].locator if blocks.texts else where
        if role == "assistant":
            self._turn(blocks, place)
            self.builder.cut = stopped_by(message)
        elif role == "tool":
            self.ids += answer_all(self.builder, self._asked, blocks.text or "", place)
            self._asked = []
        else:
            self.builder.message(role, blocks.text, place, thought=blocks.thought)

    def _turn(self, blocks: _Blocks, place: str) -> None:
        self._asked = [call.name for call in blocks.calls]
        if blocks.called and not blocks.calls:
            # It decided something that the log no longer tells; a `respond` step would be an invention.
            self.builder.message("assistant", blocks.text, place, thought=blocks.thought)
        else:
            self.builder.turn(blocks.text, blocks.calls, place, thought=blocks.thought)
