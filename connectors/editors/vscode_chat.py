"""Chat sessions of VS Code: `chatSessions/*.json`, and `*.jsonl` where newer versions write down what changed.

A record is a session; of a journal, one of its lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.editors.vscode_journal import State
from logforge.connectors.editors.vscode_parts import Answer
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    bad_record,
    close,
    first_text,
    first_user_text,
    from_millis,
    native_or_content,
    object_or_empty,
    text_or_none,
)
from logforge.connectors.records import Head, Source, canonical
from logforge.schemas import Ending, Episode, Reading, Reject

_OWN = {"sessionId", "requests"}
_BESIDE = {"responderUsername", "requesterUsername", "creationDate", "initialLocation"}
_TOLD = ("version", "creationDate", "lastMessageDate", "customTitle", "responderUsername", "initialLocation")
_STATES = {
    0: "the answer is not complete",
    2: "the user stopped it",
    3: "the answer failed",
    4: "it waits for the user",
}


class VSCodeChat:
    """Chat sessions of VS Code."""

    name = "vscode_chat"
    version = 1
    record = "one session; of a journal, one line"
    fills = ("thoughts", "times")

    def sniff(self, head: Head) -> float:
        """A session with `requests`, or a journal whose first line holds one."""
        if head.container != "object":
            return 0.0
        if {"kind", "v"} <= head.top <= {"kind", "v", "k", "i"}:
            inner = head.keys.get("v", set())
            return 0.95 if inner >= _OWN and inner & _BESIDE else 0.0
        return 0.95 if head.top >= _OWN and head.top & _BESIDE else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        state: State | None = None
        for locator, row in source.records():
            if isinstance(row, Reject):
                yield row
                if state is not None:
                    state.cut = True
                continue
            whole = _whole(row, locator)
            if whole is not None and (state is None or not _is_newer(state, whole)):
                yield from _session(state)
                state = whole
            elif whole is not None and state is not None:
                whole.records += state.records
                state = whole
            elif state is None or not isinstance(row, dict) or "kind" not in row:
                yield bad_record(locator, "no session, and no change of one", "not_a_conversation", row)
            elif state.ended or not state.apply(row, locator):
                yield bad_record(
                    locator, "a change that needs a line which is lost", "not_a_conversation", row
                )
                state.cut = state.ended = True
            else:
                state.records += 1
        yield from _session(state)


def _whole(row: Any, locator: str) -> State | None:
    """A session that a record holds as a whole."""
    held = object_or_empty(row)
    if isinstance(held.get("requests"), list):
        return State(held, locator).start("")
    inner = object_or_empty(held.get("v"))
    if (
        held.get("kind") == 0
        and not isinstance(held["kind"], bool)
        and isinstance(inner.get("requests"), list)
    ):
        return State(inner, locator).start("/v")
    return None


def _is_newer(state: State, whole: State) -> bool:
    """The same session, written down anew."""
    own = state.value.get("sessionId")
    return isinstance(own, str) and own == whole.value.get("sessionId")


def _session(state: State | None) -> Iterator[Reading]:
    if state is None:
        return
    try:
        run = _Run(state)
        yield from list(close(run.builder, run.episode()))
    except RecursionError:
        yield Reject(
            locator=state.locator, reason="nested too deep", rule="nested_too_deep", records=state.records
        )


class _Run:
    """A session as an episode."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.builder = EpisodeBuilder()
        self.model: str | None = None
        self.ending: tuple[Ending, str] | None = None
        self.votes: dict[str, Any] = {}
        listed = state.value.get("requests")
        for index, request in enumerate(listed if isinstance(listed, list) else ()):
            self._request(request, index)

    def episode(self) -> Episode:
        """The session."""
        value, native = self.state.value, text_or_none(self.state.value.get("sessionId"))
        told = {key: value[key] for key in _TOLD if value.get(key) is not None}
        ending, reason = self._ending()
        return self.builder.finish(
            id=native_or_content(VSCodeChat.name, native, value),
            format=VSCodeChat.name,
            locator=self.state.locator,
            records=self.state.records,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            session_id=native,
            task=first_user_text(self.builder),
            model=self.model,
            policy_id=self.model,
            metadata=canonical(told | ({"votes": self.votes} if self.votes else {})),
        )

    def _request(self, request: Any, index: int) -> None:
        where = self.state.where("requests", index)
        if not isinstance(request, dict):
            self.builder.unknown(where, request, decides=True)
            return
        if request.get("shouldBeRemovedOnSend") or request.get("isHidden") is True:
            self.builder.rejects.append(
                bad_part(where, "a request that was taken back", "other_branch", request)
            )
            return
        self.ending = None
        self._said(request, index)
        model, before = text_or_none(request.get("modelId")), len(self.builder.messages)
        Answer(self.builder, self.state, ("requests", index), {"model": model}).add(request)
        if len(self.builder.messages) > before:
            self.model = self.model or model
        self.ending = _stopped(request)
        if request.get("vote") is not None:
            self.votes[first_text(request, "requestId") or str(index)] = request["vote"]

    def _said(self, request: dict[str, Any], index: int) -> None:
        """What the user wrote; parts repeat it, piece by piece."""
        message, path = request.get("message"), ("requests", index, "message")
        text = message.get("text") if isinstance(message, dict) else message
        if not isinstance(text, str):
            self.builder.unknown(self.state.where(*path), message, decides=False)
            return
        place = self.state.where(*path, "text") if isinstance(message, dict) else self.state.where(*path)
        role = "system" if request.get("isSystemInitiated") is True else "user"
        self.builder.message(role, text, place, created_at=from_millis(request.get("timestamp")))

    def _ending(self) -> tuple[Ending, str]:
        if self.state.cut:
            return "truncated", "the log is damaged"
        if self.ending is not None:
            return self.ending
        if self.builder.ends_unanswered:
            return "truncated", "last call is unanswered"
        if self.builder.messages and self.builder.messages[-1].role == "assistant":
            return "terminal", "end of conversation"
        return "truncated", "the log stops before the agent's answer"


def _stopped(request: dict[str, Any]) -> tuple[Ending, str] | None:
    """Why the answer to a request is not whole."""
    result, state = object_or_empty(request.get("result")), object_or_empty(request.get("modelState"))
    error, number = object_or_empty(result.get("errorDetails")), state.get("value")
    if request.get("isCanceled") is True:
        return "truncated", _STATES[2]
    if error:
        return "truncated", f"error: {(first_text(error, 'code', 'message') or 'no reason')[:80]}"
    if object_or_empty(result.get("metadata")).get("maxToolCallsExceeded") is True:
        return "truncated", "the limit of turns"
    if isinstance(number, int) and not isinstance(number, bool) and number in _STATES:
        return "truncated", _STATES[number]
    return None
