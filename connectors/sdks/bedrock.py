"""Messages of Amazon Bedrock's Converse API, as applications keep them and Strands Agents saves its sessions.

A block is named by its key (`text`, `toolUse`, `toolResult`) and has no type. A record is a conversation, or one message where
messages stand alone; Strands keeps each in a file of its own (`message_0.json`, …), which are read together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logforge.connectors.chat import dialect_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    count_or_none,
    first_number,
    first_text,
    micros,
    object_or_empty,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.sdks.pieces import Pieces, Result, add_pieces, leftover, told_text
from logforge.connectors.sdks.rounds import Api, Bodies, Round, bodies_of, read_rounds
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

_BODIES = (
    ("request", "response"),
    ("", "response"),
    ("", ""),
    ("input.inputBodyJson", "output.outputBodyJson"),
)
"""Where a request and its response stand."""
_ABOUT = frozenset(
    {
        "messages",
        "system",
        "toolConfig",
        "request",
        "response",
        "output",
        "input",
        "usage",
        "metrics",
        "stopReason",
    }
)
_FILE = re.compile(r"message_(\d+)\.json")
_MESSAGE_KEYS = frozenset({"role", "content", "metadata", "tracking_id", "id"})
_MARKS = ("image", "document", "video", "audio")


class BedrockConverse:
    """Converse messages and Strands sessions."""

    name = "bedrock_converse"
    version = 1
    record = "one conversation (a line, an array element or the document), or one message where messages stand alone"
    fills = ("outcome", "score", "tools", "thoughts", "tokens", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Messages whose blocks are named by their keys, a message that Strands saved, or a request with its response."""
        saved = {"message", "message_id", "redact_message"} <= head.top
        strands = saved and "role" in head.keys.get("message", set())
        return 0.95 if strands or dialect_of(head) == "bedrock" or _answers(head) else 0.0

    def companions(self, path: Path) -> list[Path]:
        """Of a session's first message: the files of all others."""
        if path.name != "message_0.json":
            return []
        return [
            other for other in sorted(path.parent.iterdir()) if _FILE.fullmatch(other.name) and other != path
        ]

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation."""
        first = next((row for _, row in source.records() if isinstance(row, dict)), {})
        if any(key in first for key in ("output", "response")):
            return read_rounds(source, _API)
        later = sorted(source.companions, key=_number)
        parts = (source, *(Source(path, source.beside(path), max_record=source.max_record) for path in later))
        return read_talks(parts, Sdk(self.name, ("messages",), _is_message, _add, _add_lone_row))


def _answers(head: Head) -> bool:
    """Requests and responses of Converse, also as Bedrock logs them."""
    for asked, given in _BODIES:
        blocks = head.keys.get(f"{asked}.messages.content".lstrip("."), set())
        back = head.keys.get(given, set())
        if blocks and "type" not in blocks and "stopReason" in back:
            return True
    return False


def _number(path: Path) -> int:
    found = _FILE.fullmatch(path.name)
    return int(found[1]) if found else -1


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("message"), dict) or ("role" in value and "content" in value)


def _add_lone_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    """A row of a file that is no log of requests: an answer beside its messages is not read."""
    for key in ("output", "response"):
        if row.get(key):
            builder.unknown(at(locator, f"/{key}"), {key: row[key]}, decides=True)
    _add_row(builder, row, locator, told)


def _add_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    """What a row says beside its messages."""
    system = row.get("system", row.get("system_prompt"))
    if system:
        key = "system" if "system" in row else "system_prompt"
        builder.message("system", system, at(locator, f"/{key}"))
    config = object_or_empty(row.get("toolConfig"))
    listed = config.get("tools")
    if isinstance(listed, list):
        specs = [object_or_empty(object_or_empty(tool).get("toolSpec")) for tool in listed]
        told.tools = sorted({name for spec in specs if (name := text_or_none(spec.get("name")))})
    told.temperature = first_number(object_or_empty(row.get("inferenceConfig")), "temperature")
    told.stop = first_text(row, "stopReason", "stop_reason")


def _add(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    for value, place in messages:
        message, where, time = value, place, None
        if isinstance(value, dict) and isinstance(value.get("message"), dict):
            key = "redact_message" if isinstance(value.get("redact_message"), dict) else "message"
            message, where, time = value[key], at(place, f"/{key}"), micros(value.get("created_at"))
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            builder.unknown(where, message, decides=True)
            continue
        usage = object_or_empty(object_or_empty(message.get("metadata")).get("usage"))
        _add_message(builder, message, where, {"created_at": time} | _tokens(usage))


def _tokens(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "tokens_in": count_or_none(usage.get("inputTokens")),
        "tokens_out": count_or_none(usage.get("outputTokens")),
    }


def _add_message(builder: EpisodeBuilder, message: dict[str, Any], where: str, more: dict[str, Any]) -> None:
    role = message["role"]
    pieces = _read(message.get("content"), at(where, "/content"))
    leftover(pieces, message, _MESSAGE_KEYS, where)
    told = more if role == "assistant" else {"created_at": more.get("created_at")}
    add_pieces(builder, role, pieces, where, **told)


def _read(content: Any, where: str) -> Pieces:
    pieces = Pieces()
    if isinstance(content, list):
        for index, block in enumerate(content):
            _read_block(pieces, block, at(where, f"/{index}"))
    elif content is not None and not pieces.say(content, where):
        pieces.puzzle({"content": content}, where)
    return pieces


def _read_block(pieces: Pieces, block: Any, where: str) -> None:
    for key, value in block.items() if isinstance(block, dict) else ():
        if not _read_value(pieces, key, value, at(where, f"/{key}")):
            pieces.puzzle({key: value}, at(where, f"/{key}"))
    if not isinstance(block, dict) or not block:
        pieces.puzzle(block, where)


def _read_value(pieces: Pieces, key: str, value: Any, where: str) -> bool:
    """Take what a block holds under a key. False: it is not understood."""
    inner = object_or_empty(value)
    if key == "text":
        return pieces.say(value, where)
    if key == "toolUse" and text_or_none(inner.get("toolUseId")):
        pieces.call(inner.get("name"), inner.get("input"), inner["toolUseId"], value, where)
        return True
    if key == "toolResult" and text_or_none(inner.get("toolUseId")):
        pieces.results.append(_answer(inner, where))
        return True
    if key == "reasoningContent":
        return _think(pieces, inner, where)
    if key == "guardContent":
        text = object_or_empty(inner.get("text"))
        return pieces.say(text.get("text"), at(where, "/text/text"))
    if key == "citationsContent":
        texts = inner.get("content")
        return isinstance(texts, list) and all(
            pieces.say(object_or_empty(text).get("text"), at(where, f"/content/{i}/text"))
            for i, text in enumerate(texts)
        )
    return key == "cachePoint" or (key in _MARKS and pieces.say(f"[{key}]", where))


def _think(pieces: Pieces, value: dict[str, Any], where: str) -> bool:
    if "redactedContent" in value:
        return pieces.think("[redacted_thinking]", where)
    return pieces.think(
        object_or_empty(value.get("reasoningText")).get("text"), at(where, "/reasoningText/text")
    )


def _answer(result: dict[str, Any], where: str) -> Result:
    call_id, status, content = text_or_none(result["toolUseId"]), result.get("status"), result.get("content")
    failed = status == "error" if status in ("success", "error") else None
    single = content[0] if isinstance(content, list) and len(content) == 1 else None
    if isinstance(single, dict) and len(single) == 1 and (found := next(iter(single))) in ("text", "json"):
        return Result(call_id, told_text(single[found]), at(where, f"/content/0/{found}"), failed)
    return Result(call_id, text_of(content), where, failed)


def _asked(request: dict[str, Any], place: str) -> list[Placed] | None:
    listed, where = request.get("messages"), at(place, "/messages")
    return [Placed(m, f"{where}/{i}") for i, m in enumerate(listed)] if isinstance(listed, list) else None


def _given(response: dict[str, Any], back: str) -> list[Placed]:
    message = object_or_empty(response.get("output")).get("message")
    return [Placed(message, at(back, "/output/message"))] if isinstance(message, dict) else []


def _name(message: Any) -> str:
    """What a message says, without its thoughts, which a later request may leave out."""
    content = message.get("content") if isinstance(message, dict) else message
    blocks = [block for block in content if not _is_beside(block)] if isinstance(content, list) else content
    return canonical([object_or_empty(message).get("role"), blocks])


def _is_beside(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() <= {"reasoningContent", "cachePoint"}


def _bodies(row: dict[str, Any], locator: str) -> Bodies:
    """A record of Bedrock's own log of invocations, else a request and a response."""
    asked, given = object_or_empty(row.get("input")), object_or_empty(row.get("output"))
    if "inputBodyJson" not in asked:
        return bodies_of(row, locator)
    back = at(locator, "/output/outputBodyJson")
    return Bodies(
        at(locator, "/input/inputBodyJson"), asked["inputBodyJson"], back, given.get("outputBodyJson")
    )


def _build(builder: EpisodeBuilder, chain: list[Round], told: Told) -> None:
    first, last = chain[0], chain[-1]
    _add_row(builder, first.request, first.place, told)
    builder.offer(told.tools)
    told.model = first_text(first.row, "modelId") or first_text(first.request, "modelId")
    for round, fresh in _API.news(chain):
        _add(builder, fresh, told)
        more = {"created_at": round.time, "model": told.model}
        more |= _tokens(object_or_empty(round.response.get("usage")))
        for message, where in round.given:
            if message.get("role", "assistant") == "assistant":
                _add_message(builder, {"role": "assistant"} | message, where, more)
            else:
                builder.unknown(where, message, decides=True)
    told.stop = first_text(last.response, "stopReason")
    if not last.given:
        told.cut = "the request has no answer"


_API = Api(BedrockConverse.name, _ABOUT, _asked, _given, _name, lambda response: None, _build, bodies=_bodies)
