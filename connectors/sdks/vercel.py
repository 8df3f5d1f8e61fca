"""Chats of the Vercel AI SDK: UI messages of version 5 (`parts`) and 4 (`toolInvocations`), and model messages.

An assistant's UI message holds several responses of the model, each with its calls and their results; `step-start` begins
one. A record is a chat, or one message where lines or the elements of a list are messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import dialect_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    first_text,
    micros,
    object_or_empty,
    place_of,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.connectors.sdks.pieces import Pieces, Result, add_pieces, leftover, told_text
from logforge.connectors.sdks.talks import SESSION_KEYS, Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

_LISTS = ("messages", "initialMessages", "uiMessages", "history")
_MESSAGE_KEYS = frozenset(
    {"id", "role", "content", "parts", "toolInvocations", "reasoning", "createdAt", "created_at", "updatedAt"}
    | {"metadata", "annotations", "revisionId", "providerOptions", "providerMetadata"}
    | {"experimental_providerMetadata", "attachments", "experimental_attachments", "status", "model", "type"}
    | {*SESSION_KEYS, "userId", "user_id", "parentId", "format", "experimental_output"}
)
_ROLES = ("system", "developer", "user", "assistant", "tool")
_MARKS = ("file", "image")
_APPROVALS = ("tool-approval-request", "tool-approval-response")
"""Whether a call may run: its result says what came of it."""
_ASIDES = ("data-", "source")
"""Parts for the page that shows the chat: the model neither said nor saw them."""


class VercelAi:
    """Messages of the AI SDK."""

    name = "vercel_ai"
    version = 1
    record = "one chat (a line, an array element or the document), or one message where messages stand alone"
    fills = ("outcome", "score", "thoughts", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Messages with `parts` that have types, with `toolInvocations`, or with blocks of calls that have a toolCallId."""
        return 0.95 if dialect_of(head) == "vercel" else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per chat."""
        return read_talks([source], Sdk(self.name, _LISTS, _is_message, _add))


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and ("content" in value or "parts" in value)
    )


def _add(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    asides: list[Any] = []
    for message, where in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "data":
            asides.append(message)
        elif role in _ROLES:
            _add_message(builder, message, where, told, asides)
        else:
            builder.unknown(where, message, decides=True)
    if asides:
        told.more["asides"] = asides


def _add_message(
    builder: EpisodeBuilder, message: dict[str, Any], where: str, told: Told, asides: list[Any]
) -> None:
    role, metadata = message["role"], object_or_empty(message.get("metadata"))
    time = first_text(message, "createdAt", "created_at") or first_text(metadata, "createdAt")
    more: dict[str, Any] = {"created_at": micros(time)}
    if role == "assistant":
        more["model"] = first_text(message, "model") or first_text(metadata, "model", "modelId")
        told.model = told.model or more["model"]
    steps = _steps(message, where, asides)
    leftover(steps[-1], message, _MESSAGE_KEYS, where)
    for pieces in steps:
        add_pieces(builder, role, pieces, where, **more)
    told.cut = "the stream stops before its end" if _streams(message) else None


def _streams(message: dict[str, Any]) -> bool:
    """The message was saved while its last part was still coming."""
    parts = message.get("parts")
    last = parts[-1] if isinstance(parts, list) and parts else None
    return isinstance(last, dict) and last.get("state") in ("streaming", "input-streaming")


def _steps(message: dict[str, Any], where: str, asides: list[Any]) -> list[Pieces]:
    """The responses that a message holds, at least one."""
    parts, content = message.get("parts"), message.get("content")
    if isinstance(parts, list) and parts:
        steps = _of_parts(parts, at(where, "/parts"), asides)
        known = {call.call_id for pieces in steps for call in pieces.calls}
        listed = message.get("toolInvocations")
        left = [
            (part, at(where, f"/toolInvocations/{index}"))
            for index, part in enumerate(listed if isinstance(listed, list) else ())
            if not isinstance(part, dict) or text_or_none(part.get("toolCallId")) not in known
        ]
        for part, place in left:
            _invoked(steps[-1], part, place)
        _repeated(steps, content, at(where, "/content"))
        return steps
    if isinstance(content, list):
        return _of_blocks(content, at(where, "/content"))
    return _of_version_4(message, where)


def _repeated(steps: list[Pieces], content: Any, where: str) -> None:
    """Version 4 keeps the words of the parts once more in `content`; other words there are not lost."""
    said = "".join(text for pieces in steps for text, _ in pieces.texts)
    if not said:
        steps[-1].say(content, where)
    elif content and not (isinstance(content, str) and "".join(content.split()) in "".join(said.split())):
        steps[-1].puzzle({"content": content}, where)


def _of_parts(parts: list[Any], where: str, asides: list[Any]) -> list[Pieces]:
    """The parts of a UI message. Where no `step-start` is written, what is said behind a result is a response of its own."""
    marked = any(isinstance(part, dict) and part.get("type") == "step-start" for part in parts)
    steps, step = [Pieces()], None
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        inner = part.get("toolInvocation") if kind == "tool-invocation" else None
        number = inner.get("step") if isinstance(inner, dict) else None
        says = kind in ("text", "reasoning") and bool(steps[-1].results) and not marked
        later = not marked and number is not None and step is not None and number != step
        if (kind == "step-start" or says or later) and not _blank(steps[-1]):
            steps.append(Pieces())
        step = step if number is None else number
        if kind != "step-start":
            _read_part(steps[-1], part, at(where, f"/{index}"), asides)
    return steps


def _blank(pieces: Pieces) -> bool:
    return pieces.is_empty and not pieces.unknown


def _read_part(pieces: Pieces, part: Any, where: str, asides: list[Any]) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        pieces.puzzle(part, where)
    elif kind == "tool-invocation":
        _invoked(pieces, part.get("toolInvocation"), at(where, "/toolInvocation"))
    elif kind.startswith("tool-") or kind == "dynamic-tool":
        _tool_part(pieces, part, kind, where)
    elif kind.startswith(_ASIDES):
        asides.append(part)
    elif not _spoken(pieces, part, where):
        pieces.puzzle(part, where)


def _spoken(pieces: Pieces, part: dict[str, Any], where: str) -> bool:
    """Take a text, a thought or a picture. False: it is none."""
    kind = part.get("type")
    if kind == "text":
        return pieces.say(part.get("text"), at(where, "/text"))
    if kind == "reasoning":
        key = "text" if "text" in part else "reasoning"
        return pieces.think(part.get(key), at(where, f"/{key}"))
    if kind == "redacted-reasoning":
        return pieces.think(f"[{kind}]", where)
    return kind in _MARKS and pieces.say(f"[{kind}]", where)


def _tool_part(pieces: Pieces, part: dict[str, Any], kind: str, where: str) -> None:
    """A call of version 5 with its result, if it has one."""
    state, call_id = part.get("state"), text_or_none(part.get("toolCallId"))
    name = part.get("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    if state == "input-streaming":
        pieces.lose(bad_part(where, "call whose arguments were still coming", "cut_action", part))
        return
    if call_id is None:
        pieces.puzzle(part, where)
        return
    arguments = part.get("input") if part.get("input") is not None else part.get("rawInput")
    pieces.call(name, arguments, call_id, part, where)
    # A tool that gives nothing leaves no key behind in JSON.
    if state == "output-available":
        pieces.results.append(
            Result(call_id, told_text(part.get("output")), place_of(part, "output", where), False)
        )
    elif state == "output-error":
        pieces.results.append(
            Result(call_id, told_text(part.get("errorText")), place_of(part, "errorText", where), True)
        )
    elif state == "output-denied":
        reason = part.get("approval", {}).get("reason") if isinstance(part.get("approval"), dict) else None
        place = at(where, "/approval/reason" if reason else "")
        pieces.results.append(Result(call_id, told_text(reason), place, status="refused"))
    elif state not in ("input-available", "approval-requested", "approval-responded"):
        pieces.puzzle(part, where)


def _invoked(pieces: Pieces, part: Any, where: str) -> None:
    """A call of version 4 with its result, if it has one."""
    if not isinstance(part, dict):
        pieces.puzzle(part, where)
        return
    call_id, state = text_or_none(part.get("toolCallId")), part.get("state")
    if state == "partial-call":
        pieces.lose(bad_part(where, "call whose arguments were still coming", "cut_action", part))
        return
    if call_id is None or state not in ("call", "result", None):
        pieces.puzzle(part, where)
        return
    pieces.call(part.get("toolName"), part.get("args"), call_id, part, where)
    if "result" in part:
        pieces.results.append(Result(call_id, told_text(part["result"]), at(where, "/result")))


def _of_version_4(message: dict[str, Any], where: str) -> list[Pieces]:
    """A message of text and `toolInvocations`: what it says was said behind the results, where all calls have one."""
    listed, place = message.get("toolInvocations"), at(where, "/toolInvocations")
    steps: list[Pieces] = []
    number: Any = None
    for index, part in enumerate(listed if isinstance(listed, list) else ()):
        step = part.get("step") if isinstance(part, dict) else None
        if not steps or step != number:
            steps.append(Pieces())
        number = step
        _invoked(steps[-1], part, f"{place}/{index}")
    if listed and not isinstance(listed, list):
        steps.append(Pieces())
        steps[-1].puzzle(listed, place)
    content, last = message.get("content"), Pieces()
    answered = all(len(pieces.calls) == len(pieces.results) for pieces in steps)
    spoken = last if answered or not steps else steps[0]
    if content is not None and not spoken.say(content, at(where, "/content")):
        spoken.puzzle({"content": content}, at(where, "/content"))
    (steps[0] if steps else last).think(message.get("reasoning"), at(where, "/reasoning"))
    return [*steps, last] if not _blank(last) or not steps else steps


def _of_blocks(blocks: list[Any], where: str) -> list[Pieces]:
    """The content of a model message. What stands behind a result, of a tool that the provider ran, was decided later."""
    steps = [Pieces()]
    for index, block in enumerate(blocks):
        answers = isinstance(block, dict) and block.get("type") == "tool-result"
        if steps[-1].results and not answers:
            steps.append(Pieces())
        _read_block(steps[-1], block, at(where, f"/{index}"))
    return steps


def _read_block(pieces: Pieces, block: Any, where: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "tool-call" and (call_id := text_or_none(block.get("toolCallId"))):
        arguments = block["input"] if "input" in block else block.get("args")
        pieces.call(block.get("toolName"), arguments, call_id, block, where)
    elif kind == "tool-result" and ("output" in block or "result" in block):
        pieces.results.append(_answer(block, where))
    elif not isinstance(block, dict) or not (kind in _APPROVALS or _spoken(pieces, block, where)):
        pieces.puzzle(block, where)


def _answer(block: dict[str, Any], where: str) -> Result:
    """A result of a model message: `{type, value}` of version 5, else the value itself with `isError`."""
    call_id, output = text_or_none(block.get("toolCallId")), block.get("output")
    if not isinstance(output, dict) or not isinstance(output.get("type"), str):
        key = "output" if "output" in block else "result"
        failed = True if block.get("isError") is True else None
        return Result(call_id, told_text(block[key]), at(where, f"/{key}"), failed)
    kind, place = output["type"], at(where, "/output/value")
    if kind == "execution-denied":
        return Result(call_id, told_text(output.get("reason")), at(where, "/output"), status="refused")
    if kind not in ("text", "json", "error-text", "error-json", "content"):
        return Result(call_id, told_text(output), at(where, "/output"))
    value = output.get("value")
    text = text_of(value) if kind == "content" else told_text(value)
    return Result(
        call_id, text, place if "value" in output else at(where, "/output"), kind.startswith("error-")
    )
