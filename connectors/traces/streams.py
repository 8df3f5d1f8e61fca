"""Streamed responses as what they come to: the chunks of Chat Completions, the events of Anthropic's Messages and of the Responses
API, and Gemini's partial responses. Each piece has the place of the event that it began in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import Call, Text, Unknown, names_call, object_or_empty, text_or_none
from logforge.connectors.traces.envelopes import Where, below
from logforge.connectors.traces.messages import Said, read_message, read_messages
from logforge.schemas import Reject

_DELTA = frozenset(
    {"role", "content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal", "name"}
)


class Answer(NamedTuple):
    """What a response said, and what stands around it: its model, its usage, why it stopped."""

    said: list[Said]
    about: dict[str, Any]
    whole: bool
    """The stream came to its end."""


@dataclass
class _Piece:
    """A text or a call that grows."""

    where: str
    texts: list[str] = field(default_factory=list)
    name: str = ""
    id: str | None = None


def streamed(events: list[Any], where: Where, rejects: list[Reject]) -> Answer | None:
    """The answer of a stream; None when its events are of no API that is known."""
    rows = [(object_or_empty(event), below(where, f"#/{index}")) for index, event in enumerate(events)]
    if any(isinstance(row.get("choices"), list) for row, _ in rows):
        return _chat(rows, where)
    if any(row.get("type") == "message_start" for row, _ in rows):
        return _anthropic(rows, where, rejects)
    if any("candidates" in row for row, _ in rows):
        return gemini(rows, where, rejects)
    return _responses(rows, rejects)


_Rows = list[tuple[dict[str, Any], Where]]


def _chat(rows: _Rows, where: Where) -> Answer:
    """Chunks: what the first choice's deltas add up to."""
    said, about = Said("assistant", where("")), dict[str, Any]()
    texts: dict[str, _Piece] = {}
    calls: dict[Any, _Piece] = {}
    for row, place in rows:
        about |= {key: row[key] for key in ("id", "model", "usage", "created", "error") if row.get(key)}
        for number, choice in enumerate(row["choices"] if isinstance(row.get("choices"), list) else ()):
            inner, here = object_or_empty(choice), below(place, f"/choices/{number}")
            if inner.get("index") not in (0, None):
                continue
            said.finish = text_or_none(inner.get("finish_reason")) or said.finish
            delta, at = object_or_empty(inner.get("delta")), below(here, "/delta")
            for key in ("reasoning_content", "reasoning", "content", "refusal"):
                if isinstance(delta.get(key), str) and delta[key]:
                    texts.setdefault(key, _Piece(at(f"/{key}"))).texts.append(delta[key])
            for order, call in enumerate(
                delta["tool_calls"] if isinstance(delta.get("tool_calls"), list) else ()
            ):
                _grow(calls, object_or_empty(call), at(f"/tool_calls/{order}"))
            for key, value in delta.items():
                odd = key in ("content", "tool_calls") and not isinstance(value, str | list | None)
                if odd or (key not in _DELTA and names_call(key, value)):
                    said.unknown.append(Unknown(at(f"/{key}"), value))
            if "delta" not in inner and len(inner) > 1 and not said.finish:
                said.unknown.append(Unknown(here(""), choice))
    for key, piece in texts.items():
        into = said.thoughts if key.startswith("reasoning") else said.texts
        into.append(Text("".join(piece.texts), piece.where))
    _finish_calls(said, calls)
    return Answer([said], about, said.finish is not None)


def _grow(calls: dict[Any, _Piece], call: dict[str, Any], where: str) -> None:
    function = object_or_empty(call.get("function"))
    piece = calls.setdefault(
        call.get("index") if isinstance(call.get("index"), int) else len(calls), _Piece(where)
    )
    piece.name = piece.name or text_or_none(function.get("name")) or ""
    piece.id = piece.id or text_or_none(call.get("id"))
    piece.texts.append(text_or_none(function.get("arguments")) or "")


def _finish_calls(said: Said, calls: dict[Any, _Piece]) -> None:
    for piece in calls.values():
        if piece.name:
            said.calls.append(Call(piece.name, "".join(piece.texts), piece.id, piece.where))
        else:
            said.unknown.append(Unknown(piece.where, {"arguments": "".join(piece.texts)}))


