"""Message histories of Pydantic AI: requests and responses made of parts, as `all_messages_json` gives them.

A record is one history, or one message where messages stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import dialect_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    count_or_none,
    first_text,
    micros,
    object_or_empty,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.connectors.sdks.pieces import Pieces, Result, add_pieces, leftover, told_text
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading, ResultStatus

_LISTS = ("messages", "message_history", "all_messages", "history")
_KEYS = frozenset(
    {
        "parts",
        "kind",
        "instructions",
        "timestamp",
        "usage",
        "model_name",
        "model_id",
        "run_id",
        "conversation_id",
    }
    | {"metadata", "state", "finish_reason", "provider_name", "provider_url", "provider_details", "vendor_id"}
    | {"provider_response_id", "canonical_system", "vendor_details", "workspace_ref", "history_digest"}
    | {"failed_attempts", "cost"}
)
_FINAL = "Final result processed."
"""What Pydantic AI answers to a call that gives the run's result."""
_ROLES = {"system-prompt": "system", "user-prompt": "user", "retry-prompt": "user"}
_MEDIA = ("image-url", "video-url", "audio-url", "document-url", "binary", "uploaded-file")
_OUTCOMES: dict[str, tuple[bool | None, ResultStatus | None]] = {
    "failed": (True, None),
    "retried": (True, None),
    "denied": (None, "refused"),
}


class PydanticAi:
    """Pydantic AI's messages."""

    name = "pydantic_ai"
    version = 1
    record = (
        "one history (a line, an array element or the document), or one message where messages stand alone"
    )
    fills = ("outcome", "score", "thoughts", "tokens", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Messages of a kind whose parts have a `part_kind`."""
        return 0.95 if dialect_of(head) == "pydantic_ai" else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per history."""
        return read_talks([source], Sdk(self.name, _LISTS, _is_message, _add))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") in ("request", "response") and "parts" in value


def _add(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    instructions: Any = None
    for message, where in messages:
        parts = message.get("parts") if _is_message(message) else None
        if not isinstance(parts, list):
            builder.unknown(where, message, decides=True)
        elif message["kind"] == "response":
            _add_response(builder, message, parts, where, told)
        else:
            given = message.get("instructions")
            if isinstance(given, str) and given and given != instructions:
                builder.message("system", given, at(where, "/instructions"))
                instructions = given
            _add_request(builder, message, parts, where)
            done = any(isinstance(part, dict) and part.get("content") == _FINAL for part in parts)
            told.ended = "the result was given" if done else None


def _add_request(builder: EpisodeBuilder, message: dict[str, Any], parts: list[Any], where: str) -> None:
    """What the model is given: each part is a message of its own, or the result of a call."""
    for index, part in enumerate(parts):
        pieces, place = Pieces(), at(where, f"/parts/{index}")
        kind = part.get("part_kind") if isinstance(part, dict) else None
        time = micros(part.get("timestamp")) if isinstance(part, dict) else None
        if isinstance(part, dict) and (
            kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name"))
        ):
            pieces.results.append(_answer(part, kind, place))
        elif isinstance(kind, str) and kind in _ROLES:
            _say(pieces, part, place)
        else:
            pieces.puzzle(part, place)
        add_pieces(builder, _ROLES.get(str(kind), "user"), pieces, place, created_at=time)
    rest = Pieces()
    leftover(rest, message, _KEYS, where)
    builder.note(rest.unknown, decides=False)


def _say(pieces: Pieces, part: dict[str, Any], where: str) -> None:
    """A prompt: a text, or a list of texts and media; a prompt to try again may hold the errors as a list."""
    content, place = part.get("content"), at(where, "/content")
    if part["part_kind"] == "retry-prompt" and content is not None:
        pieces.say(told_text(content), place)
        return
    if isinstance(content, list):
        for index, piece in enumerate(content):
            spot, kind = at(place, f"/{index}"), piece.get("kind") if isinstance(piece, dict) else None
            if isinstance(piece, dict) and kind == "text-content" and pieces.say(piece.get("content"), spot):
                continue
            if kind in _MEDIA:
                pieces.say(f"[{kind}]", spot)
            elif kind != "cache-point" and not pieces.say(piece, spot):
                pieces.puzzle(piece, spot)
    elif content is None or not pieces.say(content, place):
        pieces.puzzle(part, where)


def _answer(part: dict[str, Any], kind: Any, where: str) -> Result:
    failed, status = _OUTCOMES.get(str(part.get("outcome")), (True if kind == "retry-prompt" else None, None))
    text = told_text(part.get("content"))
    return Result(text_or_none(part.get("tool_call_id")), text, at(where, "/content"), failed, status)


def _add_response(
    builder: EpisodeBuilder, message: dict[str, Any], parts: list[Any], where: str, told: Told
) -> None:
    steps = [Pieces()]
    for index, part in enumerate(parts):
        kind = part.get("part_kind") if isinstance(part, dict) else None
        if steps[-1].results and kind != "builtin-tool-return":
            steps.append(Pieces())
        _read_part(steps[-1], part, kind, at(where, f"/parts/{index}"))
    leftover(steps[-1], message, _KEYS, where)
    usage = object_or_empty(message.get("usage"))
    counts = [
        next((count for key in keys if (count := count_or_none(usage.get(key))) is not None), None)
        for keys in (("input_tokens", "request_tokens"), ("output_tokens", "response_tokens"))
    ]
    model = first_text(message, "model_name")
    more = {"model": model, "created_at": micros(message.get("timestamp"))}
    for pieces in steps:
        last = pieces is steps[-1]
        tokens = {"tokens_in": counts[0], "tokens_out": counts[1]} if last else {}
        add_pieces(builder, "assistant", pieces, where, **more, **tokens)
    told.ended = None
    told.model = told.model or model
    told.stop = first_text(message, "finish_reason")
    state = first_text(message, "state")
    told.cut = None if state in (None, "complete") else f"the response is {state[:40]}"


def _read_part(pieces: Pieces, part: Any, kind: Any, where: str) -> None:
    if not isinstance(part, dict):
        pieces.puzzle(part, where)
    elif kind in ("tool-call", "builtin-tool-call") and text_or_none(part.get("tool_call_id")):
        pieces.call(part.get("tool_name"), part.get("args"), part["tool_call_id"], part, where)
        if kind == "builtin-tool-call" and pieces.calls:
            pieces.calls[-1] = pieces.calls[-1]._replace(offered=True)
    elif kind == "builtin-tool-return":
        pieces.results.append(_answer(part, kind, where))
    elif kind == "file":
        pieces.say("[file]", where)
    elif not (
        (kind == "text" and pieces.say(part.get("content"), at(where, "/content")))
        or (kind == "thinking" and pieces.think(part.get("content"), at(where, "/content")))
    ):
        pieces.puzzle(part, where)
