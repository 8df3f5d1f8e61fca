"""The messages of an Inspect sample, read into an episode with what the sample's events know of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import calls_of, tool_names
from logforge.connectors.episodes import (
    Answer,
    Call,
    EpisodeBuilder,
    Parts,
    Text,
    Unknown,
    bad_part,
    count_or_none,
    first_number,
    micros,
    object_or_empty,
    part_text,
    text_of,
    text_or_none,
    unread_calls,
)
from logforge.connectors.records import at
from logforge.schemas import ResultStatus

_SCHEMES = ("attachment://", "tc://")
"""How a text says that it lies elsewhere; `tc` in logs of 2024."""
_STATUS: dict[str, ResultStatus] = {"timeout": "timeout", "approval": "refused"}
"""What the type of a tool's error says of the result; every other type is an error."""


_ABOUT = frozenset({"id", "role", "source", "content", "model", "tool_calls", "metadata"})
"""The keys of an assistant's message that are read, and what is known of it."""


class Attachments:
    """The texts that a sample keeps apart, and where they stand."""

    def __init__(self, sample: dict[str, Any], locator: str) -> None:
        old = object_or_empty(object_or_empty(sample.get("transcript")).get("content"))
        self._texts = object_or_empty(sample.get("attachments")) or old
        self._where = at(locator, "/transcript/content" if self._texts is old else "/attachments")

    def _key(self, text: Any) -> str | None:
        if not isinstance(text, str):
            return None
        key = next((text[len(scheme) :] for scheme in _SCHEMES if text.startswith(scheme)), None)
        return key if key is not None and isinstance(self._texts.get(key), str) else None

    def put_back(self, value: Any) -> Any:
        """The value with every text that only refers to an attachment replaced by it."""
        if isinstance(value, list):
            return [self.put_back(item) for item in value]
        if isinstance(value, dict):
            return {key: self.put_back(item) for key, item in value.items()}
        key = self._key(value)
        return value if key is None else self._texts[key]

    def place(self, content: Any, where: str) -> str:
        """The locator of a content whose first text lies among the attachments; else `where`."""
        parts = content if isinstance(content, list) else [content]
        first = next((object_or_empty(part).get("text", part) for part in parts if part), None)
        key = self._key(first)
        return where if key is None else f"{self._where}/{key}"