def _anthropic(rows: _Rows, where: Where, rejects: list[Reject]) -> Answer:
    """Blocks that begin, grow and end."""
    about: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    grown: dict[Any, dict[str, list[str]]] = {}
    places: dict[Any, tuple[Where, str]] = {}
    whole = False
    for row, place in rows:
        kind, index = row.get("type"), text_or_none(row.get("index"))
        if kind == "message_start":
            message = object_or_empty(row.get("message"))
            about |= {key: message[key] for key in ("id", "model", "usage") if message.get(key)}
        elif kind == "content_block_start" and isinstance(row.get("content_block"), dict):
            blocks[index], places[index] = dict(row["content_block"]), (below(place, "/content_block"), "")
        elif kind == "content_block_delta" and index in blocks:
            _grow_block(grown.setdefault(index, {}), object_or_empty(row.get("delta")))
            if not places[index][1]:
                places[index] = (places[index][0], place("/delta/text"))
        elif kind == "message_delta":
            about |= {k: v for k, v in object_or_empty(row.get("delta")).items() if k == "stop_reason"}
            about["usage"] = object_or_empty(about.get("usage")) | object_or_empty(row.get("usage"))
        elif kind == "error":
            about["error"] = row.get("error")
        whole = whole or kind == "message_stop"
    said = Said("assistant", where(""), finish=text_or_none(about.get("stop_reason")))
    for index, block in blocks.items():
        _add_block(said, block, grown.get(index, {}), *places[index], rejects)
    return Answer([said], about, whole)


def _grow_block(grown: dict[str, list[str]], delta: dict[str, Any]) -> None:
    for key in ("text", "thinking", "partial_json"):
        if isinstance(delta.get(key), str):
            grown.setdefault(key, []).append(delta[key])
    if not delta.keys() & {"text", "thinking", "partial_json", "signature", "citation"}:
        grown.setdefault("?", []).append(str(delta.get("type")))


def _add_block(
    said: Said,
    block: dict[str, Any],
    grown: dict[str, list[str]],
    where: Where,
    first: str,
    rejects: list[Reject],
) -> None:
    for key in ("text", "thinking"):
        if key in grown:
            begun = block.get(key) if isinstance(block.get(key), str) else ""
            block[key] = f"{begun}{''.join(grown[key])}"
    if "partial_json" in grown:
        block["input"] = "".join(grown["partial_json"]) or block.get("input")
    if "?" in grown:
        said.unknown.append(Unknown(where(""), block))
        return
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        said.texts += [Text(block["text"], first or where("/text"))] if block["text"] else []
        return
    shell = {"role": "assistant", "content": [block]}
    found = read_message(
        shell, lambda p: where(p.removeprefix("/content").removeprefix("/0")), "assistant", rejects
    )
    for one in [found] if found else []:
        for name in ("texts", "thoughts", "calls", "answers", "unknown"):
            getattr(said, name).extend(getattr(one, name))


def gemini(rows: _Rows, where: Where, rejects: list[Reject]) -> Answer:
    """Responses one after the other: the first candidate's parts, of which texts go on where the last one stopped."""
    said, about = Said("assistant", where("")), dict[str, Any]()
    for row, place in rows:
        about |= {
            key: row[key] for key in ("modelVersion", "usageMetadata", "responseId", "error") if row.get(key)
        }
        listed = row.get("candidates")
        first = object_or_empty(listed[0]) if isinstance(listed, list) and listed else {}
        said.finish = text_or_none(first.get("finishReason")) or said.finish
        if not first.get("content"):
            continue
        for one in read_messages([first], below(place, "/candidates"), "assistant", rejects):
            said.texts = _joined(said.texts, one.texts)
            said.thoughts = _joined(said.thoughts, one.thoughts)
            said.calls += one.calls
            said.unknown += one.unknown
    return Answer([said], about, said.finish is not None)


def _joined(texts: list[Text], more: list[Text]) -> list[Text]:
    if texts and more:
        last = texts[-1]
        return [*texts[:-1], Text(last.text + more[0].text, last.locator), *more[1:]]
    return [*texts, *more]


def _responses(rows: _Rows, rejects: list[Reject]) -> Answer | None:
    """The Responses API says all of it again when it is done."""
    for row, place in reversed(rows):
        response = row.get("response")
        if isinstance(response, dict) and isinstance(response.get("output"), list) and response["output"]:
            said = read_messages(response, below(place, "/response"), "assistant", rejects)
            return Answer(said, response, row.get("type") == "response.completed")
    return None
