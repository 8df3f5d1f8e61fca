"""Assistant messages of Anthropic's Messages API as turns, with what their responses told."""

from __future__ import annotations

from typing import Any

from logforge.connectors.chat.exchanges import Exchange
from logforge.connectors.chat.openai_turns import offer_requested
from logforge.connectors.episodes import (
    EpisodeBuilder,
    Parts,
    count_or_none,
    read_content,
    text_of,
    text_or_none,
)
from logforge.connectors.records import at, canonical


def add_turn(builder: EpisodeBuilder, content: Any, where: str, told: Exchange | None, **facts: Any) -> None:
    """An assistant message. Tools that the API ran itself are answered inside it; what follows was decided later.

    `facts` are further fields of its messages, where no response tells them.
    """
    more: dict[str, Any] = facts
    parts = read_content(content, where)
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=True)
    if told is not None:
        offer_requested(builder, told.request)
        usage = told.response.get("usage")
        more = {"created_at": told.time, "model": text_or_none(told.response.get("model")), **_tokens(usage)}
        if not parts.thoughts:
            parts.thoughts = read_content(told.response.get("content"), at(told.given, "/content")).thoughts
    for number, piece in enumerate(_pieces(parts)):
        if number:
            more = {k: v for k, v in more.items() if not k.startswith("tokens")}
        _add_piece(builder, piece, where, more)


def _add_piece(builder: EpisodeBuilder, parts: Parts, where: str, more: dict[str, Any]) -> None:
    texts = parts.texts or parts.thoughts
    pointer = texts[0].locator if texts else parts.calls[0].locator if parts.calls else where
    if parts.texts or parts.calls:
        builder.turn(parts.text, parts.calls, pointer or where, thought=parts.thought, **more)
    elif parts.thoughts:
        builder.message("assistant", None, pointer or where, thought=parts.thought, **more)
    for answer in parts.answers:
        builder.result(answer.call_id, answer.text, answer.locator, failed=answer.failed)


def _pieces(parts: Parts) -> list[Parts]:
    """The message cut after each run of results in it."""
    ends = [_number(answer.locator) for answer in parts.answers]
    cuts = [end for end in ends if end + 1 not in ends]
    pieces = [Parts() for _ in range(len(cuts) + 1)]
    for name in ("texts", "thoughts", "calls", "answers"):
        for item in getattr(parts, name):
            index = sum(cut < _number(item.locator) for cut in cuts)
            getattr(pieces[index], name).append(item)
    return pieces


def _number(locator: str | None) -> int:
    last = (locator or "").rpartition("/")[2]
    return int(last) if last.isdigit() else 0


def _tokens(usage: Any) -> dict[str, int | None]:
    """All that the model read: fresh, written to the cache and read from it; and what it wrote."""
    usage = usage if isinstance(usage, dict) else {}
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    counts = [count for key in keys if (count := count_or_none(usage.get(key))) is not None]
    return {
        "tokens_in": count_or_none(sum(counts)) if counts else None,
        "tokens_out": count_or_none(usage.get("output_tokens")),
    }


_THINKING = ("thinking", "redacted_thinking")


def answer_of(response: dict[str, Any]) -> dict[str, Any] | None:
    """The message that a response gives; None for one without an answer in it."""
    content = response.get("content")
    return {"role": "assistant", "content": content} if isinstance(content, str | list) and content else None


def response_id(response: dict[str, Any]) -> str | None:
    """The id that the API gave to a response."""
    native = text_or_none(response.get("id"))
    return native if native is not None and native.startswith("msg_") else None


def message_name(message: Any) -> str:
    """A text that is equal for equal messages: thinking is not sent again, and cache marks come and go."""
    if not isinstance(message, dict):
        return canonical(message)
    role, content = message.get("role"), message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        return canonical([role, blocks])
    return canonical([role, [_essence(block) for block in blocks if not _is_thinking(block)]])


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _THINKING


def _essence(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    kind = block.get("type")
    if kind == "text":
        return ["text", block.get("text")]
    if kind == "tool_use":
        return [kind, block.get("id"), block.get("name"), block.get("input")]
    if kind == "tool_result":
        return [kind, block.get("tool_use_id"), text_of(block.get("content"))]
    return {key: value for key, value in block.items() if key != "cache_control"}
