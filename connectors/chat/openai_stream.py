"""Streams of OpenAI chat completions: a `chat.completion.chunk` per line, with or without the conversation's other messages.

A record is a line. The chunks of one response id are one assistant message: fragments of a call belong together by their
`index`, wherever they stand. Lines that are plain messages are read like those of `openai_messages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from logforge.connectors.chat.openai_messages import SESSION_KEYS
from logforge.connectors.chat.openai_turns import add_message
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Text,
    bad_part,
    bad_record,
    close,
    cost_or_none,
    count_or_none,
    episode_id,
    first_text,
    first_user_text,
    limit_met,
    micros,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, joined, loads, without_halves
from logforge.schemas import Ending, Reading, Reject

CHUNK = "chat.completion.chunk"
"""What the `object` of a chunk is."""
_OBJECT = re.compile(rb'"object"\s*:\s*"chat\.completion\.chunk"')


class OpenAIStream:
    """Logs of streamed responses."""

    name = "openai_stream"
    version = 4
    record = "one line: a chunk of a response, or a message"
    fills = ("thoughts", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """One of the first lines (or the first element of an array) is a chunk."""
        if head.container not in ("object", "array", "text") or not _OBJECT.search(head.data):
            return 0.0
        if head.container == "array":
            return 0.9 if {"object", "choices"} <= head.top else 0.0
        return 0.95 if any(_is_chunk_line(line) for line in head.data.split(b"\n")[:50]) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session; without sessions, per response or for the whole file (when it has messages too)."""
        conversations = _Conversations()
        for locator, row in replace(source, halves=True).records():
            conversations.cut = isinstance(row, Reject) and row.rule == "malformed_record"
            reading = row if isinstance(row, Reject) else conversations.add(row, locator)
            if reading is not None:
                yield reading
        yield from conversations.episodes()


def _is_chunk_line(line: bytes) -> bool:
    if not _OBJECT.search(line):
        return False
    try:
        return _is_chunk(loads(line))
    except NotJson:
        return False


def _text(value: Any) -> str | None:
    text = text_or_none(value)
    return None if text is None else str(text)


def _is_chunk(row: Any) -> bool:
    return isinstance(row, dict) and row.get("object") == CHUNK


@dataclass
class _Conversation:
    """One conversation's messages and responses, in the order in which they begin."""

    session: str | None
    first: dict[str, Any]
    locator: str
    answer: dict[str, Any] | None = None
    """The first chunk of its first response."""
    records: int = 0
    entries: list[tuple[dict[str, Any], str] | Response] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


class _Conversations:
    """Takes the lines one by one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Conversation] = {}
        self._responses: dict[tuple[str, str, str], Response] = {}
        self._latest: _Conversation | None = None
        self.cut = False
        """The file's last line is damaged, so the end of the conversation before it is lost."""

    def add(self, row: Any, locator: str) -> Reading | None:
        """Take a line, or say why not."""
        chunk = _is_chunk(row)
        if not chunk and not (isinstance(row, dict) and isinstance(row.get("role"), str)):
            reason = "line is neither a chunk of a response nor a message"
            return bad_record(locator, reason, "not_a_chunk", row)
        native = _text(row.get("id"))
        if chunk and native is None:
            reason = "chunk without the id of its response"
            return bad_record(locator, reason, "chunk_without_id", row)
        session = _text(first_text(row, *SESSION_KEYS))
        key = ("session", session) if session else ("response", native or "") if chunk else ("file", "")
        if session is None and ("file", "") in self._known:
            key = ("file", "")
        if key == ("file", "") and key not in self._known:
            self._gather()
        conversation = self._known.get(key)
        if conversation is None:
            conversation = self._known[key] = _Conversation(session, without_halves(row), locator)
        conversation.records += 1
        self._latest = conversation
        if not chunk:
            conversation.entries.append((without_halves(row), locator))
            return None
        if conversation.answer is None:
            conversation.answer = without_halves(row)
        response = self._responses.get((*key, native or ""))
        if response is None:
            response = self._responses[*key, native or ""] = Response(locator)
            conversation.entries.append(response)
        response.add(row, locator, conversation.rejects)
        return None

    def _gather(self) -> None:
        """Messages without a session: the file is one conversation, and the responses read so far are part of it."""
        alone = [key for key in self._known if key[0] == "response"]
        if not alone:
            return
        whole = self._known[alone[0]]
        for key in alone[1:]:
            other = self._known[key]
            whole.records += other.records
            whole.entries += other.entries
            whole.rejects += other.rejects
        for key in alone:
            del self._known[key]
            self._responses["file", "", key[1]] = self._responses.pop((*key, key[1]))
        self._known["file", ""] = whole

    def episodes(self) -> Iterator[Reading]:
        """One episode per conversation."""
        for conversation in self._known.values():
            try:
                yield from list(_episode(conversation, self.cut and conversation is self._latest))
            except RecursionError:
                where, records = conversation.locator, conversation.records
                yield Reject(locator=where, reason="nested too deep", rule="nested_too_deep", records=records)


def _episode(conversation: _Conversation, cut: bool) -> Iterator[Reading]:
    builder = EpisodeBuilder()
    builder.rejects += conversation.rejects
    models: list[str] = []
    for entry in conversation.entries:
        if isinstance(entry, Response):
            entry.build(builder)
            models += [entry.model] if entry.model else []
        else:
            add_message(builder, *entry)
    last = conversation.entries[-1]
    ending, reason = _ending(builder, last if isinstance(last, Response) else None, cut)
    native = conversation.session or text_or_none(conversation.first.get("id"))
    episode = builder.finish(
        id=_identity(conversation, native),
        format=OpenAIStream.name,
        locator=conversation.locator,
        records=conversation.records,
        ending=ending,
        ending_reason=reason,
        native_id=native,
        session_id=conversation.session,
        task=first_user_text(builder),
        model=models[0] if models else None,
        policy_id=models[0] if models else None,
    )
    yield from close(builder, episode)


