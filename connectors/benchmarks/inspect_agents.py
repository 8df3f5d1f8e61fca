"""The agents inside an Inspect sample: run as tools, by a handoff, as subtasks. Only the events hold what they said.

What an agent's model was asked lies in its span, of type `agent` or `subtask`; in logs from before there were spans, in the step of
that type, or in the `events` of the call that ran it. The agent whose words are the sample's `messages` is the sample's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.benchmarks.inspect_talk import first_choice, listed, made_by
from logforge.connectors.chat import message_name
from logforge.connectors.episodes import Continuations, object_or_empty, text_or_none
from logforge.connectors.records import at

_AGENTS = frozenset({"agent", "subtask"})
_RUNS = frozenset({"tool", "handoff"})
"""Spans in which an agent works for another one."""
_SCORERS = frozenset({"scorer", "scorers"})


Placed = tuple[dict[str, Any], str]
"""An event or a message, and where it stands."""


class Span(NamedTuple):
    """A span, and the one around it."""

    id: str
    kind: str
    name: str
    above: Span | None

    @property
    def around(self) -> Iterator[Span]:
        """The spans around it, the nearest first."""
        span = self.above
        while span is not None:
            yield span
            span = span.above


class Asked(NamedTuple):
    """One call of an agent's model: what it was sent and what it answered, each message with its place."""

    event: dict[str, Any]
    where: str
    messages: list[Placed]
    answer: dict[str, Any]


@dataclass
class Agent:
    """An agent inside a sample, with its events."""

    span: Span
    ran_by: dict[str, Any] = field(default_factory=dict)
    """The event of the call that ran it; empty when no call did."""
    models: list[Placed] = field(default_factory=list)
    tools: dict[str, Placed] = field(default_factory=dict)
    """The events of its own calls, by id."""
    talks: list[list[Asked]] = field(default_factory=list)
    """Its conversations, each the model calls that continue one another. One that branches off is one of its own."""

    @property
    def made(self) -> set[str]:
        """Ids of the messages that its model generated."""
        return {made for event, _ in self.models if (made := made_by(event)) is not None}


def agents_of(sample: dict[str, Any], locator: str) -> list[Agent]:
    """The agents inside a sample but its own, in the order in which they began. Scorers' agents are none of it."""
    place, events = "/events", sample.get("events")
    if events is None:
        place, events = "/transcript/events", object_or_empty(sample.get("transcript")).get("events")
    found: dict[str, Agent] = {}
    calls: dict[str, dict[str, Any]] = {}
    for event, pointer, span in _walk(events, place, None, {}):
        kind = event.get("event")
        if kind == "tool" and span is not None and span.kind == "tool":
            calls[span.id], span = event, span.above
        home = _home(span)
        if home is None:
            continue
        agent = found.setdefault(home.id, Agent(home))
        if kind == "model":
            agent.models.append((event, at(locator, pointer)))
        elif kind == "tool" and (call_id := text_or_none(event.get("id"))) is not None:
            agent.tools[call_id] = (event, at(locator, pointer))
    said = {own for message in listed(sample.get("messages")) if (own := text_or_none(message.get("id")))}
    inner = [agent for agent in found.values() if _is_inner(agent, said)]
    pool = listed(object_or_empty(sample.get("events_data")).get("messages")) if inner else ()
    pooled = [(message, at(locator, f"/events_data/messages/{i}")) for i, message in enumerate(pool)]
    for agent in inner:
        agent.ran_by = next((calls[span.id] for span in agent.span.around if span.id in calls), {})
        agent.talks = _talks(agent, pooled)
    return [agent for agent in inner if agent.talks]


def _talks(agent: Agent, pooled: list[Placed]) -> list[list[Asked]]:
    continuations: Continuations[Asked] = Continuations()
    for event, where in agent.models:
        asked = _asked(event, where, pooled)
        names = [_name(message) for message, _ in asked.messages]
        continuations.add(names, [_name(asked.answer)] if asked.answer else [], asked)
    return [talk for talk in continuations.chains if any(asked.answer for asked in talk)]


def _walk(
    events: Any, where: str, above: Span | None, spans: dict[str, Span]
) -> Iterator[tuple[dict[str, Any], str, Span | None]]:
    """Every event with its place in the sample and the span it lies in; steps, and calls that hold events, stand for spans."""
    steps: list[Span | None] = [above]
    opened: dict[str, Span] = {}
    for index, event in enumerate(events if isinstance(events, list) else ()):
        if not isinstance(event, dict):
            continue
        place, kind = f"{where}/{index}", event.get("event")
        named, name = text_or_none(event.get("type")) or "", text_or_none(event.get("name")) or ""
        inside = spans.get(text_or_none(event.get("span_id")) or "", steps[-1])
        if kind == "span_begin":
            own = text_or_none(event.get("id")) or place
            spans[own] = Span(own, named, name, spans.get(text_or_none(event.get("parent_id")) or "", above))
            opened |= {name: spans[own]} if named == "tool" else {}
        elif kind == "step" and event.get("action") == "begin":
            steps.append(Span(place, named, name, steps[-1]))
        elif kind == "step":
            steps = steps[:-1] or [above]
        elif isinstance(event.get("events"), list) and event["events"]:
            ran = _ran(event, place, inside)
            yield event, place, ran if kind == "tool" else inside
            helper = text_or_none(event.get("agent"))
            below = ran if helper is None else Span(f"{place}/agent", "agent", helper, ran)
            yield from _walk(event["events"], f"{place}/events", below, spans)
        elif kind == "tool" and (span := opened.pop(text_or_none(event.get("function")) or "", None)):
            yield event, place, span  # the event names the span around: it was made before its own began
        else:
            yield event, place, inside


def _ran(event: dict[str, Any], own: str, above: Span | None) -> Span:
    """The span that a call with events of its own stands for."""
    name = text_or_none(event.get("function")) or text_or_none(event.get("name")) or ""
    return Span(own, str(event.get("event")), name, above)


def _home(span: Span | None) -> Span | None:
    """The agent that an event is of: the nearest one around it, unless a tool or a scorer made the call itself."""
    around = [] if span is None else [span, *span.around]
    if any(other.kind in _SCORERS for other in around):
        return None
    nearest = next((other for other in around if other.kind in _AGENTS or other.kind == "tool"), None)
    return nearest if nearest is not None and nearest.kind in _AGENTS else None


def _is_inner(agent: Agent, said: set[str]) -> bool:
    """True unless the sample's messages are what it said. What was handed off to it may be shown there as well."""
    around = {span.kind for span in agent.span.around}
    if around & _RUNS:
        return True
    return not agent.made & said if said else bool(around & _AGENTS)


def _asked(event: dict[str, Any], where: str, pooled: list[Placed]) -> Asked:
    messages = [(m, f"{where}/input/{i}") for i, m in enumerate(listed(event.get("input")))]
    refs = event.get("input_refs")
    for pair in refs if not messages and isinstance(refs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(edge, int) for edge in pair):
            messages += pooled[max(0, pair[0]) : max(0, pair[1])]
    return Asked(event, where, messages, first_choice(object_or_empty(event.get("output"))))


def _name(message: dict[str, Any]) -> str:
    """Equal for equal messages: reasoning may be left out when a message is sent again, and ids are not kept in the pool."""
    content = message.get("content")
    if isinstance(content, list):
        content = [part for part in content if object_or_empty(part).get("type") != "reasoning"]
    return message_name({**message, "content": content})