class Events:
    """What a sample's events know: of each generated message its tokens and time, of each call how long it took."""

    def __init__(self, sample: dict[str, Any]) -> None:
        self._made: dict[str, dict[str, Any]] = {}
        self._ran: dict[str, float] = {}
        said = {
            text_or_none(object_or_empty(message).get("id"))
            for message in listed(sample.get("messages"))
            if message
        }
        for event in listed(sample.get("events")):
            kind = event.get("event")
            if kind == "model" and (made := made_by(event)) in said and made is not None:
                self._made[made] = event
            elif kind == "tool" and (call := text_or_none(event.get("id"))) is not None:
                seconds = first_number(event, "working_time")
                self._ran |= {} if seconds is None or seconds < 0 else {call: seconds}
        self._output = object_or_empty(sample.get("output"))
        self._last = next((m for m in reversed([*listed(sample.get("messages"))]) if _is_turn(m)), None)

    def offered(self, message: dict[str, Any]) -> list[str] | None:
        """Names of the tools offered when a message was generated; None when no event tells."""
        made_by = message.get("id")
        event = self._made.get(made_by) if isinstance(made_by, str) else None
        return None if event is None else tool_names(event.get("tools"))

    def of_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Further fields of a generated message, as the log has it."""
        made_by = message.get("id")
        event = self._made.get(made_by) if isinstance(made_by, str) else None
        if event is not None:
            return {"created_at": micros(event.get("completed")), **_tokens(event.get("output"))}
        # In old logs messages have no ids. The sample's output is its last answer, when that is what it says.
        said = first_choice(self._output).get("content")
        return _tokens(self._output) if message is self._last and message.get("content") == said else {}

    def latency(self, call_id: str | None) -> float | None:
        """How long a tool worked on a call."""
        return None if call_id is None else self._ran.get(call_id)


def listed(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a list; nothing when it is none."""
    yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _is_turn(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant"


def made_by(event: dict[str, Any]) -> str | None:
    """The id of the message that a model event generated."""
    return text_or_none(first_choice(object_or_empty(event.get("output"))).get("id"))


def first_choice(output: dict[str, Any]) -> dict[str, Any]:
    """The message that a model's output gives; empty when it gives none."""
    return object_or_empty(_choice(output).get("message"))


def stop_reason(output: dict[str, Any]) -> str:
    """Why the model stopped; "" when it does not say."""
    return text_or_none(_choice(output).get("stop_reason")) or ""


def _choice(output: dict[str, Any]) -> dict[str, Any]:
    choices = output.get("choices")
    return object_or_empty(choices[0]) if isinstance(choices, list) and choices else {}


def _tokens(output: Any) -> dict[str, Any]:
    """What went in is the total without what came out: providers differ in whether `input_tokens` counts the cache."""
    usage = object_or_empty(object_or_empty(output).get("usage"))
    total, made = count_or_none(usage.get("total_tokens")), count_or_none(usage.get("output_tokens"))
    if total is None or made is None or total < made:
        return {"tokens_out": made}
    return {"tokens_in": total - made, "tokens_out": made}


class Talk:
    """Takes a sample's messages in order. `others` are ids of messages that agents inside the sample wrote."""

    def __init__(self, sample: dict[str, Any], locator: str, others: frozenset[str] = frozenset()) -> None:
        self.builder = EpisodeBuilder()
        self.attachments = Attachments(sample, locator)
        self.events = Events(sample)
        self.parse_errors: dict[str, str] = {}
        self._by_provider: set[str] = set()
        """Tools that the model's provider ran itself so far: on offer since, though the lists may not name them."""
        self._others = others
        self._shown: set[str] = set()
        """Calls that others made."""

    def add(self, message: Any, where: str, *, own: bool = True) -> None:
        """Take one message. `own`: the agent at hand wrote it, if it is an assistant's."""
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "user", "assistant", "tool"):
            reason = "message whose role is none of system, user, assistant, tool"
            self.builder.rejects.append(bad_part(where, reason, "unknown_role", message))
            return
        place = self.attachments.place(message.get("content"), where)
        more = self.events.of_message(message) if role == "assistant" else {}
        message = self.attachments.put_back(message)
        if role == "assistant" and (not own or text_or_none(message.get("id")) in self._others):
            self._show(message, place)
        elif role == "tool" and text_or_none(message.get("tool_call_id")) in self._shown:
            self.builder.message("user", message.get("content"), place)
        elif role == "assistant":
            self._turn(message, where, place, more)
        elif role == "tool":
            self._result(message, where, place)
        else:
            self.builder.message(role, message.get("content"), place)

    def _show(self, message: dict[str, Any], place: str) -> None:
        """What another agent said is read, not decided; so is what its calls gave."""
        self._shown |= {
            call_id for call in listed(message.get("tool_calls")) if (call_id := text_or_none(call.get("id")))
        }
        if text := read_parts(message.get("content"), place).text:
            self.builder.message("assistant", text, place)

    def _turn(self, message: dict[str, Any], where: str, place: str, known: dict[str, Any]) -> None:
        content = message.get("content")
        parts = read_parts(content, at(where, "/content"))
        if (offered := self.events.offered(message)) is not None:
            self.builder.offer(sorted({*offered, *self._by_provider}))
        calls = parts.calls + calls_of(message, where, self.builder.rejects)
        self.builder.rejects += parts.rejects
        self.builder.note(parts.unknown, decides=True)
        if lost := unread_calls(message, _ABOUT, [call.call_id for call in calls if call.call_id]):
            self.builder.unknown(place, lost, decides=True)
        self._by_provider |= {call.name for call in parts.calls}
        more = {"thought": parts.thought, "model": text_or_none(message.get("model")), **known}
        text = (content if isinstance(content, str) else parts.text) or None  # content is never left out
        if message.get("tool_calls") and not calls:
            self.builder.message("assistant", text, place, **more)
        else:
            self.builder.turn(text, calls, place, **more)
        for call in listed(message.get("tool_calls")):
            if error := text_or_none(call.get("parse_error")):
                self.parse_errors[str(call.get("id"))] = error
        for answer in parts.answers:
            self.builder.result(answer.call_id, answer.text, answer.locator, failed=answer.failed)

    def _result(self, message: dict[str, Any], where: str, place: str) -> None:
        """A failed tool often leaves no content; the model is then shown the error's message."""
        error, call_id = object_or_empty(message.get("error")), text_or_none(message.get("tool_call_id"))
        told = text_or_none(error.get("message")) or text_or_none(message.get("tool_error"))
        text = text_of(message.get("content"))
        if not text and told:
            text, place = told, f"{where}/error/message" if error else f"{where}/tool_error"
        self.builder.result(
            call_id,
            text,
            place,
            failed=True if error or told else None,
            status=_STATUS.get(str(error.get("type"))),
            latency_s=self.events.latency(call_id),
        )


def read_parts(content: Any, where: str) -> Parts:
    """Sort an assistant's content by kind: texts, reasoning, and the calls that the model's provider ran itself."""
    parts = Parts()
    if isinstance(content, str):
        parts.texts += [Text(content, where)] if content else []
    elif isinstance(content, list):
        for index, block in enumerate(content):
            _read_part(parts, block, f"{where}/{index}")
    elif content is not None:
        parts.rejects.append(
            bad_part(where, "content is neither text nor a list of parts", "bad_content", content)
        )
    return parts


def _read_part(parts: Parts, block: Any, where: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "reasoning":
        thought = block.get("summary" if block.get("redacted") is True else "reasoning")
        parts.thoughts.append(Text(text_or_none(thought) or "[reasoning]", where))
    elif kind == "tool_use" and (name := text_or_none(block.get("name"))):
        call_id, error = text_or_none(block.get("id")), text_or_none(block.get("error"))
        parts.calls.append(Call(name, block.get("arguments"), call_id, where, offered=True))
        if error or "result" in block:
            place = f"{where}/error" if error else f"{where}/result"
            parts.answers.append(Answer(call_id, error or text_of(block["result"]), bool(error), place))
    elif isinstance(block, dict | str):
        text = part_text(block)
        if text is None:
            parts.unknown.append(Unknown(where, block))
        parts.texts += [Text(text, where)] if text else []
    else:
        parts.rejects.append(bad_part(where, "content block is no object", "bad_block", block))