def _identity(conversation: _Conversation, native: str | None) -> str:
    """By its first line, and by the first chunk of its first response: many runs begin with the same words of the user."""
    first, answer = conversation.first, conversation.answer
    told = [canonical(answer)] if answer is not None and answer != first else []
    return episode_id(OpenAIStream.name, native, canonical(first), *told)


def _ending(builder: EpisodeBuilder, last: Response | None, cut: bool) -> tuple[Ending, str]:
    """A stream that ends without a finish reason was cut off; else the assistant's reply is the end."""
    if cut:
        return "truncated", "the log is cut off"
    if last is not None and last.finish is None:
        return "truncated", "the stream stops before its end"
    if (why := builder.cut if last is None else limit_met(last.finish)) is not None:
        return "truncated", why
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if not builder.messages or builder.messages[-1].role != "assistant":
        return "truncated", "the log stops before the agent's answer"
    return "terminal", "end of conversation"


@dataclass
class _Fragments:
    """A call, as far as it has come."""

    where: str
    index: Any
    call_id: str | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class Response:
    """The chunks of one response."""

    where: str
    texts: list[Text] = field(default_factory=list)
    thoughts: list[Text] = field(default_factory=list)
    calls: list[_Fragments] = field(default_factory=list)
    finish: str | None = None
    model: str | None = None
    time: int | None = None
    usage: dict[str, Any] = field(default_factory=dict)

    def add(self, chunk: dict[str, Any], locator: str, rejects: list[Reject]) -> None:
        """Take the next chunk."""
        self.model = self.model or _text(chunk.get("model"))
        self.time = self.time if self.time is not None else micros(chunk.get("created"))
        self.usage = chunk["usage"] if isinstance(chunk.get("usage"), dict) else self.usage
        choices = chunk.get("choices")
        for number, choice in enumerate(choices if isinstance(choices, list) else ()):
            where = at(locator, f"/choices/{number}")
            if not isinstance(choice, dict):
                rejects.append(bad_part(where, "choice is no object", "bad_choice", choice))
            elif choice.get("index") not in (None, 0):
                rejects.append(
                    bad_part(where, "piece of another answer to the same request", "other_choice", choice)
                )
            else:
                self.finish = text_or_none(choice.get("finish_reason")) or self.finish
                if isinstance(choice.get("delta"), dict):
                    self._add_delta(choice["delta"], at(where, "/delta"), rejects)

    def _add_delta(self, delta: dict[str, Any], where: str, rejects: list[Reject]) -> None:
        for key in ("content", "refusal"):
            if isinstance(delta.get(key), str) and delta[key]:
                self.texts.append(Text(delta[key], f"{where}/{key}"))
        for key in ("reasoning_content", "reasoning"):
            if isinstance(delta.get(key), str) and delta[key]:
                self.thoughts.append(Text(delta[key], f"{where}/{key}"))
                break
        calls = delta.get("tool_calls")
        for number, piece in enumerate(calls if isinstance(calls, list) else ()):
            self._add_piece(piece, f"{where}/tool_calls/{number}", rejects)
        if isinstance(delta.get("function_call"), dict):
            self._add_piece(
                {"index": 0, "function": delta["function_call"]}, f"{where}/function_call", rejects
            )

    def _add_piece(self, piece: Any, where: str, rejects: list[Reject]) -> None:
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            rejects.append(bad_part(where, "fragment of a call is no object", "bad_fragment", piece))
            return
        call = self._call_of(piece.get("index"), _text(piece.get("id")), where)
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name != call.name:  # some servers repeat the whole name
            call.where = call.where if call.name else where
            call.name += str(name)
        if arguments is not None:
            call.arguments.append(arguments if isinstance(arguments, str) else canonical(arguments))

    def _call_of(self, index: Any, call_id: str | None, where: str) -> _Fragments:
        """The call that a fragment belongs to: by index, unless it brings an id of its own; without an index, by id or the last."""
        for call in reversed(self.calls):
            same_id = call_id is None or call.call_id is None or call.call_id == call_id
            if same_id and (index is None or call.index == index):
                call.call_id = call.call_id or call_id
                return call
        self.calls.append(_Fragments(where, index, call_id))
        return self.calls[-1]

    def build(self, builder: EpisodeBuilder) -> None:
        """Add the response as one assistant turn."""
        named = [Call(c.name, joined(c.arguments), c.call_id, c.where) for c in self.calls if c.name]
        builder.rejects += [
            bad_part(c.where, "tool call without a name", "nameless_call", joined(c.arguments))
            for c in self.calls
            if not c.name
        ]
        more: dict[str, Any] = {
            "thought": joined(text for text, _ in self.thoughts) or None,
            "created_at": self.time,
            "model": self.model,
            "tokens_in": count_or_none(self.usage.get("prompt_tokens")),
            "tokens_out": count_or_none(self.usage.get("completion_tokens")),
            "cost_usd": cost_or_none(self.usage.get("cost")),
        }
        text = joined(text for text, _ in self.texts) or None
        where = self.texts[0].locator if self.texts else self.where
        if named or (text is not None and not self.calls):
            builder.turn(text, named, where, **more)
        elif text is not None or self.thoughts:
            builder.message("assistant", text, where, **more)
