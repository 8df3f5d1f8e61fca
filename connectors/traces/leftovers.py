"""What a model's span says under names that nobody reads, where what is read of it is not all of a model call."""

from __future__ import annotations

import re
from typing import Any

from logforge.connectors.episodes import bad_part
from logforge.connectors.traces.attributes import Attributes
from logforge.connectors.traces.envelopes import is_foreign
from logforge.connectors.traces.genai import Event
from logforge.connectors.traces.messages import undecided
from logforge.connectors.traces.spans import Span

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
