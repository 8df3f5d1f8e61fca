"""From spans to episodes: which agent invocation, conversation or trace each span belongs to, and how each run ended.

An episode is an agent's invocation; invocations of one agent in one conversation are one episode, because their prompts
repeat each other. Where no agent is logged, it is the conversation, and where there is none, the trace. An agent
that another one invoked is an episode of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import fsum
from typing import Any

from logforge.connectors.episodes import (
    Verdict,
    close,
    episode_id,
    first_user_text,
    keyed,
    limit_met,
    outcome_of,
)
from logforge.connectors.records import canonical
from logforge.connectors.traces.groups import Tree, Unit, join, rehome
from logforge.connectors.traces.history import History, lost
from logforge.connectors.traces.spans import Span, in_order, in_time_order
from logforge.schemas import Ending, Reading, Reject, Skip

_RANDOM_ID = re.compile(r"(?:0x)?[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
"""Trace ids as tracers make them; what a person made up may be used twice."""


class Traces:
    """Takes the spans of a source; then `episodes` gives what they come to."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.spans: list[Span] = []
        self.cut_after: Span | None = None
        """The last span before the file's damaged end."""

    def watched(self, records: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """A source's records as they are. Where the last one is damaged, the file ends after the span before it."""
        for locator, row in records:
            damaged = isinstance(row, Reject) and row.rule == "malformed_record"
            self.cut_after = self.spans[-1] if damaged and self.spans else None
            yield locator, row

    def add(self, span: Span) -> None:
        """Take a span."""
        self.spans.append(span)

    def episodes(self) -> Iterator[Reading]:
        """Every span once: in an episode, or skipped with its reason."""
        tree = Tree(self.spans)
        units: dict[tuple[str, ...], Unit] = {}
        for span in in_time_order(self.spans):
            agent = tree.agent(span)
            if not (span.kind in ("model", "tool", "agent") or span.verdicts or span.keep):
                yield Skip(reason=span.reason, records=span.records)
                continue
            key = tree.key(span, agent)
            unit = units.setdefault(key, Unit(key, parent=tree.parent_key(agent)))
            {"model": unit.models, "tool": unit.runs, "agent": unit.agents}.get(
                span.kind, unit.groups
            ).append(span)
        rehome(units)
        join(units)
        for unit in units.values():
            if not (unit.models or unit.agents or unit.runs):
                yield from _homeless(unit)
                continue
            try:
                readings = list(self._read(unit, units))
            except RecursionError:
                readings = [lost(span, "nested too deep", "nested_too_deep") for span in unit.spans]
            yield from readings

    def _read(self, unit: Unit, units: dict[tuple[str, ...], Unit]) -> Iterator[Reading]:
        histories = _histories(unit)
        parent = units.get(unit.parent) if unit.parent else None
        parent_id = self._id(parent) if parent else None
        main = max(histories, key=lambda history: len(history.models))
        for history in histories:
            if history is main:
                extra = [*unit.agents, *unit.groups]
                yield from self._episode(unit, history, extra, self._id(unit), parent_id)
            else:
                first = history.models[0]
                own = episode_id(self.format, *unit.key, first.id or first.locator)
                yield from self._episode(unit, history, [], own, self._id(unit))

    def _id(self, unit: Unit) -> str:
        first = in_time_order(unit.spans)[0]
        if _RANDOM_ID.fullmatch(first.trace):
            return episode_id(self.format, *unit.key, first.trace)
        return episode_id(self.format, *unit.key, first.trace, first.id, first.start)

    def _episode(
        self, unit: Unit, history: History, extra: list[Span], id: str, parent: str | None
    ) -> Iterator[Reading]:
        history.build()
        builder = history.builder
        spans = [*history.models, *history.runs, *extra]
        for span in extra:
            builder.rejects += span.rejects
        ordered = in_time_order(spans)
        ending, reason = self._ending(history, extra, spans)
        whole = _whole_run(history, extra)
        # what judges the run judges no step as well: it would count twice
        history.judged = [(at, v) for at, v in history.judged if not any(v is other for other in whole)]
        models = [span.model for span in ordered if span.model]
        more: dict[str, Any] = {}
        if version := _first(ordered, "prompt_version"):
            more["prompt_version"] = version
        starts = [span.start for span in spans if span.start is not None]
        ends = [span.end for span in spans if span.end is not None]
        episode = builder.finish(
            id=id,
            format=self.format,
            locator=ordered[0].locator,
            records=sum(span.records for span in spans),
            ending=ending,
            ending_reason=reason,
            native_id="/".join(unit.key),
            task=first_user_text(builder),
            session_id=_first(ordered, "conversation") or _first(ordered, "session"),
            user_id=_first(ordered, "user"),
            parent_episode_id=parent,
            policy_id=models[0] if models else None,
            model=models[0] if models else None,
            temperature=_first(ordered, "temperature"),
            tools=_first(in_time_order([span for span in extra if span.kind == "agent"]), "tools"),
            cost_usd=_cost(spans),
            started_at=min(starts) if starts else None,
            ended_at=max(ends) if ends else None,
            **outcome_of(whole).fields(),
            metadata=_metadata(ordered),
            **more,
        )
        yield from keyed(close(builder, history.rewarded(episode)), _span_ids(history))

    def _ending(self, history: History, extra: list[Span], spans: list[Span]) -> tuple[Ending, str]:
        builder = history.builder
        if self.cut_after is not None and any(span is self.cut_after for span in spans):
            return "truncated", "the log is cut off"
        agents = [span for span in extra if span.kind == "agent"]
        last_agent = agents[-1] if agents else None
        if last_agent is not None and last_agent.failed:
            return "truncated", f"the agent ended with an error: {last_agent.error or 'no message'}"[:200]
        if last_agent is not None and last_agent.start is not None and last_agent.end is None:
            return "truncated", "still running: the agent's span has no end"
        last = history.models[-1] if history.models else None
        if last is not None and last.failed and not last.replies:
            return "truncated", f"the last model call failed: {last.error or 'no message'}"[:200]
        if builder.ends_unanswered:
            return "truncated", "last call is unanswered"
        if last is not None and (why := limit_met(last.finish)) is not None:
            return "truncated", why
        role = builder.messages[-1].role if builder.messages else ""
        if role == "assistant":
            return "terminal", "the agent gave its reply"
        if last_agent is not None and last_agent.end is not None and last_agent.failed is False:
            return "terminal", "the agent's span ended well"
        return "truncated", "the log stops before the agent's reply"


def _span_ids(history: History) -> dict[int, str]:
    """The ids of the model calls that wrote turns, by position. A trace that was exported before it ended lacks the spans that
    tell whose it was, so that its episode has another id; its decisions have not."""
    found = history.decided.items()
    return {
        at: f"{span.trace}/{span.id}" for at, span in found if span.id and _RANDOM_ID.fullmatch(span.trace)
    }


def _homeless(unit: Unit) -> Iterator[Reading]:
    for span in unit.groups:
        if span.verdicts:
            yield lost(span, "it judges a run that is not in this source", "verdict_without_run")
        else:
            yield Skip(reason=span.reason, records=span.records)


def _histories(unit: Unit) -> list[History]:
    """The conversations of a unit: usually one. A prompt of another kind beside it (a title, say) is one of its own."""
    histories: list[History] = []
    for span in in_order(unit.models):
        history = next((h for h in reversed(histories) if h.wants(span)), None)
        if history is None:
            history = History()
            histories.append(history)
        history.take(span)
    if not any(span.heard or span.replies for span in unit.models):
        histories = [_from_agents(unit)]
    main = max(histories, key=lambda history: len(history.models))
    for run in in_time_order(unit.runs):
        _owner(run, histories, main).runs.append(run)
    return histories


def _from_agents(unit: Unit) -> History:
    """Where no model call was captured, the invocations themselves say what was asked and answered."""
    history = History()
    for span in unit.models:
        history.take(span)
    for agent in unit.agents:
        if agent.heard or agent.replies:
            told = [*agent.heard, *agent.replies[:-1]]
            # the span itself is counted among the unit's agents
            view = replace(
                agent, heard=told, replies=agent.replies[-1:], records=0, verdicts=[], rejects=[], cost=None
            )
            history.take(view)
    return history


def _owner(run: Span, histories: list[History], main: History) -> History:
    wanted = run.run.call_id if run.run else None
    for history in histories:
        ids = {call.call_id for span in history.models for said in span.replies for call in said.calls}
        if wanted is not None and wanted in ids:
            return history
    return main


def _whole_run(history: History, extra: list[Span]) -> list[Verdict]:
    """Verdicts on the run as a whole: on its agent, its trace, or on its only model call."""
    whole = [v for span in extra for v in span.verdicts if v.scope != "session"]
    inner = [*history.models, *history.runs]
    whole += [v for span in inner for v in span.verdicts if v.scope == "trace"]
    if not whole and len(history.models) == 1:
        whole = [v for v in history.models[0].verdicts if v.scope == "span"]
    return whole


def _first(spans: list[Span], name: str) -> Any:
    return next((value for span in spans if (value := getattr(span, name)) is not None), None)


def _cost(spans: list[Span]) -> float | None:
    """What the model calls cost; an agent's own figure may be their sum, and counts where they have none."""
    by_kind = [[span.cost for span in spans if span.kind == kind] for kind in ("model", "agent")]
    known = [[cost for cost in costs if cost is not None] for costs in by_kind]
    costs = next((costs for costs in known if costs), None)
    return None if costs is None else round(fsum(costs), 12)


def _metadata(spans: list[Span]) -> str:
    """Facts of the run, each once; the sums that spans carry; every verdict."""
    found: dict[str, Any] = {}
    for span in spans:
        for key, value in span.about.items():
            found.setdefault(key, value)
    found["traces"] = sorted({span.trace for span in spans})
    seconds = [span.seconds for span in spans if span.kind == "model" and span.seconds is not None]
    if seconds:
        found["model_seconds"] = round(sum(seconds), 6)
    verdicts = [{**v.as_dict(), "span": span.id} for span in spans for v in span.verdicts]
    if verdicts:
        found["verdicts"] = verdicts
    return canonical(found)
