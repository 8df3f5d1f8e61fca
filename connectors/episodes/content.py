"""Message content as the APIs log it: text, null, or a list of parts and blocks (text, thinking, calls, results, images).

A part that is known to be no text leaves a visible mark (`[image]`), so that an answer made of one is not taken for none. A
part that is not understood is kept apart (`Parts.unknown`): the message cannot be read without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from logforge.connectors.episodes.arguments import Absent
from logforge.connectors.episodes.builder import Call
from logforge.connectors.episodes.words import Unknown, part_text, text_of, unsaid
from logforge.connectors.records import canonical, described, excerpt
from logforge.schemas import Reject

CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""Block types that hold a tool call."""


_BLOCK_KEYS = frozenset(
    {"type", "id", "name", "input", "tool_use_id", "content", "is_error", "thinking", "signature", "data"}
    | {"cache_control", "caller", "server_name"}
)
"""Keys of the API's thoughts, calls and results."""


_RESULT = frozenset({"type", "id", "tool_use_id", "is_error", "cache_control", "content", "name", "caller"})
"""The keys of a result block."""


class Text(NamedTuple):
    """A text and where it stands."""

    text: str
    locator: str


class Answer(NamedTuple):
    """A tool result block. `failed` is the log's own flag; the API's default for an absent one is false."""

    call_id: str | None
    text: str | None
    failed: bool
    locator: str


@dataclass
class Speech:
    """What a message says and thinks, in order."""

    texts: list[Text] = field(default_factory=list)
    thoughts: list[Text] = field(default_factory=list)

    @property
    def text(self) -> str | None:
        """The texts, joined by line breaks; None when there is none."""
        return "\n".join(text for text, _ in self.texts) if self.texts else None

    @property
    def thought(self) -> str | None:
        """The thinking, joined by line breaks; None when there is none."""
        return "\n".join(text for text, _ in self.thoughts) if self.thoughts else None


@dataclass
class Parts(Speech):
    """What the content of one message holds, by kind and in order."""

    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    """What is not understood, by its locator: EpisodeBuilder.note takes it."""

    @property
    def decides(self) -> bool:
        """True when nothing else is left of a message that holds what is not understood: it may have been a decision's answer."""
        return not (self.texts or self.answers)

    def merge(self, later: Parts) -> None:
        """Add a later piece of the same message: a text that grew replaces its beginning, what is new is appended."""
        self.texts = _grown(self.texts, later.texts)
        self.thoughts = _grown(self.thoughts, later.thoughts)
        for call in later.calls:
            known = [
                i
                for i, old in enumerate(self.calls)
                if call.call_id is not None and old.call_id == call.call_id
            ]
            if known:
                self.calls[known[0]] = call
            else:
                self.calls.append(call)
        known_answers = {answer.call_id for answer in self.answers}
        self.answers += [a for a in later.answers if a.call_id is None or a.call_id not in known_answers]
        self.rejects += later.rejects
        self.unknown += later.unknown


def _grown(old: list[Text], new: list[Text]) -> list[Text]:
    result = list(old)
    for text in new:
        shorter = next((i for i, o in enumerate(old) if text.text.startswith(o.text)), None)
        if shorter is not None:
            result[shorter] = text
        elif not any(o.text.startswith(text.text) for o in old):
            result.append(text)
    return result


def read_content(content: Any, where: str) -> Parts:
    """Sort a message's content by kind. `where` is the locator of the content itself."""
    parts = Parts()
    if isinstance(content, str):
        if content:
            parts.texts.append(Text(content, where))
    elif isinstance(content, list):
        for index, block in enumerate(content):
            _read_block(parts, block, f"{where}/{index}")
    elif isinstance(content, dict):
        parts.unknown.append(Unknown(where, content))
    elif content is not None:
        parts.rejects.append(
            bad_part(where, "content is neither text nor a list of parts", "bad_content", content)
        )
    return parts


