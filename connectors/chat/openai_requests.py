"""Logs of OpenAI's Chat Completions API, as proxies write them: a request {model, messages, tools, …} and its response {choices, usage}.

Any server that speaks this API writes the same. LiteLLM's payloads (`messages`, `model_parameters` and `response` beside each
other) are read too. See exchanges.py for how requests become conversations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from logforge.connectors.chat.exchanges import Api, Exchange, Talk, read_exchanges, talk_id
from logforge.connectors.chat.openai_messages import SESSION_KEYS
from logforge.connectors.chat.openai_turns import add_requested, message_name, offer_requested, thought_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    cost_or_none,
    count_or_none,
    first_number,
    first_text,
    first_user_text,
    is_unique,
    keyed,
    limit_met,
    micros,
    read_outcome,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Reading

_CHOICES = re.compile(rb'\\?"choices\\?"\s*:\s*\[')
_AS_TEXT = re.compile(rb'\\"messages\\"\s*:')
_TALK_KEYS = frozenset({"request", "response", "messages", "tools", "choices", "model_parameters", "usage"})


class OpenAIRequests:
    """Request and response logs of Chat Completions."""

    name = "openai_requests"
    version = 4
    record = "one request with its response (a line, an array element or the document)"
    fills = ("outcome", "score", "tools", "thoughts", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """A request with messages whose response, or that of another record, has `choices`."""
        known = {"request", "response", "choices"} & head.top
        if not head.has_rows or not known or not _CHOICES.search(head.data):
            return 0.0
        if b"chat.completion.chunk" in head.data or "stop_reason" in _keys(head, "response"):
            return 0.0
        if "request" in head.top and "response" in head.top:
            return 0.9 if "messages" in _keys(head, "request") or _AS_TEXT.search(head.data) else 0.0
        beside = (
            "choices" in head.top | _keys(head, "response") or {"response", "model_parameters"} <= head.top
        )
        return 0.9 if beside and "role" in head.keys.get("messages", set()) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation, after what is set aside."""
        return read_exchanges(source, Api("choices", message_name, _answer, _native, _episode))


def _keys(head: Head, name: str) -> set[str]:
    return head.keys.get(name, set()) | head.keys.get(f"{name}.body", set())


