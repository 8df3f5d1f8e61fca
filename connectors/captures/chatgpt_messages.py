"""The messages of a ChatGPT conversation: whom each one speaks to, what its content is, and which call a tool's message answers.

A message of the assistant to `all` is said to the user; to any other recipient it is a call of that tool. Tools answer in messages
of their own, which name the tool and no call. What a message of an assistant does not say clearly is not understood.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Absent,
    Answered,
    Call,
    EpisodeBuilder,
    Text,
    Transcript,
    bad_part,
    first_text,
    micros,
    names_call,
    object_or_empty,
    part_text,
    text_of,
    text_or_none,
)
from logforge.connectors.records import NotJson, canonical, loads, pointer

_NODE = frozenset({"id", "message", "parent", "children"})
_MESSAGE = frozenset(
    {
        "id",
        "author",
        "create_time",
        "update_time",
        "content",
        "status",
        "end_turn",
        "weight",
        "metadata",
        "recipient",
    }
    | {"channel", "children", "feedback"}
)
_WORDS = ("text", "multimodal_text")
_CONTEXT = {
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
}
"""What the app tells the model of the user, with the keys of its texts: no one's message."""
_EVERYBODY = "all"


class Node:
    """A node of the tree, and the message in it."""

    def __init__(self, key: str, value: Any, where: str) -> None:
        self.key, self.value, self.where = key, object_or_empty(value), where
        self.broken = not isinstance(value, dict)

    @property
    def parent(self) -> str | None:
        """The node that it follows."""
        return text_or_none(self.value.get("parent"))

    @property
    def children(self) -> list[str]:
        """The nodes that follow it."""
        listed = self.value.get("children")
        return [child for child in listed if isinstance(child, str)] if isinstance(listed, list) else []

    @cached_property
    def message(self) -> dict[str, Any]:
        """Its message; empty for a node without one."""
        return object_or_empty(self.value.get("message"))

    @property
    def role(self) -> str | None:
        """Whose message it is."""
        return text_or_none(object_or_empty(self.message.get("author")).get("role"))

    @property
    def tool(self) -> str | None:
        """The name of the tool that wrote it."""
        return text_or_none(object_or_empty(self.message.get("author")).get("name"))

    @property
    def about(self) -> dict[str, Any]:
        """What the app notes about it."""
        return object_or_empty(self.message.get("metadata"))

    @property
    def content(self) -> dict[str, Any]:
        """Its content."""
        return object_or_empty(self.message.get("content"))

    @property
    def kind(self) -> str | None:
        """What its content is."""
        return text_or_none(self.content.get("content_type"))

    @property
    def time(self) -> int | None:
        """When it was written."""
        return micros(self.message.get("create_time"))

    @property
    def says_something(self) -> bool:
        """A message that is neither the app's nor a note about the user."""
        return bool(self.message) and self.role != "system" and self.kind not in _CONTEXT

    def inside(self, *keys: str) -> str:
        """The locator of something in its message."""
        place = pointer(self.where, "message")
        for key in keys:
            place = pointer(place, key)
        return place


def decides(node: Node) -> bool:
    """A message in which a decision of the agent lies, or may lie."""
    return node.says_something and node.role not in ("user", "tool")


class Told(NamedTuple):
    """What a path came to: ids of the assistant's messages by position, and what the user first asked for."""

    ids: dict[int, str]
    task: str | None


def add_path(builder: EpisodeBuilder, path: list[Node]) -> Told:
    """Add the messages of a path."""
    reader = _Reader(builder)
    for node in path:
        reader.take(node)
    reader.transcript.build(builder)
    spoken = [
        turn
        for turn in reader.transcript.turns
        if turn.parts.texts or turn.parts.calls or turn.parts.thoughts
    ]
    places = [message.position for message in builder.messages if message.role == "assistant"]
    ids = {place: reader.ids[turn.where] for place, turn in zip(places, spoken, strict=False)}
    return Told(ids, reader.task)


class _Open(NamedTuple):
    """A call without an answer: its node, its tool, and the turn that it is part of."""

    node: str
    tool: str
    turn: int


