"""OTLP logs (`resourceLogs`): GenAI events that were exported as log records. Those of one span are one model call.

A record names the span it was written in; what was asked and answered there is the same whether the events lie in the span or
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import xxhash

from logforge.connectors.episodes import bad_record, first_text
from logforge.connectors.records import at, canonical, excerpt
from logforge.connectors.traces import genai as genai_attributes
from logforge.connectors.traces.attributes import Attributes, otel_id, typed
from logforge.connectors.traces.genai import Event
from logforge.connectors.traces.spans import Span
from logforge.schemas import Duplicate, Reading, Reject, Skip

TimeOf = Callable[[dict[str, Any]], int | None]
"""Reads a record's time."""
BATCH = ("resourceLogs", "resource_logs")
"""What a batch of log records is called."""
_RECORDS = ("logRecords", "log_records")


@dataclass
class _Call:
    """The records of one span."""

    trace: str
    span: str
    locator: str
    resource: Attributes
    records: list[tuple[int | None, Event]] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """The events in the order of their times, where all have one."""
        if all(time is not None for time, _ in self.records):
            self.records.sort(key=lambda record: record[0] or 0)
        return [event for _, event in self.records]

    def fill(self, span: Span) -> None:
        """Add to the span that they were written in what the records tell."""
        span.records += len(self.records)
        genai_attributes.hear(span, self.events)

    def made(self) -> Span:
        """The span, where only its records are known."""
        span = Span(self.trace, self.span, None, "other", self.locator, records=len(self.records))
        times = [time for time, _ in self.records if time is not None]
        span.start, span.end = min(times, default=None), max(times, default=None)
        events = self.events
        fullest = max(
            (event.attributes for event in events), key=len
        )  # the record that tells most of the call
        genai_attributes.fill(span, "", fullest, events)
        for key in ("service.name", "service.version"):
            if (value := self.resource.text(key)) is not None:
                span.about[key] = value
        return span


class LogRecords:
    """Takes batches of log records; then `settle` makes spans of them."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], _Call] = {}
        self._seen: set[int] = set()

    def add(self, batches: list[tuple[Any, str]], time_of: TimeOf) -> Iterator[Reading]:
        """Take the batches of a row (each with its locator); yields what is skipped, repeated or set aside."""
        found = [record for batch, where in batches for record in _records(batch, where)]
        if not found:
            yield Skip(reason="empty_batch")
        for record, where, resource in found:
            reading = self._add(record, where, resource, time_of)
            if reading is not None:
                yield reading

    def _add(self, record: Any, where: str, resource: Attributes, time_of: TimeOf) -> Reading | None:
        if not isinstance(record, dict):
            return Reject(
                locator=where, reason="log record is no object", rule="not_a_span", excerpt=excerpt(record)
            )
        attributes = Attributes(record.get("attributes"), at(where, "/attributes"))
        name = first_text(record, "eventName", "event_name") or attributes.text("event.name") or ""
        if not name.startswith("gen_ai."):
            return Skip(reason="other_log_record")
        trace, span = otel_id(record, "traceId", "trace_id"), otel_id(record, "spanId", "span_id")
        if trace is None or span is None:
            reason = "a GenAI event that names no span"
            return bad_record(where, reason, "not_a_span", record)
        digest = xxhash.xxh3_64_intdigest(canonical(record).encode())
        if digest in self._seen:
            return Duplicate()
        self._seen.add(digest)
        body = record.get("body")
        found = None if body in (None, {}) else typed(body, at(where, "/body"))
        call = self._calls.setdefault((trace, span), _Call(trace, span, where, resource))
        call.records.append((time_of(record), Event(name, attributes, found)))
        return None

    def settle(self, known: list[Span]) -> list[Span]:
        """Give the records to the spans among these that they were written in; returns spans made of the others'."""
        by_id = {(span.trace, span.id): span for span in known}
        made = []
        for key, call in self._calls.items():
            span = by_id.get(key)
            if span is None:
                made.append(call.made())
            else:
                call.fill(span)
        return made


def _records(batch: Any, where: str) -> Iterator[tuple[Any, str, Attributes]]:
    inner = batch if isinstance(batch, dict) else {}
    resource = inner.get("resource")
    about = resource.get("attributes") if isinstance(resource, dict) else None
    facts = Attributes(about, f"{where}/resource/attributes")
    for key in ("scopeLogs", "scope_logs", "instrumentationLibraryLogs"):
        for index, scoped in enumerate(_list(inner.get(key))):
            held = scoped if isinstance(scoped, dict) else {}
            name = next((name for name in _RECORDS if name in held), _RECORDS[0])
            for number, record in enumerate(_list(held.get(name))):
                yield record, f"{where}/{key}/{index}/{name}/{number}", facts


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
