"""Logs of Anthropic's Messages API: a request {model, system, messages, tools, …} and its response {content, stop_reason, usage}.

A record is one request with its response: {"request": …, "response": …}, or the request's own keys with `response`
beside them. A request repeats the whole conversation, so those that continue one another are one episode: what the last
one holds, with what each response told (usage, thinking) where that response stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat.anthropic_turns import add_turn, answer_of, message_name, response_id
from logforge.connectors.chat.exchanges import Api, Exchange, Talk, read_exchanges, talk_id
from logforge.connectors.chat.openai_messages import SESSION_KEYS
from logforge.connectors.chat.openai_turns import add_message, offer_requested
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    first_number,
    first_text,
    first_user_text,
    keyed,
    limit_met,
    read_outcome,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Reading

_ENDS = {
    "end_turn": "the agent ended its turn",
    "stop_sequence": "a stop sequence",
    "refusal": "the model refused",
}
_AS_TEXT = (rb"\"messages\"", rb"\"stop_reason\"")
"""What a request and its response hold when they are JSON text."""
_REQUEST_KEYS = frozenset({"request", "response", "messages", "system", "tools", "content"})


class AnthropicApi:
    """Request and response logs of the Messages API."""

    name = "anthropic_api"
    version = 4
    record = "one request with its response (a line, an array element or the document)"
    fills = ("tools", "thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """A request with messages, and something that only this API has: `stop_reason`, or a `system` beside them."""
        if not head.has_rows:
            return 0.0
        if {"request", "response"} <= head.top:
            return 0.9 if _is_pair(head) or all(key in head.data for key in _AS_TEXT) else 0.0
        if "messages" not in head.top or "role" not in head.keys.get("messages", set()):
            return 0.0
        answered = "stop_reason" in head.keys.get("response", set()) or {"stop_reason", "content"} <= head.top
        blocks = "type" in head.keys.get("messages.content", set()) and "model" in head.top
        return 0.8 if answered or ("system" in head.top and ("max_tokens" in head.top or blocks)) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation, after what is set aside."""
        return read_exchanges(source, Api("stop_reason", message_name, answer_of, response_id, _episode))


def _is_pair(head: Head) -> bool:
    for asked, given in (("request", "response"), ("request.body", "response.body")):
        request, response = head.keys.get(asked, set()), head.keys.get(given, set())
        if "messages" in request and "choices" not in response:
            return "stop_reason" in response or "system" in request
    return False


def _episode(talk: Talk) -> Iterator[Reading]:
    chain = talk.chain
    first, last = chain[0], chain[-1]
    builder = EpisodeBuilder()
    ids = _add_conversation(builder, talk)
    ending, reason = _ending(builder, last.response, talk.cut)
    native = text_or_none(first.response.get("id"))
    model = first_text(first.request, "model") or text_or_none(first.response.get("model"))
    outcome = read_outcome(last.row, last.locator, builder.rejects)
    sent_by = last.request.get("metadata")
    episode = builder.finish(
        id=talk_id(AnthropicApi.name, talk),
        format=AnthropicApi.name,
        locator=first.locator,
        records=len(chain),
        ending=ending,
        ending_reason=reason,
        native_id=first_text(first.row, "id", "request_id", "custom_id") or native,
        task_id=first_text(last.row, "task_id", "instance_id"),
        task=first_user_text(builder),
        session_id=first_text(last.row, *SESSION_KEYS),
        user_id=text_or_none(sent_by.get("user_id")) if isinstance(sent_by, dict) else None,
        model=model,
        policy_id=model,
        temperature=first_number(first.request, "temperature"),
        **outcome.fields(),
        metadata=canonical(
            {k: v for k, v in last.row.items() if k not in _REQUEST_KEYS}
            | {k: v for k, v in last.request.items() if k not in _REQUEST_KEYS}
            | {"requests": len(chain)}
        ),
    )
    yield from keyed(close(builder, episode), ids)


def _add_conversation(builder: EpisodeBuilder, talk: Talk) -> dict[int, str]:
    """The last request's messages and its response, each response with what it told when it came. Returns the responses'
    ids by the position of their messages."""
    last = talk.chain[-1]
    builder.rejects += [part for exchange in talk.chain for part in exchange.rejects]
    system = text_of(last.request.get("system"))
    if system:
        builder.message("system", system, _system_place(last))
    offer_requested(builder, talk.chain[0].request)
    ids: dict[int, str] = {}
    for index, message in enumerate(last.messages):
        where = at(last.asked, f"/messages/{index}")
        if isinstance(message, dict) and message.get("role") == "assistant":
            told = talk.told.get(index)
            begin = len(builder.messages)
            add_turn(builder, message.get("content"), at(where, "/content"), told)
            ids |= talk.named(told, range(begin, len(builder.messages)))
        else:
            add_message(builder, message, where)
    if answer_of(last.response) is not None:
        begin = len(builder.messages)
        add_turn(builder, last.response["content"], at(last.given, "/content"), last)
        ids |= talk.named(last, range(begin, len(builder.messages)))
    return ids


def _system_place(exchange: Exchange) -> str:
    place = at(exchange.asked, "/system")
    return at(place, "/0") if isinstance(exchange.request.get("system"), list) else place


def _ending(builder: EpisodeBuilder, response: dict[str, Any], cut: bool) -> tuple[Ending, str]:
    """The last response's own reason to stop."""
    stop = text_or_none(response.get("stop_reason"))
    if cut:
        return "truncated", "the log is cut off"
    if response.get("type") == "error" or isinstance(response.get("error"), dict):
        error = response.get("error")
        kind = text_or_none(error.get("type")) if isinstance(error, dict) else None
        return "truncated", f"the request failed: {kind or 'error'}"
    if (why := limit_met(stop)) is not None:
        return "truncated", why
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if stop == "pause_turn":
        return "truncated", "the turn was paused"
    if stop is not None and stop in _ENDS:
        return "terminal", _ENDS[stop]
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"