class _Reader:
    """Takes the nodes of a path in their order."""

    def __init__(self, builder: EpisodeBuilder) -> None:
        self.builder = builder
        self.transcript = Transcript()
        self.ids: dict[str, str] = {}
        """The id of the message that stands at a locator."""
        self.task: str | None = None
        self._open: list[_Open] = []
        self._last: _Open | None = None
        """The call that the message before answers."""

    def take(self, node: Node) -> None:
        """Add the message of a node."""
        if node.broken:
            self.builder.rejects.append(bad_part(node.where, "node is no object", "bad_node", node.value))
            return
        if not node.message:
            self._without_message(node)
            return
        role = node.role
        for key, value in node.message.items():
            if key not in _MESSAGE and names_call(key, value):
                self.builder.unknown(node.inside(key), value, decides=True)
        self.ids[node.where] = node.key
        if node.kind in _CONTEXT:
            self._context(node, _CONTEXT[node.kind or ""])
        elif role == "assistant":
            self._assistant(node)
        elif role == "tool":
            self._tool(node)
        elif role in ("user", "system"):
            self._said(node, role)
        else:
            self.builder.unknown(node.inside(), node.message, decides=True)

    def _without_message(self, node: Node) -> None:
        for key, value in node.value.items():
            if key not in _NODE and isinstance(value, dict | list) and value:
                self.builder.unknown(pointer(node.where, key), value, decides=True)
        odd = node.value.get("message")
        if odd:
            self.builder.rejects.append(bad_part(node.inside(), "message is no object", "bad_message", odd))

    def _context(self, node: Node, keys: tuple[str, ...]) -> None:
        texts = [(key, text) for key in keys if (text := text_or_none(node.content.get(key))) is not None]
        if texts:
            told = "\n".join(text for _, text in texts)
            self.transcript.say("system", told, node.inside("content", texts[0][0]), node.time)
        if not all(isinstance(node.content.get(key), str | None) and key in node.content for key in keys):
            self.builder.unknown(node.inside("content"), node.content, decides=False)

    def _said(self, node: Node, role: str) -> None:
        texts = self._words(node, decides=False)
        attached = node.about.get("attachments")
        for index, file in enumerate(attached if isinstance(attached, list) else ()):
            place, kind = node.inside("metadata", "attachments", str(index)), _mime(file)
            if not object_or_empty(file).keys() & {"id", "name"}:
                self.builder.unknown(place, file, decides=False)
            elif not kind.startswith("image/"):
                texts.append(Text("[file]", place))
        if not texts:
            return
        text = "\n".join(text for text, _ in texts)
        self.transcript.say(role, text, texts[0].locator, node.time)
        hidden = node.about.get("is_visually_hidden_from_conversation") is True
        if role == "user" and not hidden and self.task is None and not self.transcript.turns:
            self.task = text

    def _assistant(self, node: Node) -> None:
        self.transcript.model = text_or_none(node.about.get("model_slug"))
        recipient = text_or_none(node.message.get("recipient"))
        if node.kind in ("thoughts", "reasoning_recap"):
            self._thoughts(node)
        elif recipient is None and node.message.get("end_turn") is not True:
            # without the word to whom it speaks, a call of a tool looks like words
            self.builder.unknown(node.inside(), node.message, decides=True)
        elif recipient in (None, _EVERYBODY):
            texts = self._words(node, decides=True)
            if node.message.get("channel") == "analysis":
                self.transcript.thought(texts, node.where, node.time)
            elif texts:
                self.transcript.text(texts, node.where, node.time)
            if node.message.get("end_turn") is True:
                self.transcript.end_turn()
        else:
            self._call(node, recipient or "")

    def _thoughts(self, node: Node) -> None:
        key = "thoughts" if node.kind == "thoughts" else "content"
        given, where = node.content.get(key), node.inside("content", key)
        texts = []
        for part in given if isinstance(given, list) else [given]:
            if (text := _thought(part)) is None:
                self.builder.unknown(
                    where if key in node.content else node.inside("content"), part, decides=False
                )
            elif text:
                texts.append(Text(text, where))
        if texts:
            self.transcript.thought(texts, node.where, node.time)

    def _call(self, node: Node, tool: str) -> None:
        call = Call(tool, self._arguments(node, tool), node.key, node.inside())
        self.transcript.call(call, node.where, node.time)
        self._open.append(_Open(node.key, tool, len(self.transcript.entries)))
        self._last = None

    def _arguments(self, node: Node, tool: str) -> Any:
        """What a tool is given: an object as JSON text, else code or a text."""
        parts = node.content.get("parts")
        given = node.content.get("text") if node.kind == "code" else None
        if node.kind in _WORDS and isinstance(parts, list) and all(isinstance(part, str) for part in parts):
            given = "\n".join(parts)
        if not isinstance(given, str):
            self.builder.unknown(node.inside("content"), node.content, decides=True)
            return Absent()
        if not given:
            return Absent()
        return given if tool != "python" and _is_object(given) else {"input": given}

    def _words(self, node: Node, *, decides: bool) -> list[Text]:
        """The texts and marks of a message's content. What is not understood of it is noted."""
        content, where = node.content, node.inside("content")
        if node.kind == "code" and isinstance(content.get("text"), str):
            return [Text(content["text"], pointer(where, "text"))] if content["text"] else []
        parts = content.get("parts")
        if node.kind not in _WORDS or not isinstance(parts, list):
            self.builder.unknown(where, node.message.get("content"), decides=True)
            return []
        texts: list[Text] = []
        unknown: list[tuple[str, Any]] = []
        for index, part in enumerate(parts):
            place = pointer(pointer(where, "parts"), str(index))
            if (text := part_text(part)) is None:
                unknown.append((place, part))
            elif text:
                texts.append(Text(text, place))
        for place, part in unknown:
            self.builder.unknown(place, part, decides=decides or not texts)
        return texts

    def _tool(self, node: Node) -> None:
        if node.kind is None:
            self.builder.unknown(node.inside(), node.message, decides=True)
            return
        text, where = _answer(node)
        call = self._answered(node)
        if call is None and self._last is not None and self._last.tool == node.tool:
            self._more(text)
            return
        if call is None and not text:
            return  # nothing that was said, to no call
        self._last = call
        self.transcript.answer(
            Answered(call.node if call else node.key, text, where, node.time, _failed(node))
        )

    def _more(self, text: str) -> None:
        """One call may be answered in several messages."""
        last = self.transcript.entries[-1]
        if isinstance(last, Answered) and text:
            self.transcript.entries[-1] = replace(last, text=f"{last.text}\n{text}" if last.text else text)

    def _answered(self, node: Node) -> _Open | None:
        """The call that a tool's message answers: the first open one of that tool in the latest turn, the one that it follows,
        else one of another turn or of another function of the tool."""
        late = [call for call in self._open if call.turn == self._open[-1].turn]
        family = node.tool.split(".")[0] if node.tool else None
        groups = (
            [call for call in late if call.tool == node.tool],
            [call for call in self._open if call.node == node.parent],
            [call for call in self._open if call.tool == node.tool],
            [call for call in late if call.tool.split(".")[0] == family],
            late if node.tool is None and len(self._open) == 1 else [],
        )
        found = next((calls[0] for calls in groups if calls), None)
        if found is not None:
            self._open.remove(found)
        return found


