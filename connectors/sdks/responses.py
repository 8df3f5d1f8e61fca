"""What programs keep of OpenAI's Responses API: lists of items, and requests with their responses.

`openai_items` is a list of items, as it is sent and as the Agents SDK gives it (`to_input_list`): a record is one conversation.
`openai_responses` is a log of requests (`input`) and responses (`output`): a record is one of them. Those that continue one
another, by repeating what was said or by `previous_response_id`, are one episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import dialect_of, tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    count_or_none,
    first_number,
    first_text,
    object_or_empty,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.connectors.sdks.response_items import Items, item_name
from logforge.connectors.sdks.rounds import Api, Round, read_rounds
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

ITEM_LISTS = ("messages", "input", "items", "input_items", "history")
_ABOUT = frozenset({"input", "output", "request", "response", "tools", "instructions"})


class OpenAIItems:
    """Lists of items of the Responses API."""

    name = "openai_items"
    version = 1
    record = (
        "one conversation (a line, an array element or the document), or one item where items stand alone"
    )
    fills = ("outcome", "score", "tools", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Items of calls or reasoning among the messages, and no response beside them."""
        return 0.95 if dialect_of(head) == "responses" and "output" not in head.top else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation."""
        return read_talks([source], Sdk(self.name, ITEM_LISTS, _is_item, _add, _add_row))


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or isinstance(value.get("type"), str))


def _add_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    if isinstance(row.get("instructions"), str) and row["instructions"]:
        builder.message("system", row["instructions"], at(locator, "/instructions"))
    for key in ("previous_response_id", "conversation", "output", "response"):
        if row.get(key):
            # What was said before, or the answer, is not among the items.
            builder.unknown(at(locator, f"/{key}"), {key: row[key]}, decides=True)


def _add(builder: EpisodeBuilder, messages: list[Placed], told: Told) -> None:
    items = Items()
    for item, where in messages:
        items.add(item, where)
    items.build(builder)


class OpenAIResponses:
    """Request and response logs of the Responses API."""

    name = "openai_responses"
    version = 1
    record = "one request with its response (a line, an array element or the document)"
    fills = ("outcome", "score", "tools", "thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """`input` with `output` beside it, or a request with `input` and a response with `output`."""
        if head.container not in ("object", "array"):
            return 0.0
        if {"input", "output"} <= head.top:
            kinds = head.keys.get("output", set())
            return 0.9 if {"type", "content"} <= kinds or {"type", "call_id"} <= kinds else 0.0
        asked, given = (
            head.keys.get(key, set()) | head.keys.get(f"{key}.body", set()) for key in ("request", "response")
        )
        return 0.9 if "input" in asked and "output" in given and "messages" not in asked else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation, after what is set aside."""
        return read_rounds(source, _API)


def _asked(request: dict[str, Any], place: str) -> list[Placed] | None:
    value = request.get("input")
    if isinstance(value, str):
        return [Placed(value, at(place, "/input"))]
    return _listed(value, at(place, "/input")) if isinstance(value, list) else None


def _given(response: dict[str, Any], back: str) -> list[Placed]:
    return _listed(response.get("output"), at(back, "/output"))


def _listed(value: Any, where: str) -> list[Placed]:
    return [Placed(item, f"{where}/{i}") for i, item in enumerate(value)] if isinstance(value, list) else []


def _native(response: dict[str, Any]) -> str | None:
    return text_or_none(response.get("id"))


def _earlier(request: dict[str, Any]) -> str | None:
    """The response that a request goes on with, or the conversation that the server keeps."""
    return text_or_none(request.get("previous_response_id")) or (
        f"conversation {request['conversation']}" if request.get("conversation") else None
    )


def _build(builder: EpisodeBuilder, chain: list[Round], told: Told) -> None:
    first, last = chain[0], chain[-1]
    instructions = first.request.get("instructions")
    if isinstance(instructions, str) and instructions:
        builder.message("system", instructions, at(first.place, "/instructions"))
    builder.offer(_tools(first))
    items = Items()
    for round, fresh in _API.news(chain):
        for item, where in fresh:
            items.add(item, where)
        items.script.end_turn()
        _answer(items, round)
    items.build(builder)
    told.model = first_text(first.request, "model") or first_text(first.response, "model")
    told.temperature = first_number(first.request, "temperature")
    told.cut = _cut(last)


def _answer(items: Items, round: Round) -> None:
    """Add a response, with what it told of itself."""
    begin, script = len(items.script.turns), items.script
    script.model = first_text(round.response, "model")
    for item, where in round.given:
        items.add(item, where)
    script.end_turn()
    script.model = None
    usage = object_or_empty(round.response.get("usage"))
    for turn in script.turns[begin:]:
        turn.time = round.time
    for turn in script.turns[begin:][-1:]:
        turn.tokens_in = count_or_none(usage.get("input_tokens"))
        turn.tokens_out = count_or_none(usage.get("output_tokens"))


def _tools(round: Round) -> list[str] | None:
    listed = round.request.get("tools")
    if not isinstance(listed, list):
        return None
    own = [tool.get("name") or tool.get("type") for tool in listed if isinstance(tool, dict)]
    return tool_names([name for name in own if isinstance(name, str)])


def _cut(last: Round) -> str | None:
    """Why the last response is not whole, as its status says."""
    status = first_text(last.response, "status")
    if last.response.get("error") or status in ("failed", "cancelled"):
        return f"the request failed: {status or 'error'}"
    if status in ("incomplete", "in_progress", "queued"):
        why = first_text(object_or_empty(last.response.get("incomplete_details")), "reason")
        return f"the response is {status}" + (f": {why}" if why else "")
    return None


_API = Api(OpenAIResponses.name, _ABOUT, _asked, _given, item_name, _native, _build, _earlier)
