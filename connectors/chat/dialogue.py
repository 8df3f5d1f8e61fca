"""What the dialogue formats share: history that others made, answers to several calls at once, endings, JSON in text."""

from __future__ import annotations

import re
from typing import Any

from logforge.connectors.episodes import (
    FINISHING,
    Call,
    EpisodeBuilder,
    bad_part,
    cut_by,
    text_of,
    text_or_none,
)
from logforge.connectors.records import NotJson, at, canonical, excerpt, loads
from logforge.schemas import Ending, Reject

CALLS_IN_TEXT = (b"<tool_call>", b"<function=", b"<execute>")
"""Marks of calls that are written into a text, where these connectors would lose them."""


_RESPONSES = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_ONLY_RESPONSES = re.compile(
    r"\s*(?:<tool_response>(?:(?!</tool_response>).)*+</tool_response>\s*)++\Z", re.DOTALL
)


def call_of(value: Any, where: str, rejects: list[Reject]) -> Call | None:
    """A call given as `{name, arguments}` or its JSON text. What is no call goes to `rejects`."""
    place = where
    if isinstance(value, str):
        try:
            value, place = loads(value), f"{where}#"
        except NotJson as error:
            part = bad_part(where, f"call that is no JSON: {error}", "bad_call", value)
            rejects.append(part)
            return None
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        rejects.append(bad_part(where, "tool call without a name", "nameless_call", value))
        return None
    return Call(name, value.get("arguments"), text_or_none(value.get("id")), place)


def answer_all(builder: EpisodeBuilder, names: list[str], text: Any, where: str) -> list[str]:
    """Add one message that answers all calls of the turn before. Returns the call ids that it names.

    A JSON list with one `{name, content}` (or `results`) for each call, in the calls' order, holds a result for each; so do as
    many `<tool_response>` blocks as there are calls. Any other text is one message that answers every call.
    """
    entries = _entries(text) if isinstance(text, str) else []
    if names and [entry.get("name") for entry in entries] == names:
        for index, entry in enumerate(entries):
            key = "content" if "content" in entry else "results"
            said = entry[key] if isinstance(entry[key], str) else canonical(entry[key])
            builder.result(None, said, f"{where}#/{index}/{key}")
        return [i for entry in entries if (i := text_or_none(entry.get("tool_call_id"))) is not None]
    blocks = _RESPONSES.findall(text) if isinstance(text, str) and _ONLY_RESPONSES.match(text) else []
    if len(names) > 1 and len(blocks) == len(names):
        for block in blocks:
            builder.result(None, block.strip("\n"), where)
        return []
    if builder.result(None, text_of(text), where):
        for _ in names[1:]:
            builder.also_answers(None)
    return []


def _entries(text: str) -> list[dict[str, Any]]:
    try:
        value = loads(text)
    except NotJson:
        return []
    listed = value if isinstance(value, list) else []
    told = all(isinstance(entry, dict) and {"content", "results"} & entry.keys() for entry in listed)
    return listed if told else []


def add_history(builder: EpisodeBuilder, messages: list[Any], pointer: str) -> None:
    """Read OpenAI-style messages that the judged agent was given; `pointer` is the locator of the list."""
    for index, message in enumerate(messages):
        add_given(builder, message, f"{pointer}/{index}")


def add_given(builder: EpisodeBuilder, message: Any, where: str) -> None:
    """Read an OpenAI-style message that the judged agent was given: a message, and no decision of its own.

    Calls in it are the assistant's text, and results are what the agent was told (role user): a message of role tool
    belongs to a step.
    """
    role = message.get("role") if isinstance(message, dict) else None
    if role in ("system", "developer", "user", "tool", "function"):
        said = "user" if role in ("tool", "function") else role
        builder.message(said, message.get("content"), where)
    elif role == "assistant":
        calls = message.get("tool_calls") or message.get("function_call")
        key = "/tool_calls" if message.get("tool_calls") else "/function_call"
        content = text_of(message.get("content"))
        if calls and content:
            builder.message(role, f"{content}\n{canonical(calls)}", where)
        elif calls:
            builder.message(role, canonical(calls), at(where, key))
        else:
            builder.message(role, content, where)
    else:
        builder.rejects.append(
            bad_part(where, "message of an unknown role in the history", "unknown_role", message)
        )


def json_field(row: dict[str, Any], key: str, locator: str) -> Any | Reject:
    """The value of a field that holds JSON text; a Reject of the record when the text is damaged."""
    value = row.get(key)
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except NotJson as error:
        return Reject(
            locator=locator,
            reason=f"its {key} is text that is no JSON (cut off or damaged)",
            rule="malformed_record",
            detail=str(error),
            excerpt=excerpt(value),
        )


def chat_ending(
    builder: EpisodeBuilder, judged: bool = False, row: dict[str, Any] | None = None
) -> tuple[Ending, str]:
    """A row that says that it met a limit was cut off. A known outcome says that a conversation came to its end, unless a
    call that ends none is still open; else the agent must have had the last word."""
    if (why := cut_by(row or {}) or builder.cut) is not None:
        return "truncated", why
    if judged and (not builder.ends_unanswered or builder.last_action in FINISHING):
        return "terminal", "the outcome is known"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"
