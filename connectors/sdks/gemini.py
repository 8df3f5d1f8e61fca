"""Google Gemini's `contents`: conversations as they are sent, and requests with their responses (`candidates`).

Keys may be in camel or snake case. A record is one conversation, or one content where contents stand alone; with responses it
is one request, and those that continue one another are one episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import CallOrder, GoogleParts, dialect_of, key_of, read_parts, tokens, value_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    first_number,
    first_text,
    object_or_empty,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.sdks.rounds import Api, Round, read_rounds
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

_LISTS = ("contents", "history", "messages")
_USERS = ("user", "function", "tool", None)
_ABOUT = frozenset(
    {
        "contents",
        "candidates",
        "request",
        "response",
        "tools",
        "systemInstruction",
        "system_instruction",
        "config",
    }
)
_PART_KEYS = ("text", "function_call", "function_response", "inline_data", "file_data", "executable_code")


class GeminiContents:
    """Contents of the Gemini API."""

    name = "gemini_contents"
    version = 1
    record = "one conversation, or one content where contents stand alone; or one request with its response"
    fills = ("outcome", "score", "tools", "thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """Contents with a role and parts that have no type; or a request with such contents and its response."""
        if head.container not in ("object", "array"):
            return 0.0
        if _has_responses(head):
            return 0.95
        return 0.95 if dialect_of(head) == "gemini" else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation."""
        answered = False
        for _, row in source.records():
            answered = isinstance(row, dict) and (
                "candidates" in row or "response" in row or "contents" in object_or_empty(row.get("request"))
            )
            if isinstance(row, dict):
                break
        if answered:
            return read_rounds(source, _API)
        return read_talks([source], Sdk(self.name, _LISTS, _is_content, _add, _add_lone_row, CallOrder))


def _has_responses(head: Head) -> bool:
    """A request with contents, and candidates, beside each other or in `request` and `response`."""
    asked, given = (
        head.keys.get(key, set()) | head.keys.get(f"{key}.body", set()) for key in ("request", "response")
    )
    if "contents" in head.top and "candidates" in head.top | given:
        return True
    return "contents" in asked and ("candidates" in given or "response" in head.top)


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("parts"), list)


def _add_lone_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    """A row of a file that is no log of requests: an answer beside its contents is not read."""
    for key in ("candidates", "response"):
        if row.get(key):
            builder.unknown(at(locator, f"/{key}"), {key: row[key]}, decides=True)
    _add_row(builder, row, locator, told)


def _add_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    """What a request says beside its contents; the Python SDK keeps it under `config`."""
    for part, place in ((row, locator), (object_or_empty(row.get("config")), at(locator, "/config"))):
        key = key_of(part, "system_instruction")
        if part.get(key):
            system = read_parts(part[key], at(place, f"/{key}"))
            builder.note(system.unknown, decides=False)
            if system.texts:
                builder.message("system", system.text, system.texts[0].locator)
        settings = object_or_empty(value_of(part, "generation_config")) or part
        temperature = first_number(settings, "temperature")
        told.temperature = temperature if told.temperature is None else told.temperature
        if (names := _tools(part.get("tools"))) is not None:
            told.tools = names


def _tools(listed: Any) -> list[str] | None:
    """The functions on offer; of the tools that the API runs itself, their keys."""
    if not isinstance(listed, list):
        return None
    names: set[str] = set()
    for tool in listed:
        declared = value_of(tool, "function_declarations")
        named = [object_or_empty(one).get("name") for one in declared] if isinstance(declared, list) else []
        names |= {name for name in named if isinstance(name, str)}
    return sorted(names)


def _add(builder: EpisodeBuilder, contents: list[Placed], told: Told) -> None:
    for content, where in contents:
        _add_content(builder, content, where, {})


def _add_content(builder: EpisodeBuilder, content: Any, where: str, more: dict[str, Any]) -> None:
    role = content.get("role") if isinstance(content, dict) else None
    if isinstance(content, str):
        builder.message("user", content, where)
        return
    known = role in ("model", "system") or role in _USERS
    if not _is_content(content) or not known or content.keys() - {"role", "parts"}:
        builder.unknown(where, content, decides=True)
        return
    parts = read_parts(content, where)
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=role == "model" or parts.decides)
    _add_responses(builder, parts)
    if role == "model":
        _add_turn(builder, parts, where, more)
    elif parts.texts:
        builder.message("system" if role == "system" else "user", parts.text, parts.texts[0].locator)


