"""Cline's and Roo Code's `api_conversation_history.json`: a bare list of Anthropic messages, one list for each task.

Tools are called by blocks, or (older versions, other models) by tags in the text, with results behind headers in the next
message. A record is a message. What the program writes for itself (`<environment_details>`, summaries, reminders) is a
message of the system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.editors.tag_calls import headed, tag_call
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Parts,
    Text,
    bad_part,
    close,
    content_id,
    cost_or_none,
    count_or_none,
    first_user_text,
    from_millis,
    object_or_empty,
    part_text,
    read_content,
    read_rows,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.schemas import Ending, Episode, Reading, Reject, ResultStatus, Skip

_MARKS = re.compile(rb"<environment_details>|\[[a-z_]{4,30}(?: for [^\n]{1,400}?)?\] Result:")
_OWN_KEYS = frozenset({"ts", "modelInfo", "metrics", "condenseParent", "condenseId", "isSummary"})
_RESULT_KEYS = frozenset({"type", "tool_use_id", "is_error", "content", "cache_control"})
_MACHINE = (
    "<environment_details>",
    "[ERROR] You did not use a tool",
    "# Reminder: Instructions for Tool Use",
)
_PERSON = ("<feedback>", "<user_message>", "The user provided the following feedback")
_FAILED = (
    "The tool execution failed with the following error",
    "[ERROR]",
    "Command execution was not successful",
)
_DENIED = ("The user denied this operation", "[The user denied", "Skipping tool")
_EXIT_CODE = re.compile(r"\ACommand execut[^\n]{0,500}?(?:\n[^\n]{0,200}?)?Exit code: (-?\d{1,9})\b")
_INTERRUPTED = re.compile(r"\[Response interrupted by [^\]]*\]\s*\Z")
_DONE = "attempt_completion"


class Cline:
    """Tasks of Cline and Roo Code."""

    name = "cline"
    version = 1
    record = "one message of the list"
    fills = ("thoughts", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """A bare list of messages with the program's own keys, or its marks in the texts."""
        if head.container != "array" or not {"role", "content"} <= head.top or "messages" in head.top:
            return 0.0
        return 0.9 if _OWN_KEYS & head.top or _MARKS.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """The messages of the list are one episode, which comes at the end."""
        listed: list[tuple[dict[str, Any], str]] = []
        cut = False

        def row(value: Any, locator: str) -> Iterator[Reading]:
            if isinstance(value, dict) and "role" in value:
                listed.append((value, locator))
            elif isinstance(value, dict) and value.get("type") == "reasoning":
                yield Skip(reason="encrypted_reasoning")
            else:
                yield reject(locator, "no message", "", value)

        for reading in read_rows(source, row):
            cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
            yield reading
        if listed:
            run = _Run()
            for message, where in listed:
                run.add(message, where)
            yield from close(run.builder, self._episode(run, listed, cut))

    def _episode(self, run: _Run, listed: list[tuple[dict[str, Any], str]], cut: bool) -> Episode:
        ending, reason = run.ending()
        if cut:
            ending, reason = "truncated", "the log is cut off"
        return run.builder.finish(
            id=content_id(self.name, [message for message, _ in listed]),
            format=self.name,
            locator=listed[0][1],
            records=len(listed),
            ending=ending,
            ending_reason=reason,
            task=first_user_text(run.builder),
            model=run.model,
            policy_id=run.model,
        )


