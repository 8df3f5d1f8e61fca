"""Sessions of the Agent Development Kit (ADK): {id, events: [{author, content: {parts}}]}.

A record is the document: one session. Keys may be in snake or camel case. Agents that hand a session over to each other share one conversation: it is one episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logforge.connectors.chat import CallOrder, GoogleParts, Response, read_parts, tokens, value_of
from logforge.connectors.episodes import (
    bad_part,
    close,
    first_user_text,
    micros,
    native_or_content,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Reading


class AdkSession:
    """ADK's stored sessions."""

    name = "adk_session"
    version = 4
    record = "the document (or line): one session"
    fills = ("thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """A document whose `events` have an author and content of parts."""
        keys = head.keys.get("events", set())
        named = {"author", "invocation_id"} <= keys or {"author", "invocationId"} <= keys
        return 0.95 if head.container in ("object", "array") and "events" in head.top and named else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        events = row.get("events") if isinstance(row, dict) else None
        if not isinstance(events, list):
            yield reject(locator, "no list of events", "", row)
            return
        builder = CallOrder()
        for index, event in enumerate(events):
            add_event(builder, event, at(locator, f"/events/{index}"))
        kept = [event for event in events if isinstance(event, dict)]
        ending, reason = _ending(builder, row, kept[-1] if kept else {})
        native = text_or_none(row.get("id"))
        authors = sorted({name for event in kept if (name := _agent(event))})
        models = [model for event in kept if (model := text_or_none(value_of(event, "model_version")))]
        metadata = {k: v for k, v in row.items() if k not in ("events", "id")} | {"agents": authors}
        if partial := sum(event.get("partial") is True for event in kept):
            metadata["partial_events"] = partial
        episode = builder.finish(
            id=native_or_content(self.name, native, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            session_id=native,
            user_id=text_or_none(value_of(row, "user_id")),
            task=first_user_text(builder),
            model=models[0] if models else None,
            policy_id=models[0] if models else authors[0] if len(authors) == 1 else None,
            metadata=canonical(metadata),
        )
        yield from close(builder, episode)


def _agent(event: dict[str, Any]) -> str | None:
    author = text_or_none(event.get("author"))
    return None if author == "user" else author


_EVENT: Final = frozenset(
    {"content", "author", "id", "invocation_id", "invocationId", "timestamp", "actions", "branch", "partial"}
    | {"turn_complete", "turnComplete", "usage_metadata", "usageMetadata", "model_version", "modelVersion"}
    | {
        "error_code",
        "errorCode",
        "error_message",
        "errorMessage",
        "finish_reason",
        "finishReason",
        "interrupted",
    }
    | {"long_running_tool_ids", "longRunningToolIds", "grounding_metadata", "groundingMetadata", "app_name"}
    | {
        "custom_metadata",
        "customMetadata",
        "avg_logprobs",
        "avgLogprobs",
        "logprobs_result",
        "logprobsResult",
    }
    | {"cache_metadata", "cacheMetadata", "citation_metadata", "citationMetadata", "session_id", "sessionId"}
    | {
        "live_session_resumption_update",
        "liveSessionResumptionUpdate",
        "input_transcription",
        "inputTranscription",
    }
    | {"output_transcription", "outputTranscription", "user_id", "userId", "interaction_id", "interactionId"}
)
"""The keys of an event, in either spelling."""


def add_event(builder: CallOrder, event: Any, where: str) -> None:
    """An event of an agent is one response of its model; its function responses come in events of their own."""
    if not isinstance(event, dict):
        builder.rejects.append(bad_part(where, "event is no object", "bad_event", event))
        return
    if event.get("partial") is True:
        return  # a piece of a later event that repeats all of it
    parts = read_parts(event.get("content"), at(where, "/content"))
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=_agent(event) is not None or parts.decides)
    if value_of(event, "content") is None:
        builder.silent(event, _EVENT, where, decides=True)
    time = micros(event.get("timestamp"))
    add_responses(builder, parts.responses, time)
    if _agent(event) is None:
        if parts.texts:
            builder.message("user", parts.text, parts.texts[0].locator, created_at=time)
        return
    asked, said = tokens(value_of(event, "usage_metadata"))
    more = {"model": text_or_none(value_of(event, "model_version")), "tokens_in": asked, "tokens_out": said}
    add_turn(builder, parts, where, created_at=time, **more)


def add_turn(builder: CallOrder, parts: GoogleParts, where: str, **more: Any) -> None:
    """Add what an agent said, thought and called in one response."""
    more["thought"] = parts.thought
    if parts.texts or parts.calls:
        pointer = parts.texts[0].locator if parts.texts else where
        builder.turn(parts.text, parts.calls, pointer, **more)
    elif parts.thoughts:
        builder.message("assistant", None, parts.thoughts[0].locator, **more)


def add_responses(builder: CallOrder, responses: list[Response], time: int | None) -> None:
    """Responses without an id are those of the open calls of their names, in order."""
    for response in responses:
        if response.call_id is None and response.name is not None:
            named = [step for step, action in builder.open_calls() if action == response.name]
            if not named:
                reason = "result without a call it could answer"
                builder.rejects.append(bad_part(response.locator, reason, "orphan_result", response.text))
                continue
        builder.result(
            response.call_id,
            response.text,
            response.locator,
            failed=response.failed,
            name=response.name,
            created_at=time,
        )


def _ending(builder: CallOrder, row: dict[str, Any], last: dict[str, Any]) -> tuple[Ending, str]:
    """ADK's own rule: a turn ends with a text, or with a result that it was told not to summarize."""
    error = text_or_none(value_of(last, "error_code")) or text_or_none(value_of(last, "finish_reason"))
    if last.get("interrupted") is True:
        return "truncated", "interrupted"
    if last.get("partial") is True:
        return "truncated", "the stream stops before its end"
    if error is not None and error != "STOP":
        return "truncated", f"the model stopped: {error[:60]}"
    if value_of(last, "long_running_tool_ids") or value_of(row, "pending_events"):
        return "truncated", "a call is still running"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    message = builder.messages[-1] if builder.messages else None
    if message is not None and message.role == "assistant" and message.content is not None:
        return "terminal", "the agent gave its reply"
    final = any(value_of(last.get(name), "skip_summarization") is True for name in ("actions", "options"))
    if message is not None and message.role == "tool" and final:
        return "terminal", "the last result is the reply (skip_summarization)"
    return "truncated", "the log stops before the agent's reply"
