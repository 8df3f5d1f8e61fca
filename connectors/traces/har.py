"""HAR files: what a browser or a proxy captured of the traffic with models.

Requests to Chat Completions, the Responses API, Anthropic's Messages and Gemini are read, streamed responses too; other traffic is
skipped and counted. Each exchange is a model call: conversations are put together from the histories that requests repeat.
Headers and the queries of addresses, where keys are, are never kept. A record is an entry.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Text,
    bad_part,
    content_id,
    count_or_none,
    first_text,
    micros,
    object_or_empty,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, loads, stream_events
from logforge.connectors.traces.attributes import number_of
from logforge.connectors.traces.envelopes import Where, below
from logforge.connectors.traces.episodes import Traces
from logforge.connectors.traces.messages import Said, read_messages, undecided
from logforge.connectors.traces.spans import Span
from logforge.connectors.traces.streams import Answer, gemini, streamed
from logforge.schemas import Duplicate, Reading, Reject, Skip

_ENDPOINTS = (
    (re.compile(r"/chat/completions/?\Z"), "messages"),
    (re.compile(r"/messages/?\Z"), "messages"),
    (re.compile(r"/responses/?\Z"), "input"),
    (re.compile(r":(?:stream)?generateContent\Z", re.IGNORECASE), "contents"),
)
"""The ends of addresses, and what a request there holds."""
_LONGEST_MS = 1e12
"""No answer takes 30 years: a longer time is no time."""
_ANSWERS = ("choices", "content", "output", "candidates")
_SPEAKS = re.compile(rb"/chat/completions|/v1/messages|/responses|[gG]enerateContent")


class Har:
    """Captured traffic with models."""

    name = "har"
    version = 1
    record = "one entry: a request with its response"
    fills = ("tools", "thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """HAR's own structure."""
        if head.container != "object" or "entries" not in head.keys.get("log", set()):
            return 0.0
        known = {"creator", "version", "browser"} & head.keys.get("log", set())
        return 0.0 if not known else 0.95 if _SPEAKS.search(head.data) else 0.6

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation, after what is skipped or set aside."""
        traces = Traces(self.name)
        seen: set[str] = set()
        for locator, row in source.records():
            if isinstance(row, Reject):
                yield row
                continue
            log = object_or_empty(object_or_empty(row).get("log"))
            entries = log.get("entries")
            if not isinstance(entries, list):
                yield reject(locator, "no list `log.entries`", "", row)
                continue
            if not entries:
                yield Skip(reason="empty_batch")
            for index, entry in enumerate(entries):
                where = at(locator, f"/log/entries/{index}")
                try:
                    read = _entry(entry, where, seen)
                except RecursionError:
                    read = Reject(locator=where, reason="nested too deep", rule="nested_too_deep")
                if isinstance(read, Span):
                    traces.add(read)
                else:
                    yield read
        yield from traces.episodes()


def _entry(entry: Any, locator: str, seen: set[str]) -> Span | Reading:
    request, response = (object_or_empty(object_or_empty(entry).get(key)) for key in ("request", "response"))
    address = (text_or_none(request.get("url")) or "").split("?")[0].split("#")[0]
    holds = next((key for end, key in _ENDPOINTS if end.search(address)), None)
    if not isinstance(entry, dict) or not address:
        return reject(locator, "no request with an address", "", entry)
    if holds is None:
        return Skip(reason="other_traffic")
    asked, where = _body(request.get("postData"), lambda pointer: f"{locator}/request/postData{pointer}")
    if asked is None and (text_or_none(request.get("method")) or "POST").upper() != "POST":
        return Skip(reason="other_traffic")
    if not isinstance(asked, dict) or not isinstance(asked.get(holds), list | str):
        return reject(locator, f"the request's body has no `{holds}`", "", asked)
    trace = content_id("har", [entry.get("startedDateTime"), address, asked])
    if trace in seen:
        return Duplicate()
    seen.add(trace)
    span = Span(trace, trace, None, "model", locator, name=address.rpartition("/")[2])
    span.start, span.about = micros(entry.get("startedDateTime")), {"url": address}
    took = number_of(entry.get("time"))
    if span.start is not None and took is not None and 0 <= took < _LONGEST_MS:
        span.end = span.start + int(took * 1000)
    _ask(span, asked, where)
    _answer(span, response, lambda pointer: f"{locator}/response/content{pointer}")
    return span


def _body(holder: Any, where: Where) -> tuple[Any, Where]:
    """What a body holds: JSON, the events of a stream, or None."""
    text = object_or_empty(holder).get("text")
    if not isinstance(text, str) or not text.strip():
        return None, where
    if object_or_empty(holder).get("encoding") == "base64":
        try:
            text = base64.b64decode(text, validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            return None, where
    if stream_events(text) is not None:
        return text, below(where, "/text")
    try:
        return loads(text), below(where, "/text#")
    except NotJson:
        return text, below(where, "/text")


def _ask(span: Span, asked: dict[str, Any], where: Where) -> None:
    """What the model was sent, and how it was called."""
    settings = asked | object_or_empty(asked.get("generationConfig"))
    span.model = text_or_none(asked.get("model")) or _named(span.about["url"])
    span.temperature = number_of(settings.get("temperature"))
    tools = asked.get("tools")
    if isinstance(tools, list) and any("functionDeclarations" in object_or_empty(tool) for tool in tools):
        tools = [one for tool in tools for one in object_or_empty(tool).get("functionDeclarations") or ()]
    span.tools = tool_names(tools)
    span.user = first_text(object_or_empty(asked.get("metadata")), "user_id") or first_text(asked, "user")
    for key in ("system", "instructions", "systemInstruction", "system_instruction"):
        if asked.get(key):
            given = asked[key] if isinstance(asked[key], dict) else {"content": asked[key]}
            place = below(where, f"/{key}")
            told = read_messages(
                {**given, "role": "system"}, _without(place, given is not asked[key]), "system", span.rejects
            )
            span.heard += told
    talk = next(key for key in ("messages", "contents", "input") if isinstance(asked.get(key), list | str))
    if isinstance(asked[talk], str):
        span.heard.append(Said("user", where(f"/{talk}"), [Text(asked[talk], where(f"/{talk}"))]))
    else:
        span.heard += read_messages({"messages": asked[talk]}, _renamed(where, talk), "user", span.rejects)


def _without(where: Where, wrapped: bool) -> Where:
    return (lambda pointer: where(pointer.removeprefix("/content"))) if wrapped else where


def _renamed(where: Where, key: str) -> Where:
    return lambda pointer: where(f"/{key}{pointer.removeprefix('/messages')}")


def _named(url: str) -> str | None:
    found = re.search(r"/models/([^/:]+):", url)
    return found[1] if found else None


def _answer(span: Span, response: dict[str, Any], where: Where) -> None:
    body, place = _body(response.get("content"), where)
    status = count_or_none(response.get("status"))
    answer: Answer | None = None
    if isinstance(body, str) and (events := stream_events(body)) is not None:
        answer = streamed(events, place, span.rejects)
    elif isinstance(body, list) and any("candidates" in object_or_empty(row) for row in body):
        rows = [(object_or_empty(row), below(place, f"/{index}")) for index, row in enumerate(body)]
        answer = gemini(rows, place, span.rejects)
    elif isinstance(body, dict):
        answer = _told(body, place, span)
    about = answer.about if answer else {}
    error = about.get("error") or (object_or_empty(body).get("error") if isinstance(body, dict) else None)
    span.failed = True if error or (status is not None and status >= 400) else None
    if span.failed:
        span.error = first_text(object_or_empty(error), "message", "type", "code") or f"HTTP {status}"
        span.error_at = place("")
    elif answer is None and body not in (None, "", {}):
        span.replies = [undecided(place(""), body)]
    elif answer is None:
        found = response.get("content", response)
        span.rejects.append(
            bad_part(span.locator, "no body of the response was captured", "bad_answer", found)
        )
    if answer is None:
        return
    span.replies = [said for said in answer.said if _says(said)]
    span.model = first_text(about, "model", "modelVersion") or span.model
    usage = object_or_empty(about.get("usage")) or object_or_empty(about.get("usageMetadata"))
    span.tokens_in = _count(usage, "prompt_tokens", "input_tokens", "promptTokenCount")
    span.tokens_out = _count(usage, "completion_tokens", "output_tokens", "candidatesTokenCount")
    span.finish = first_text(about, "stop_reason") or next(
        (said.finish for said in answer.said if said.finish), None
    )
    if not answer.whole and span.finish is None:
        span.finish = "length"  # the capture ends before the answer does


def _says(said: Said) -> bool:
    return bool(said.texts or said.thoughts or said.calls or said.answers or said.unknown)


def _count(usage: dict[str, Any], *keys: str) -> int | None:
    return next((count for key in keys if (count := count_or_none(usage.get(key))) is not None), None)


def _told(body: dict[str, Any], place: Where, span: Span) -> Answer | None:
    """The answer in a response that came at once."""
    key = next((key for key in _ANSWERS if isinstance(body.get(key), list)), None)
    if key is None:
        return None
    if key == "candidates":
        return gemini([(body, place)], place, span.rejects)
    kept = {"role": "assistant", "content": body["content"]} if key == "content" else {key: body[key]}
    return Answer(read_messages(kept, place, "assistant", span.rejects), body, True)