def _thought(part: Any) -> str | None:
    """A thought with its heading; None for what is none."""
    told = [part.get("summary"), part.get("content")] if isinstance(part, dict) else [part]
    return "\n".join(text for text in told if text) if all(isinstance(text, str) for text in told) else None


def _mime(file: Any) -> str:
    return first_text(object_or_empty(file), "mime_type", "mimeType") or ""


def _is_object(text: str) -> bool:
    try:
        return text.lstrip().startswith("{") and isinstance(loads(text), dict)
    except NotJson:
        return False


def _answer(node: Node) -> tuple[str, str]:
    """What a tool said: its only text, else its content as it is."""
    content, where = node.content, node.inside("content")
    parts = content.get("parts")
    if node.kind in _WORDS and isinstance(parts, list):
        if len(parts) == 1 and isinstance(parts[0], str):
            return parts[0], pointer(pointer(where, "parts"), "0")
        return text_of(parts) or "", where
    rest = {
        key: value
        for key, value in content.items()
        if key != "content_type" and value not in (None, "", [], {})
    }
    if len(rest) == 1 and isinstance(text := next(iter(rest.values())), str):
        return text, pointer(where, next(iter(rest)))
    found = node.message.get("content")
    return (canonical(found), where) if rest or not isinstance(found, dict) else ("", where)


def _failed(node: Node) -> bool | None:
    """Whether the log says that the tool failed."""
    run = object_or_empty(node.about.get("aggregate_result"))
    status = text_or_none(run.get("status")) or ""
    if node.kind == "system_error" or run.get("in_kernel_exception") or status.startswith("failed"):
        return True
    return False if status == "success" else None
