"""What one message of an SDK holds, sorted by kind, and how it becomes messages, calls and results of an episode."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Speech,
    Text,
    Unknown,
    bad_part,
    text_or_none,
    unsaid,
)
from logforge.connectors.records import NotJson, at, canonical, loads
from logforge.schemas import Reject, ResultStatus


class Result(NamedTuple):
    """A tool's answer. `failed` and `status` are what the log itself says, where it does."""

    call_id: str | None
    text: str | None
    locator: str
    failed: bool | None = None
    status: ResultStatus | None = None
    name: str | None = None
    """The tool that answered, where the log tells."""


@dataclass
class Pieces(Speech):
    """What one message holds, by kind and in order."""

    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    lost_call: bool = False
    """It holds a call that cannot be kept: what it decided is not known."""

    def say(self, text: Any, locator: str) -> bool:
        """Add a text. False: it is none."""
        if not isinstance(text, str):
            return False
        if text:
            self.texts.append(Text(text, locator))
        return True

    def think(self, text: Any, locator: str) -> bool:
        """Add a thought. False: it is no text."""
        if not isinstance(text, str):
            return False
        if text:
            self.thoughts.append(Text(text, locator))
        return True

    def call(self, name: Any, arguments: Any, call_id: Any, part: Any, locator: str) -> None:
        """Add a call; one without a name is set aside."""
        if isinstance(name, str) and name:
            self.calls.append(Call(name, arguments, text_or_none(call_id), locator))
        else:
            self.lose(bad_part(locator, "tool call without a name", "nameless_call", part))

    def lose(self, part: Reject) -> None:
        """Set a call aside that cannot be kept."""
        self.rejects.append(part)
        self.lost_call = True

    def puzzle(self, part: Any, locator: str) -> None:
        """Note a part that is not understood."""
        self.unknown.append(Unknown(locator, part))

    @property
    def is_empty(self) -> bool:
        """Nothing in it was understood."""
        return not (self.texts or self.thoughts or self.calls or self.results or self.rejects)


def add_pieces(builder: EpisodeBuilder, role: str, pieces: Pieces, where: str, **more: Any) -> None:
    """Add what a message holds. Results before what others say, and after what the agent calls."""
    builder.rejects += pieces.rejects
    decides = role == "assistant"
    if decides:
        _add_turn(builder, pieces, where, more)
    for result in pieces.results:
        add_result(builder, result, more.get("created_at"))
    if role == "tool":
        for text, place in pieces.texts:  # words of a tool that answer no call
            pieces.puzzle({"text": text}, place)
    elif not decides and pieces.texts:
        builder.message(role, pieces.text, _place(pieces.texts, where), created_at=more.get("created_at"))
    builder.note(pieces.unknown, decides=decides or pieces.is_empty)


def _add_turn(builder: EpisodeBuilder, pieces: Pieces, where: str, more: dict[str, Any]) -> None:
    place = _place(pieces.texts, where)
    if pieces.lost_call and not pieces.calls:
        # It decided something that the log no longer tells; a `respond` step would be an invention.
        builder.message("assistant", pieces.text, place, thought=pieces.thought, **more)
    elif pieces.calls or pieces.texts:
        builder.turn(pieces.text, pieces.calls, place, thought=pieces.thought, **more)
    elif pieces.thoughts:
        builder.message("assistant", None, _place(pieces.thoughts, where), thought=pieces.thought, **more)


def _place(texts: list[Text], where: str) -> str:
    return texts[0].locator if texts else where


def add_result(builder: EpisodeBuilder, result: Result, time: int | None) -> bool:
    """Add a tool's answer. False: no call takes it."""
    return builder.result(
        result.call_id,
        result.text,
        result.locator,
        failed=result.failed,
        status=result.status,
        created_at=time,
    )


def told_text(value: Any) -> str:
    """What a tool gave, as text: a text is itself, nothing is "", anything else its JSON."""
    return value if isinstance(value, str) else "" if value is None else canonical(value)


def leftover(pieces: Pieces, message: dict[str, Any], known: Container[str], where: str) -> None:
    """Note the keys of a message that no reader of its SDK knows and that hold words, a list or an object."""
    for key, value in unsaid(message, known).items():
        pieces.puzzle({key: value}, at(where, f"/{key}"))


def parsed(value: Any, where: str) -> tuple[Any, str]:
    """A value that may be JSON text, and where it stands; a text that is no JSON stays a text."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return loads(value), f"{where}#"
        except NotJson:
            pass
    return value, where