def _read_block(parts: Parts, block: Any, where: str) -> None:
    if isinstance(block, str):
        if block:
            parts.texts.append(Text(block, where))
        return
    if not isinstance(block, dict):
        parts.rejects.append(bad_part(where, "content block is no object", "bad_block", block))
        return
    kind = block.get("type")
    if kind in ("thinking", "redacted_thinking"):
        _read_thought(parts, block, where)
    elif isinstance(kind, str) and kind in CALL_BLOCKS:
        _read_call(parts, block, where)
    elif isinstance(kind, str) and kind.endswith("tool_result"):
        call_id, failed = text_or_none(block.get("tool_use_id")), block.get("is_error") is True
        if "content" not in block and (found := unsaid(block, _RESULT)):
            parts.unknown.append(Unknown(where, found))
        parts.answers.append(Answer(call_id, _answer_text(block), failed, where))
    elif (text := part_text(block)) is None:
        parts.unknown.append(Unknown(where, block))
    elif text:
        parts.texts.append(Text(text, where))


def _read_thought(parts: Parts, block: dict[str, Any], where: str) -> None:
    thought = block.get("thinking")
    if isinstance(thought, str):
        parts.thoughts += [Text(thought, where)] if thought else []
    elif _other(block):
        parts.rejects.append(bad_part(where, "thinking without a text", "bad_block", block))
    else:
        parts.thoughts.append(Text(f"[{block['type']}]", where))


def _answer_text(block: dict[str, Any]) -> str | None:
    """What a tool said; the whole block as JSON where it says it under a key that is not known."""
    return canonical(block) if "content" not in block and _other(block) else text_of(block.get("content"))


def _other(block: dict[str, Any]) -> bool:
    """True when a block has more than a known one of its kind has."""
    return any(value not in (None, "", [], {}) for key, value in block.items() if key not in _BLOCK_KEYS)


def _read_call(parts: Parts, block: dict[str, Any], where: str) -> None:
    name = block.get("name")
    if isinstance(name, str) and name:
        given = Absent() if "input" not in block and _other(block) else block.get("input")
        parts.calls.append(Call(name, given, text_or_none(block.get("id")), where))
    else:
        parts.rejects.append(bad_part(where, "tool call without a name", "nameless_call", block))


def bad_record(where: str, reason: str, rule: str, found: Any) -> Reject:
    """A record that is set aside."""
    return Reject(locator=where, reason=reason, rule=rule, detail=described(found), excerpt=excerpt(found))


def bad_part(where: str, reason: str, rule: str, found: Any) -> Reject:
    """A piece of a kept record that is set aside."""
    return Reject(
        level="part", locator=where, reason=reason, rule=rule, detail=described(found), excerpt=excerpt(found)
    )


def object_or_empty(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text_or_none(value: Any) -> str | None:
    """A scalar as text; None for null, "", and anything that is no scalar."""
    if value is None or isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def first_text(row: dict[str, Any], *keys: str) -> str | None:
    """The first of these keys that holds a scalar, as text."""
    return next((text for key in keys if (text := text_or_none(row.get(key))) is not None), None)


def place_of(row: dict[str, Any], key: str, where: str) -> str:
    """Where the value of a key stands; the object's own place when it lacks the key."""
    return f"{where}/{key}" if key in row else where


def count_or_none(value: Any) -> int | None:
    """A count, when it is one and fits the store's 32 bits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def cost_or_none(value: Any) -> float | None:
    """What something cost in US dollars, as a number or text of one; None when it is none or below 0."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and 0 <= value < 1e12 else None


_LAST_MILLIS = 1e15
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(value: Any) -> int | None:
    """An ISO 8601 text or Unix seconds as microseconds since 1970 UTC; None when it is neither. No zone means UTC."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (datetime.fromtimestamp(value, UTC) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError, OSError):
        pass
    return None


def from_millis(value: Any) -> int | None:
    """Unix milliseconds, or an ISO 8601 text, as microseconds since 1970 UTC; None when it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return micros(value / 1000) if abs(value) < _LAST_MILLIS else None
    return micros(value)
