"""opencode's messages and their parts: what the user said, and the agent's steps with their calls and results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Answered,
    Call,
    EpisodeBuilder,
    Text,
    Transcript,
    Unknown,
    bad_part,
    cost_or_none,
    count_or_none,
    first_text,
    from_millis,
    limit_met,
    object_or_empty,
    text_or_none,
)
from logforge.connectors.records import canonical
from logforge.schemas import Ending, ResultStatus

_OPEN = frozenset({"pending", "running"})
_FRAMES = frozenset({"snapshot", "patch", "agent", "retry", "step-start"})
"""Parts that hold no words and no calls."""
_REFUSED = ("The user rejected permission", "The user dismissed", "user rejected")
_ERRORS = {
    "MessageAbortedError": "the user stopped it",
    "MessageOutputLengthError": "the model's output limit",
}


class Part(NamedTuple):
    """A part of a message, and the locator of its object."""

    value: dict[str, Any]
    where: str


class Message(NamedTuple):
    """A message, the locator of its object, and its parts in order."""

    info: dict[str, Any]
    where: str
    parts: list[Part]


@dataclass
class Talk:
    """Takes a session's messages in order."""

    transcript: Transcript = field(default_factory=Transcript)
    costs: list[float] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    """The agent's latest message."""
    _waiting: list[Answered] = field(default_factory=list)
    """Results of the step's calls; they follow the last of these."""

    def add(self, message: Message) -> None:
        """Take one message."""
        role = message.info.get("role")
        if role == "user":
            self._settle()
            self._user(message)
        elif role == "assistant":
            self._agent(message)
        else:
            self.transcript.unknown.append((Unknown(message.where, message.info), bool(message.parts)))

    def end(self) -> Transcript:
        """Nothing more follows."""
        self._settle()
        return self.transcript

    def _user(self, message: Message) -> None:
        """Words of the user; those that opencode wrote itself (what a mentioned file holds, reminders) are the system's."""
        time = _created(message.info)
        for part in message.parts:
            kind, text = text_or_none(part.value.get("type")), part.value.get("text")
            if kind == "text" and isinstance(text, str):
                role = "system" if part.value.get("synthetic") is True else "user"
                self.transcript.say(role, text, f"{part.where}/text", time)
            elif kind == "file":
                self.transcript.say("user", "[file]", part.where, time)
            elif kind == "subtask":
                self.transcript.say(
                    "user", text_or_none(part.value.get("prompt")), f"{part.where}/prompt", time
                )
            elif kind not in _FRAMES and kind not in ("compaction", "step-finish"):
                self._unknown(part, decides=len(message.parts) == 1)

    def _agent(self, message: Message) -> None:
        info, script = message.info, self.transcript
        self.last = info
        provider = object_or_empty(info.get("model"))
        script.model = first_text(info, "modelID") or first_text(provider, "modelID") or script.model
        self._step()
        for part in message.parts:
            if info.get("summary") is True and part.value.get("type") == "text":
                script.say(
                    "system", text_or_none(part.value.get("text")), f"{part.where}/text", _created(info)
                )
            else:
                self._part(part, _created(info))
        if (cost := cost_or_none(info.get("cost"))) is not None:
            self.costs.append(cost)
        if not any(part.value.get("type") == "step-finish" for part in message.parts):
            self._count(object_or_empty(info.get("tokens")))
        self._step()

    def _part(self, part: Part, created: int | None) -> None:
        kind, text = text_or_none(part.value.get("type")), part.value.get("text")
        time = _start(part.value.get("time")) or created
        if kind in ("text", "reasoning") and isinstance(text, str):
            if self._waiting:
                self._settle()
            add = self.transcript.text if kind == "text" else self.transcript.thought
            if text:
                add([Text(text, f"{part.where}/text")], part.where, time)
        elif kind == "tool":
            self._tool(part, time)
        elif kind == "step-finish":
            self._count(object_or_empty(part.value.get("tokens")))
            self._step()
        elif kind == "step-start":
            self._step()
        elif kind not in _FRAMES and kind not in ("file", "compaction"):
            self._unknown(part, decides=True)

    def _tool(self, part: Part, time: int | None) -> None:
        name, state = text_or_none(part.value.get("tool")), object_or_empty(part.value.get("state"))
        if name is None:
            self.transcript.rejects.append(
                bad_part(part.where, "tool call without a name", "nameless_call", part.value)
            )
            self.transcript.lose(part.where, time)
            return
        call_id = text_or_none(part.value.get("callID"))
        given = state.get("input", state.get("raw"))
        self.transcript.call(
            Call(name, given, call_id, part.where), part.where, _start(state.get("time")) or time
        )
        if (answer := _answer(state, call_id, part.where)) is not None:
            self._waiting.append(answer)

    def _unknown(self, part: Part, *, decides: bool) -> None:
        self.transcript.unknown.append((Unknown(part.where, part.value), decides))

    def _count(self, tokens: dict[str, Any]) -> None:
        """A step's tokens; what was read from a cache was read too."""
        turns, cache = self.transcript.turns, object_or_empty(tokens.get("cache"))
        asked = [
            count_or_none(value) for value in (tokens.get("input"), cache.get("read"), cache.get("write"))
        ]
        said = [count_or_none(tokens.get(key)) for key in ("output", "reasoning")]
        if turns and any(asked) and turns[-1].tokens_in is None:
            turns[-1].tokens_in = count_or_none(sum(count or 0 for count in asked))
            turns[-1].tokens_out = count_or_none(sum(count or 0 for count in said))

    def _step(self) -> None:
        """A step ends: what follows is another response."""
        self._settle()
        self.transcript.end_turn()

    def _settle(self) -> None:
        for answer in self._waiting:
            self.transcript.answer(answer)
        self._waiting = []