def _choice(response: dict[str, Any]) -> dict[str, Any]:
    """The first answer; a request may ask for several."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _answer(response: dict[str, Any]) -> dict[str, Any] | None:
    """Its message. A refusal is what the model said."""
    message = _choice(response).get("message")
    if not isinstance(message, dict):
        return None
    refusal = message.get("refusal")
    said = {"content": refusal} if isinstance(refusal, str) and not message.get("content") else {}
    return {"role": "assistant"} | message | said


def _native(response: dict[str, Any]) -> str | None:
    own = text_or_none(response.get("id"))
    return own if is_unique(own) else None


def _settings(exchange: Exchange) -> dict[str, Any]:
    """How the model was called. LiteLLM keeps that apart from the messages."""
    apart = exchange.request.get("model_parameters")
    return exchange.request | (apart if isinstance(apart, dict) else {})


def _episode(talk: Talk) -> Iterator[Reading]:
    first, last = talk.chain[0], talk.chain[-1]
    builder = EpisodeBuilder()
    ids = _add_conversation(builder, talk)
    ending, reason = _ending(builder, last.response, talk.cut)
    model = first_text(first.request, "model") or text_or_none(first.response.get("model"))
    outcome = read_outcome(last.row, last.locator, builder.rejects)
    kept = [last.row, last.request] if last.request is not last.row else [last.row]
    episode = builder.finish(
        id=talk_id(OpenAIRequests.name, talk),
        format=OpenAIRequests.name,
        locator=first.locator,
        records=len(talk.chain),
        ending=ending,
        ending_reason=reason,
        native_id=first_text(first.row, "id", "request_id", "custom_id") or _native(first.response),
        task_id=first_text(last.row, "task_id", "instance_id"),
        task=first_user_text(builder),
        session_id=first_text(last.row, *SESSION_KEYS),
        user_id=first_text(last.request, "user", "end_user") or first_text(last.row, "user_id", "end_user"),
        model=model,
        policy_id=model,
        temperature=first_number(_settings(first), "temperature"),
        **outcome.fields(),
        metadata=canonical(
            {key: value for part in kept for key, value in part.items() if key not in _TALK_KEYS}
            | {"requests": len(talk.chain)}
        ),
    )
    yield from keyed(close(builder, episode), ids)


_ABOUT_RESPONSE = frozenset(
    {"id", "object", "created", "model", "usage", "choices", "system_fingerprint", "service_tier", "error"}
    | {"provider", "detail", "message", "status", "type", "code"}
)
"""The keys of a response that are no answer: facts about it, and what an error says."""


def _add_conversation(builder: EpisodeBuilder, talk: Talk) -> dict[int, str]:
    """The last request's messages and its answer, each answer with what its own response told. Returns the responses' ids
    by the position of their messages."""
    last = talk.chain[-1]
    ids: dict[int, str] = {}
    offer_requested(builder, _settings(talk.chain[0]))
    for exchange in talk.chain:
        _set_aside(builder, exchange)
    for index, message in enumerate(last.messages):
        told, begin = talk.told.get(index), len(builder.messages)
        _add(builder, message, at(last.asked, f"/messages/{index}"), told)
        ids |= talk.named(told, range(begin, len(builder.messages)))
    if (answer := _answer(last.response)) is not None:
        begin = len(builder.messages)
        _add(builder, answer, at(last.given, "/choices/0/message"), last)
        ids |= talk.named(last, range(begin, len(builder.messages)))
    elif not last.response.get("choices"):
        builder.silent(last.response, _ABOUT_RESPONSE, last.given, decides=True)
    return ids


def _set_aside(builder: EpisodeBuilder, exchange: Exchange) -> None:
    builder.rejects += exchange.rejects
    choices = exchange.response.get("choices")
    for number, choice in enumerate(choices if isinstance(choices, list) else ()):
        where = at(exchange.given, f"/choices/{number}")
        if number:
            reason, rule = "another answer to the same request", "other_choice"
        elif not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            reason, rule = "choice without a message", "bad_choice"
        else:
            continue
        builder.rejects.append(bad_part(where, reason, rule, choice))


def _add(builder: EpisodeBuilder, message: Any, where: str, told: Exchange | None) -> None:
    """Add a message; an answer with what its response told."""
    said = add_requested(builder, message, where, None if told is None else _settings(told))
    if told is None or said is None:
        return
    response = told.response
    usage = response["usage"] if isinstance(response.get("usage"), dict) else {}
    cost = cost_or_none(usage.get("cost"))
    builder.messages[-1] = msgspec.structs.replace(
        said,
        model=text_or_none(response.get("model")),
        thought=said.thought or thought_of(_answer(response) or {}),
        tokens_in=count_or_none(usage.get("prompt_tokens")),
        tokens_out=count_or_none(usage.get("completion_tokens")),
        cost_usd=cost if cost is not None else cost_or_none(told.row.get("response_cost")),
        created_at=told.time if told.time is not None else micros(response.get("created")),
    )


def _ending(builder: EpisodeBuilder, response: dict[str, Any], cut: bool) -> tuple[Ending, str]:
    """The last response's error or finish reason, else who had the last word."""
    error, finish = response.get("error"), text_or_none(_choice(response).get("finish_reason"))
    if cut:
        return "truncated", "the log is cut off"
    if error:
        kind = first_text(error, "code", "type") if isinstance(error, dict) else None
        return "truncated", f"the request failed: {kind or 'error'}"
    if (why := limit_met(finish) or builder.cut) is not None:
        return "truncated", why
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", f"the answer ended: {finish}" if finish else "end of conversation"
    return "truncated", "the log stops before the agent's answer"
