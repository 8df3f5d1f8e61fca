"""Which agent invocation, conversation or trace each span belongs to: one unit is one episode's worth of spans."""

from __future__ import annotations

from dataclasses import dataclass, field

from logforge.connectors.traces.history import History
from logforge.connectors.traces.messages import Atom
from logforge.connectors.traces.spans import Span, in_time_order


@dataclass
class Unit:
    """One episode's worth of spans (or more than one, when unrelated prompts are mixed in it)."""

    key: tuple[str, ...]
    agents: list[Span] = field(default_factory=list)
    """The invocations; empty where none is logged."""
    models: list[Span] = field(default_factory=list)
    runs: list[Span] = field(default_factory=list)
    groups: list[Span] = field(default_factory=list)
    """Spans that hold the others and carry a verdict."""
    parent: tuple[str, ...] | None = None

    @property
    def spans(self) -> list[Span]:
        """All of them."""
        return [*self.agents, *self.models, *self.runs, *self.groups]


class Tree:
    """Who called whom. A span's agent is the nearest agent span above it, itself included."""

    def __init__(self, spans: list[Span]) -> None:
        self._by_id = {(span.trace, span.id): span for span in reversed(spans) if span.id is not None}
        self._agents: dict[int, Span | None] = {}
        self._said: dict[int | str, set[str]] = {}
        self._roots: dict[str, list[Span]] = {}
        """The agents that nothing called, by trace."""
        for span in spans:
            if span.kind == "agent" and span.parent is None:
                self._roots.setdefault(span.trace, []).append(span)
        for span in spans:
            if span.conversation is not None:
                agent = self.agent(span)
                self._said.setdefault(id(agent) if agent else span.trace, set()).add(span.conversation)

    def conversation(self, span: Span, agent: Span | None) -> str | None:
        """The conversation of an agent's invocation, or of a trace without one, also where not every span names it."""
        named = self._said.get(id(agent) if agent else span.trace, set())
        return next(iter(named)) if len(named) == 1 else span.conversation

    def above(self, span: Span) -> Span | None:
        """The span that called it, where the source has it."""
        return self._by_id.get((span.trace, span.parent)) if span.parent is not None else None

    def agent(self, span: Span) -> Span | None:
        """The agent that a span is part of; of two spans of one invocation (client and server), the outer one."""
        path: list[Span] = []
        at: Span | None = span
        seen: set[int] = set()
        while at is not None and id(at) not in self._agents and id(at) not in seen:
            seen.add(id(at))
            path.append(at)
            at = self.above(at)
        found = self._agents.get(id(at)) if at is not None else None
        for step in reversed(path):
            above = self.above(step)
            if step.kind == "agent" and not _same_invocation(step, above):
                found = step
            self._agents[id(step)] = found
        return found

    def key(self, span: Span, agent: Span | None) -> tuple[str, ...]:
        """What tells the episode: a sub-agent's span; the conversation and the agent; the agent's span; the trace, also
        when the agent is all of it: its span ends last, and a trace that was exported before is the same run."""
        if agent is not None and self._above_agent(agent) is not None:
            return (agent.trace, agent.id or agent.locator)
        if (conversation := self.conversation(span, agent)) is not None:
            return (conversation, *((agent.agent,) if agent and agent.agent else ()))
        whole = agent is None or self._roots.get(agent.trace) == [agent]
        return (span.trace, *(() if agent is None or whole else (agent.id or agent.locator,)))

    def _above_agent(self, agent: Span) -> Span | None:
        above, seen = self.above(agent), {id(agent)}
        while above is not None and id(above) not in seen and _same_invocation(agent, above):
            seen.add(id(above))
            above = self.above(above)
        found = self.agent(above) if above is not None and id(above) not in seen else None
        return None if found is agent else found

    def parent_key(self, agent: Span | None) -> tuple[str, ...] | None:
        """The key of the agent's caller."""
        caller = self._above_agent(agent) if agent is not None else None
        return self.key(caller, caller) if caller is not None else None


def _same_invocation(span: Span, above: Span | None) -> bool:
    return (
        above is not None and above.kind == "agent" and span.kind == "agent" and span.agent is not None
        and span.agent == above.agent
    )  # fmt: skip


def rehome(units: dict[tuple[str, ...], Unit]) -> None:
    """A verdict on a trace, or a tool run beside the agent, belongs to the first run of its trace that has a model."""
    hosts: dict[str, Unit] = {}
    for unit in units.values():
        if unit.parent is None and (unit.models or unit.agents):
            for span in unit.spans:
                hosts.setdefault(span.trace, unit)
    for key, unit in list(units.items()):
        host = next((h for span in unit.spans if (h := hosts.get(span.trace))), None)
        if host is not None and not unit.models and not unit.agents:
            host.runs += unit.runs
            host.groups += unit.groups
            del units[key]


def join(units: dict[tuple[str, ...], Unit]) -> None:
    """A run whose first prompt begins with the whole of an earlier one goes on with it: one conversation."""
    whole: dict[tuple[Atom, ...], Unit] = {}
    if len(units) == 1:
        return
    for key, unit in list(units.items()):
        if unit.parent is not None or not unit.models:
            continue
        models = in_time_order(unit.models)
        first = _spoken([atom for atom, _, _ in models[0].pieces])
        ends = [n for n in range(len(first) - 1, 0, -1) if first[n - 1].role == "assistant"]
        earlier = next((u for n in ends if (u := whole.get(first[:n]))), None)
        if earlier is not None and _agent_name(earlier) == _agent_name(unit):
            earlier.agents += unit.agents
            earlier.models += unit.models
            earlier.runs += unit.runs
            earlier.groups += unit.groups
            for other in units.values():
                other.parent = earlier.key if other.parent == key else other.parent
            del units[key]
            unit = earlier
        history = History()
        for span in in_time_order(unit.models):
            history.take(span)
        whole[_spoken(history.known)] = unit


def _spoken(known: list[Atom]) -> tuple[Atom, ...]:
    return tuple(atom for atom in known if atom.role not in ("system", "developer"))


def _agent_name(unit: Unit) -> str | None:
    return next((span.agent for span in unit.agents if span.agent), None)
