"""OpenTelemetry spans of agents: OTLP JSON (`resourceSpans`), as a document or one batch a line, or one flat span a line.
Their events may be log records apart from them (`resourceLogs`).

A record is a span or a log record. Three tables of attributes are known: OpenTelemetry's GenAI conventions, OpenInference and the Vercel AI SDK's. episodes.py
says how spans become episodes, history.py how their repeated histories become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import xxhash

from logforge.connectors.episodes import bad_part, bad_record, text_or_none
from logforge.connectors.records import Head, Source, at, canonical, excerpt
from logforge.connectors.traces import (
    genai as genai_attributes,
)
from logforge.connectors.traces import (
    openinference as openinference_attributes,
)
from logforge.connectors.traces import (
    otlp_logs,
)
from logforge.connectors.traces import (
    vercel as vercel_attributes,
)
from logforge.connectors.traces.attributes import Attributes, Found, otel_id, time_of
from logforge.connectors.traces.envelopes import is_foreign
from logforge.connectors.traces.episodes import Traces
from logforge.connectors.traces.genai import Event
from logforge.connectors.traces.messages import undecided
from logforge.connectors.traces.otlp_logs import LogRecords
from logforge.connectors.traces.spans import Span
from logforge.schemas import Duplicate, Reading, Reject, Skip

_SPEAKS = re.compile(
    rb'"(?:gen_ai\.|openinference[."]|llm\.(?:input_messages|model_name)|ai\.operationId"|gen_ai")'
)
_TRACE = ("traceId", "trace_id")
_SPAN = ("spanId", "span_id")
_PARENT = ("parentSpanId", "parent_span_id", "parentId", "parent_id")
_START = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "start_timestamp")
_LOGGED = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano", "timestamp")
_END = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime", "end_timestamp")


class Otlp:
    """OpenTelemetry traces."""

    name = "otlp"
    version = 5
    record = "one span or log record; a batch without any counts as one"
    fills = ("outcome", "score", "rewards", "tools", "thoughts", "tokens", "cost", "latency", "times")

    def sniff(self, head: Head) -> float:
        """OTLP's own structure, or a flat span whose attributes are of an agent."""
        if head.container not in ("object", "array"):
            return 0.0
        if {"resourceSpans", "resource_spans"} & head.top:
            return 0.95 if _SPEAKS.search(head.data) else 0.5
        if set(otlp_logs.BATCH) & head.top:
            return 0.9 if _SPEAKS.search(head.data) else 0.0
        ids = head.top | head.keys.get("context", set())
        flat = set(_TRACE) & ids and set(_SPAN) & ids and "attributes" in head.top
        return 0.9 if flat and _SPEAKS.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per agent invocation, conversation or trace, after what is skipped or set aside."""
        traces, logs = Traces(self.name), LogRecords()
        seen: dict[tuple[str, str], int] = {}
        for locator, row in traces.watched(source.records()):
            if isinstance(row, Reject):
                yield row
                continue
            try:
                if isinstance(row, dict) and any(isinstance(row.get(key), list) for key in otlp_logs.BATCH):
                    placed = [(b, at(locator, pointer)) for b, pointer in _listed(row, *otlp_logs.BATCH)]
                    yield from logs.add(placed, lambda record: time_of(record, _LOGGED))
                else:
                    yield from _take(row, locator, traces, seen)
            except RecursionError:
                yield Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")
        for span in logs.settle(traces.spans):
            traces.add(span)
        yield from traces.episodes()


class _Raw(NamedTuple):
    row: Any
    locator: str
    resource: Attributes
    scope: str | None


def _take(row: Any, locator: str, traces: Traces, seen: dict[tuple[str, str], int]) -> Iterator[Reading]:
    """The spans of one row (read as a whole first, so that a row is taken or set aside, never half)."""
    batches = _batches(row)
    raws = (
        [_Raw(row, locator, _resource(row, locator), None)] if batches is None else list(_spans(row, locator))
    )
    if batches is not None and not raws:
        yield Skip(reason="empty_batch")
    taken = [_read_span(raw, seen) for raw in raws]
    for read in taken:
        if isinstance(read, Span):
            traces.add(read)
        else:
            yield read


def _batches(row: Any) -> list[Any] | None:
    if not isinstance(row, dict):
        return None
    found = row.get("resourceSpans", row.get("resource_spans"))
    return found if isinstance(found, list) else None


def _listed(value: Any, *names: str) -> Iterator[tuple[Any, str]]:
    """The elements of the first list found under these names, with their pointers."""
    for name in names:
        found = value.get(name) if isinstance(value, dict) else None
        if isinstance(found, list):
            for index, element in enumerate(found):
                yield element, f"/{name}/{index}"
            return


def _spans(row: Any, locator: str) -> Iterator[_Raw]:
    for batch, first in _listed(row, "resourceSpans", "resource_spans"):
        base = at(locator, first)
        resource = _resource(batch, base)
        for scoped, second in _listed(batch, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            scope = scoped.get("scope") if isinstance(scoped, dict) else None
            named = text_or_none(scope.get("name")) if isinstance(scope, dict) else None
            for span, third in _listed(scoped, "spans"):
                yield _Raw(span, f"{base}{second}{third}", resource, named)


def _resource(row: Any, locator: str) -> Attributes:
    resource = row.get("resource") if isinstance(row, dict) else None
    inner = resource.get("attributes") if isinstance(resource, dict) else None
    return Attributes(inner, f"{at(locator, '/resource/attributes')}")


def _read_span(raw: _Raw, seen: dict[tuple[str, str], int]) -> Span | Reading:
    row, locator = raw.row, raw.locator
    context = row.get("context") if isinstance(row, dict) else None
    ids = {**context, **row} if isinstance(context, dict) else row
    trace = otel_id(ids, *_TRACE) if isinstance(ids, dict) else None
    if trace is None:
        return bad_record(locator, "no span: it has no trace id", "not_a_span", row)
    own = otel_id(ids, *_SPAN)
    if own is not None:
        digest = xxhash.xxh3_64_intdigest(canonical(row).encode())
        if (trace, own) in seen:
            if seen[trace, own] == digest:
                return Duplicate()
            return Reject(
                locator=locator,
                reason="another span under an id already read",
                rule="conflicting_span",
                detail=own,
                excerpt=excerpt(row),
            )
        seen[trace, own] = digest
    span = Span(trace, own, otel_id(row, *_PARENT), "other", locator)
    span.start, span.end = time_of(row, _START), time_of(row, _END)
    _fill(span, raw)
    return span


def _fill(span: Span, raw: _Raw) -> None:
    row = raw.row
    attributes = Attributes(row.get("attributes"), at(raw.locator, "/attributes"))
    events = [_event(event, at(raw.locator, f"/events/{i}")) for i, event in enumerate(_events(row))]
    name = row["name"] if isinstance(row.get("name"), str) else ""
    span.name = name
    _status(span, row, attributes, events)
    if vercel_attributes.speaks(attributes):
        vercel_attributes.fill(span, attributes)
    elif openinference_attributes.speaks(attributes):
        openinference_attributes.fill(span, name, attributes)
        span.verdicts += genai_attributes.verdicts(events)
    elif genai_attributes.speaks(attributes, events):
        genai_attributes.fill(span, name, attributes, events)
    else:
        span.reason = "no_agent_attributes"
    note_unread(span, attributes, events)
    span.conversation = span.conversation or attributes.text("gen_ai.conversation.id")
    if span.kind == "tool" and span.run is None:
        span.kind, span.reason = "other", "nameless_tool_span"
    for key in ("service.name", "service.version"):
        if (value := raw.resource.text(key)) is not None:
            span.about[key] = value
    if raw.scope:
        span.about["scope"] = raw.scope


def _events(row: dict[str, Any]) -> list[Any]:
    events = row.get("events")
    return events if isinstance(events, list) else []


def _event(event: Any, locator: str) -> Event:
    inner = event if isinstance(event, dict) else {}
    name = inner.get("name", inner.get("event_name"))
    body = Found(inner["body"], lambda pointer: f"{locator}/body{pointer}") if inner.get("body") else None
    return Event(
        name if isinstance(name, str) else "",
        Attributes(inner.get("attributes"), f"{locator}/attributes"),
        body,
    )


def _status(span: Span, row: dict[str, Any], attributes: Attributes, events: list[Event]) -> None:
    status = row.get("status")
    inner = status if isinstance(status, dict) else {}
    code = inner.get("code", inner.get("status_code", row.get("status_code", status)))
    named = str(code).upper().removeprefix("STATUS_CODE_").removeprefix("STATUSCODE.")
    span.error_type = attributes.text("error.type")
    if named in ("2", "ERROR") or span.error_type is not None:
        span.failed = True
        span.error, span.error_at = _what_went_wrong(row, inner, attributes, events, span.locator)
    elif named in ("1", "OK"):
        span.failed = False


def _what_went_wrong(
    row: dict[str, Any], status: dict[str, Any], attributes: Attributes, events: list[Event], locator: str
) -> tuple[str | None, str]:
    for key in ("message", "description"):
        if isinstance(status.get(key), str) and status[key]:
            return status[key], at(locator, f"/status/{key}")
    if isinstance(row.get("status_message"), str) and row["status_message"]:
        return row["status_message"], at(locator, "/status_message")
    raised = next((e.attributes.find("exception.message") for e in events if e.name == "exception"), None)
    found = raised or attributes.find("error.type")
    return (text_or_none(found.value), found.locator) if found else (None, locator)


_KNOWN = re.compile(
    r"(?:gen_ai|llm|openinference|ai|input|output|metadata|tag|session|user|service|server|http|url|telemetry|otel"
    r"|error|exception|network|event|agent|graph|traceloop|logfire|langfuse|langsmith)(?:[._]|\Z)"
)
"""How the attributes begin that conventions name: they are read, or hold no message."""


_TALKS = re.compile(r"(?:\A|[._])(?:content|messages?|tool_calls|prompt\.\d.*|completion\.\d.*)\Z")


_SAYS = frozenset({"content", "message", "tool_calls", "body"})


def note_unread(span: Span, attributes: Attributes, events: list[Event]) -> None:
    """Add what may be the messages of a model's span, as messages that are not understood."""
    if span.kind != "model":
        return
    whole = bool(span.heard and span.replies)
    for key in attributes:
        found = attributes.find(key)
        if found is None or _KNOWN.match(key) or not _may_talk(key, found.value):
            continue
        if whole:
            reason = "an attribute that is not understood"
            span.rejects.append(bad_part(found.locator, reason, "unknown_part", found.value))
        else:
            _add(span, found.locator, {key: found.value})
    if whole and not any(_is_message(event) for event in events):
        return  # the messages stand in attributes: events are about other things
    for event in events:
        told = {key: event.attributes.get(key) for key in _SAYS if event.attributes.get(key)}
        if event.body is not None:
            told["body"] = event.body.value
        if told and not event.name.startswith(("gen_ai.", "exception")):
            _add(span, event.attributes.locator, told)


def _is_message(event: Event) -> bool:
    return event.name == "gen_ai.choice" or (
        event.name.startswith("gen_ai.") and event.name.endswith(".message")
    )


def _may_talk(key: str, value: Any) -> bool:
    return is_foreign(value) or (isinstance(value, str) and value != "" and bool(_TALKS.search(key)))


def _add(span: Span, where: str, value: Any) -> None:
    (span.replies if not span.replies else span.heard).append(undecided(where, value))
