"""Puts together responses that a log holds in pieces (a line per text, thought, call and result).

Pieces of one response follow each other; a text or thought after a call begins the next response. What a log tells
later about a response (its usage) is added to the last one. `build` then hands everything to an EpisodeBuilder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.content import Parts, Text
from logforge.connectors.episodes.words import Unknown
from logforge.schemas import Reject, ResultStatus


@dataclass
class Turn:
    """One response of the model, from all its pieces."""

    where: str
    time: int | None = None
    model: str | None = None
    parts: Parts = field(default_factory=Parts)
    tokens_in: int | None = None
    tokens_out: int | None = None
    closed: bool = False
    """Nothing more belongs to it."""
    lost: bool = False
    """It decided something that the log no longer tells."""


@dataclass(frozen=True)
class Said:
    """A system, developer or user text."""

    role: str
    text: str | None
    where: str
    time: int | None


@dataclass(frozen=True)
class Answered:
    """A tool's answer."""

    call_id: str | None
    text: str | None
    where: str
    time: int | None
    failed: bool | None = None
    status: ResultStatus | None = None
    latency_s: float | None = None


@dataclass
class Transcript:
    """Takes an episode's pieces in the log's order."""

    model: str | None = None
    """The model of the responses that begin from now on."""
    entries: list[Turn | Said | Answered] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    unknown: list[tuple[Unknown, bool]] = field(default_factory=list)
    """What is not understood, and whether a decision may lie in it."""

    def note(self, parts: Parts, *, decides: bool) -> None:
        """Take what a message's content held that is set aside: what is damaged, and what is not understood."""
        self.rejects += parts.rejects
        self.unknown += [(found, decides) for found in parts.unknown]

    @property
    def turns(self) -> list[Turn]:
        """The model's responses so far."""
        return [entry for entry in self.entries if isinstance(entry, Turn)]

    def say(self, role: str, text: str | None, where: str, time: int | None) -> None:
        """Add a text that is no decision of the agent."""
        self.entries.append(Said(role, text, where, time))

    def answer(self, answer: Answered) -> None:
        """Add a tool's answer."""
        self.entries.append(answer)

    def text(self, texts: list[Text], where: str, time: int | None) -> None:
        """Add what the agent said."""
        self._turn(where, time, after_calls=False).parts.texts += texts

    def thought(self, thoughts: list[Text], where: str, time: int | None) -> None:
        """Add what the agent thought."""
        self._turn(where, time, after_calls=False).parts.thoughts += thoughts

    def call(self, call: Call, where: str, time: int | None, *, alone: bool = False) -> None:
        """Add a call. `alone`: it ran inside the response, so what follows was decided later."""
        turn = self._turn(where, time, after_calls=True)
        if call.call_id is not None and any(other.call_id == call.call_id for other in turn.parts.calls):
            turn.closed = True  # an id is unique within a response
            turn = self._turn(where, time, after_calls=True)
        turn.parts.calls.append(call)
        turn.closed = alone

    def lose(self, where: str, time: int | None) -> None:
        """A call that cannot be read: without another one the response is a message without a step."""
        self._turn(where, time, after_calls=True).lost = True

    def end_turn(self) -> None:
        """The model's response ends here."""
        if self.entries and isinstance(last := self.entries[-1], Turn):
            last.closed = True

    def _turn(self, where: str, time: int | None, *, after_calls: bool) -> Turn:
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Turn) and not last.closed and (after_calls or not last.parts.calls):
            return last
        turn = Turn(where, time, self.model)
        self.entries.append(turn)
        return turn

    def build(self, builder: EpisodeBuilder) -> None:
        """Add everything to the builder. The time from a call to its answer is its latency, where none was logged."""
        builder.rejects += self.rejects
        for (place, part), decides in self.unknown:
            builder.unknown(place, part, decides=decides)
        asked: dict[str, int] = {}
        for entry in self.entries:
            if isinstance(entry, Said):
                builder.message(entry.role, entry.text, entry.where, created_at=entry.time)
            elif isinstance(entry, Answered):
                _add_answer(builder, entry, asked)
            else:
                _add_turn(builder, entry)
                if (time := entry.time) is not None:
                    asked.update({call.call_id: time for call in entry.parts.calls if call.call_id})


def _add_turn(builder: EpisodeBuilder, turn: Turn) -> None:
    parts = turn.parts
    texts = parts.texts or parts.thoughts
    where = texts[0].locator if texts else turn.where
    more: dict[str, Any] = {
        "thought": parts.thought,
        "created_at": turn.time,
        "model": turn.model,
        "tokens_in": turn.tokens_in,
        "tokens_out": turn.tokens_out,
    }
    if parts.calls or (parts.texts and not turn.lost):
        builder.turn(parts.text, parts.calls, where, **more)
    elif parts.thoughts or turn.lost:
        # Thinking alone decided nothing yet (the log stops before the decision), and a lost call is not to be made up.
        builder.message("assistant", parts.text, where, **more)


def _add_answer(builder: EpisodeBuilder, answer: Answered, asked: dict[str, int]) -> None:
    begun, latency = asked.get(answer.call_id or ""), answer.latency_s
    if latency is None and begun is not None and answer.time is not None and answer.time >= begun:
        latency = (answer.time - begun) / 1e6
    builder.result(
        answer.call_id,
        answer.text,
        answer.where,
        failed=answer.failed,
        status=answer.status,
        latency_s=latency,
        created_at=answer.time,
    )