def _answer(state: dict[str, Any], call_id: str | None, where: str) -> Answered | None:
    """The result in a call's state; None while it is pending or running."""
    status, time = text_or_none(state.get("status")), object_or_empty(state.get("time"))
    begin, end = from_millis(time.get("start")), from_millis(time.get("end"))
    latency = (end - begin) / 1e6 if begin is not None and end is not None and end >= begin else None
    told = "error" if status == "error" or state.get("output") is None else "output"
    said = state.get(told)
    if status in _OPEN or (said is None and status not in ("completed", "error")):
        return None
    text = said if isinstance(said, str) else "" if said is None else canonical(said)
    place = f"{where}/state/{told}" if said is not None else where
    code = object_or_empty(state.get("metadata")).get("exit")
    failed = True if status == "error" else False if status == "completed" else None
    if status == "completed" and isinstance(code, int) and not isinstance(code, bool):
        failed = code != 0
    refused: ResultStatus | None = None
    if status == "error" and any(mark in text for mark in _REFUSED):
        failed, refused = None, "refused"
    return Answered(call_id, text, place, end, failed, refused, latency)


def _created(info: dict[str, Any]) -> int | None:
    return from_millis(object_or_empty(info.get("time")).get("created"))


def _start(time: Any) -> int | None:
    return from_millis(object_or_empty(time).get("start"))


def ending(builder: EpisodeBuilder, last: dict[str, Any]) -> tuple[Ending, str]:
    """What the agent's latest message says of its end; else the agent must have had the last word."""
    error = last.get("error")
    if isinstance(error, dict):
        name = text_or_none(error.get("name")) or "unknown"
        return "truncated", _ERRORS.get(name) or limit_met(name) or f"error: {name[:60]}"
    if why := limit_met(last.get("finish")):
        return "truncated", why
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"


def in_order(parts: Iterable[Part]) -> list[Part]:
    """Parts by their ids, which grow with time."""
    return sorted(parts, key=lambda part: text_or_none(part.value.get("id")) or "")