@dataclass
class _Run:
    """Takes a task's messages in order."""

    builder: EpisodeBuilder = field(default_factory=EpisodeBuilder)
    model: str | None = None
    _tagged: str | None = None
    """The tool that the last response called by tags."""
    _last: str = ""

    def add(self, message: dict[str, Any], where: str) -> None:
        """Take one message."""
        role = message.get("role")
        time = from_millis(message.get("ts"))
        if message.get("isSummary") is True or message.get("isTruncationMarker") is True:
            self.builder.message("system", text_of(message.get("content")), where, created_at=time)
        elif role == "assistant":
            self._response(message, where, time)
        elif role == "user":
            self._answers(message.get("content"), at(where, "/content"), where, time)
        elif role in ("system", "developer"):
            self.builder.message(role, message.get("content"), where, created_at=time)
        else:
            self.builder.unknown(where, message, decides=True)

    def _response(self, message: dict[str, Any], where: str, time: int | None) -> None:
        parts = _parts(message.get("content"), at(where, "/content"))
        self.builder.rejects += parts.rejects
        self.builder.note(parts.unknown, decides=True)
        if message.get("content") is None:
            self.builder.silent(message, _OWN_KEYS | {"role"}, where, decides=True)
        info = object_or_empty(message.get("modelInfo"))
        model = text_or_none(info.get("modelId"))
        self.model = self.model or model
        more = {"thought": parts.thought, "created_at": time, "model": model, **_usage(message)}
        text = parts.text
        self._last, self._tagged = text or "", None
        tagged = tag_call(text) if text and not parts.calls else None
        place = parts.texts[0].locator if parts.texts else where
        calls = parts.calls
        if tagged is not None and tagged.arguments is not None:
            self._tagged = tagged.name
            calls = [Call(tagged.name, tagged.arguments, None, _place_of(parts, tagged.name, where))]
        lost = tagged is not None and tagged.arguments is None
        if lost:
            reason = "a call whose end is missing in the text"
            self.builder.rejects.append(bad_part(place, reason, "lost_call", text))
        undecided = lost or (
            not calls and (not text or any(r.rule == "nameless_call" for r in parts.rejects))
        )
        if undecided:
            # It decided something that the log no longer tells, or nothing yet: a `respond` step would be an invention.
            self.builder.message("assistant", text, place, **more)
        else:
            self.builder.turn(text, calls, place, **more)

    def _answers(self, content: Any, pointer: str, where: str, time: int | None) -> None:
        """A message to the model: results, what the user wrote, and what the program adds."""
        told = _Told(self.builder, time)
        if content is None:
            self.builder.message("user", None, where, created_at=time)
            return
        blocks = content if isinstance(content, list) else [content]
        for index, block in enumerate(blocks):
            place = (
                f"{pointer}/{index}" if isinstance(content, list) else where if content is None else pointer
            )
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._result(block, place, time)
                continue
            text = part_text(block) if block is not None else ""
            if text is None:
                self.builder.unknown(place, block, decides=len(blocks) == 1)
                continue
            found = headed(text)
            if found is not None and found.name == self._tagged:
                self._tagged = None
                told.result(text, found.body, place)
            else:
                told.add(text, place)
        told.end()

    def _result(self, block: dict[str, Any], place: str, time: int | None) -> None:
        text = text_of(block.get("content"))
        if text is None:
            self.builder.silent(block, _RESULT_KEYS, place, decides=False)
        failed, status = _verdict(text or "")
        failed = True if block.get("is_error") is True else failed
        call_id = text_or_none(block.get("tool_use_id"))
        self.builder.result(call_id, text, place, failed=failed, status=status, created_at=time)

    def ending(self) -> tuple[Ending, str]:
        """A task ends with `attempt_completion`, unless the user goes on."""
        last = self.builder.messages[-1].role if self.builder.messages else ""
        if _INTERRUPTED.search(self._last):
            return "truncated", "the response was interrupted"
        if self.builder.last_action == _DONE and last in ("assistant", "tool", "system"):
            return "terminal", "the agent completed the task"
        if self.builder.ends_unanswered:
            return "truncated", "last call is unanswered"
        if last == "assistant":
            return "terminal", "end of conversation"
        return "truncated", "the log stops before the agent's answer"


@dataclass
class _Told:
    """Gathers the texts of one message: those of a tagged call's result, the user's, and each of the program's."""

    builder: EpisodeBuilder
    time: int | None
    _user: list[Text] = field(default_factory=list)
    _result: list[Text] = field(default_factory=list)
    _header: str | None = None
    """Where the header of the result stands that is being gathered."""
    _body: str = ""

    def result(self, text: str, body: str, place: str) -> None:
        """A result begins. A header that stands alone says nothing that the call does not."""
        self._header, self._body = place, body
        self._result = [Text(text, place)] if body.strip() else []

    def add(self, text: str, place: str) -> None:
        """A further text."""
        if text.startswith(_MACHINE):
            self.end()
            self.builder.message("system", text, place, created_at=self.time)
        elif self._header is not None and not text.startswith(_PERSON):
            self._result.append(Text(text, place))
            self._body = self._body.strip() or text
        elif text:
            self._user.append(Text(text, place))

    def end(self) -> None:
        """What was gathered becomes messages."""
        if self._header is not None:
            place = self._result[0].locator if self._result else self._header
            failed, status = _verdict(self._body)
            told = "\n".join(text for text, _ in self._result)
            self.builder.result(None, told, place, failed=failed, status=status, created_at=self.time)
            self._header, self._result = None, []
        if self._user:
            told, place = "\n".join(text for text, _ in self._user), self._user[0].locator
            self.builder.message("user", told, place, created_at=self.time)
            self._user = []


def _parts(content: Any, where: str) -> Parts:
    """An assistant's content. Roo keeps thoughts in blocks of type `reasoning`."""
    blocks = content if isinstance(content, list) else None
    if blocks is None:
        return read_content(content, where)
    thoughts = {
        index: text_or_none(block.get("text"))
        for index, block in enumerate(blocks)
        if isinstance(block, dict) and block.get("type") in ("reasoning", "thoughtSignature")
    }
    parts = read_content(["" if index in thoughts else block for index, block in enumerate(blocks)], where)
    parts.thoughts += [Text(text, f"{where}/{index}") for index, text in thoughts.items() if text]
    return parts


def _place_of(parts: Parts, name: str, where: str) -> str:
    """The block in which a call by tags begins."""
    return next((text.locator for text in parts.texts if f"<{name}>" in text.text), where)


def _verdict(text: str) -> tuple[bool | None, ResultStatus | None]:
    """What the program's own words say of a call: whether it failed, and whether the user refused it."""
    if text.lstrip().startswith(_DENIED):
        return None, "refused"
    if text.lstrip().startswith(_FAILED):
        return True, None
    code = _EXIT_CODE.match(text.lstrip())
    return (int(code.group(1)) != 0 if code else None), None


def _usage(message: dict[str, Any]) -> dict[str, Any]:
    metrics = object_or_empty(message.get("metrics"))
    tokens = object_or_empty(metrics.get("tokens"))
    return {
        "tokens_in": count_or_none(tokens.get("prompt")),
        "tokens_out": count_or_none(tokens.get("completion")),
        "cost_usd": cost_or_none(metrics.get("cost")),
    }
