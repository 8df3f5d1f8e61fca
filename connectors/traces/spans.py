"""A span, whatever convention it was written in: one model call, tool run or agent invocation, and who it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

from logforge.connectors.episodes import Text, Verdict
from logforge.connectors.traces.messages import Atom, Piece, Said, atoms
from logforge.schemas import Reject

Kind = Literal["model", "agent", "tool", "group", "other"]
"""`group` holds other spans and says nothing itself; `other` is no part of an agent's run (an embedding, say)."""


@dataclass
class ToolRun:
    """A tool's execution: the call it answers, and what came of it."""

    name: str
    call_id: str | None = None
    arguments: Any = None
    result: Text | None = None


def skip_reason(kind: str, known: frozenset[str], noun: str = "span") -> str:
    """Why a span of no run is skipped: its kind, when that is a known one. A log's own words name no rule."""
    return f"{kind if kind in known else 'other'}_{noun}"


@dataclass
class Span:
    """One span. Times are microseconds since 1970, UTC."""

    trace: str
    id: str | None
    parent: str | None
    kind: Kind
    locator: str
    reason: str = "other_span"
    """Why it is skipped when it is no part of a run."""
    name: str | None = None
    start: int | None = None
    end: int | None = None
    failed: bool | None = None
    error: str | None = None
    """What went wrong, in words."""
    error_at: str = ""
    """Where those words stand."""
    error_type: str | None = None
    agent: str | None = None
    conversation: str | None = None
    session: str | None = None
    user: str | None = None
    heard: list[Said] = field(default_factory=list)
    """The messages that were sent to the model, history and all."""
    replies: list[Said] = field(default_factory=list)
    """The model's answers: candidates of one turn."""
    run: ToolRun | None = None
    model: str | None = None
    temperature: float | None = None
    prompt_version: str | None = None
    tools: list[str] | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    finish: str | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    """What else is worth keeping in the episode's metadata."""
    rejects: list[Reject] = field(default_factory=list)
    records: int = 1
    keep: bool = False
    """Part of its trace's run although it says nothing (a row of facts about the trace)."""

    @cached_property
    def pieces(self) -> list[Piece]:
        """What the model was sent, piece by piece. Made once, when the span is complete."""
        return atoms(self.heard)

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        if self.start is None or self.end is None or self.end < self.start:
            return None
        return (self.end - self.start) / 1e6


def in_order(models: list[Span]) -> list[Span]:
    """Model calls by their start, but none before the call whose prompt and answer its own begins with: clocks may be off."""
    begun = {id(span): _chain([atom for atom, _, _ in span.pieces]) for span in models}
    told: dict[int, Span] = {}
    for span in models:
        if span.replies:
            told[_chain([atom for atom, _, _ in atoms(span.replies[:1])], begun[id(span)][-1])[-1]] = span
    ordered: dict[int, Span] = {}
    for span in in_time_order(models):
        late: Span | None = span
        waiting = []
        while late is not None and id(late) not in ordered:
            waiting.append(late)
            late = next((told[link] for link in reversed(begun[id(late)]) if link in told), None)
        ordered |= {id(item): item for item in reversed(waiting)}
    return list(ordered.values())


def _chain(heard: list[Atom], start: int = 0) -> list[int]:
    """A number for each beginning of a prompt: the same for the same messages."""
    return list(accumulate(heard, lambda link, atom: hash((link, atom)), initial=start))


def in_time_order(spans: list[Span]) -> list[Span]:
    """Spans by their start; those without one stay where the file has them, at the end."""
    return sorted(spans, key=lambda span: (span.start is None, span.start or 0))