def _add_turn(builder: EpisodeBuilder, parts: GoogleParts, where: str, more: dict[str, Any]) -> None:
    place = parts.texts[0].locator if parts.texts else where
    nameless = any(part.rule == "nameless_call" for part in parts.rejects)
    if nameless and not parts.calls:
        builder.message("assistant", parts.text, place, thought=parts.thought, **more)
    elif parts.texts or parts.calls:
        builder.turn(parts.text, parts.calls, place, thought=parts.thought, **more)
    elif parts.thoughts:
        builder.message("assistant", None, where, thought=parts.thought, **more)


def _add_responses(builder: EpisodeBuilder, parts: GoogleParts) -> None:
    """Responses without an id are those of the open calls of their names, in order."""
    for response in parts.responses:
        if response.call_id is None and response.name is not None and isinstance(builder, CallOrder):
            named = [step for step, action in builder.open_calls() if action == response.name]
            if not named:
                reason = "result without a call it could answer"
                builder.rejects.append(bad_part(response.locator, reason, "orphan_result", response.text))
                continue
            builder.answer_next(named[0])
        builder.result(response.call_id, response.text, response.locator, failed=response.failed)


def _asked(request: dict[str, Any], place: str) -> list[Placed] | None:
    value = request.get("contents")
    where = at(place, "/contents")
    if isinstance(value, str | dict):
        return [Placed(value, where)]
    return [Placed(item, f"{where}/{i}") for i, item in enumerate(value)] if isinstance(value, list) else None


def _given(response: dict[str, Any], back: str) -> list[Placed]:
    """The first candidate's content."""
    candidate = _candidate(response)
    content = candidate.get("content")
    if not isinstance(content, dict) or not content.get("parts"):
        return []
    return [Placed({"role": "model"} | content, at(back, "/candidates/0/content"))]


def _candidate(response: dict[str, Any]) -> dict[str, Any]:
    listed = response.get("candidates")
    return object_or_empty(listed[0]) if isinstance(listed, list) and listed else {}


def _name(content: Any) -> str:
    """What a content says, without what it thinks and what a later request leaves out."""
    if not isinstance(content, dict):
        return canonical(["user", [{"text": content}]])
    parts = content.get("parts")
    told = [
        {key: value for key in _PART_KEYS if (value := value_of(part, key)) is not None}
        for part in (parts if isinstance(parts, list) else ())
        if not object_or_empty(part).get("thought")
    ]
    return canonical([content.get("role") or "user", told])


def _native(response: dict[str, Any]) -> str | None:
    return text_or_none(value_of(response, "response_id"))


def _build(builder: EpisodeBuilder, chain: list[Round], told: Told) -> None:
    first, last = chain[0], chain[-1]
    _add_row(builder, first.request, first.place, told)
    builder.offer(told.tools)
    for round, fresh in _API.news(chain):
        for content, where in fresh:
            _add_content(builder, content, where, {})
        _set_aside(builder, round)
        asked, said = tokens(value_of(round.response, "usage_metadata"))
        model = text_or_none(value_of(round.response, "model_version"))
        more = {"model": model, "tokens_in": asked, "tokens_out": said, "created_at": round.time}
        for content, where in round.given:
            _add_content(builder, content, where, more)
    told.model = first_text(first.request, "model") or text_or_none(value_of(first.response, "model_version"))
    told.stop = text_or_none(value_of(_candidate(last.response), "finish_reason"))
    if last.response.get("error") or not last.response:
        told.cut = "the request failed"


def _set_aside(builder: EpisodeBuilder, round: Round) -> None:
    listed = round.response.get("candidates")
    for number, candidate in enumerate(listed if isinstance(listed, list) else ()):
        if number:
            where = at(round.back, f"/candidates/{number}")
            builder.rejects.append(
                bad_part(where, "another answer to the same request", "other_choice", candidate)
            )


_API = Api(GeminiContents.name, _ABOUT, _asked, _given, _name, _native, _build, builder=CallOrder)
