"""Assistant messages of Anthropic's Messages API as turns, with what their responses told."""

from __future__ import annotations

from typing import Any

from logforge.connectors.chat.exchanges import Exchange
from logforge.connectors.chat.openai_messages import offer_requested
from logforge.connectors.episodes.builder import EpisodeBuilder
from logforge.connectors.episodes.content import Parts, count_or_none, read_content, text_or_none
from logforge.connectors.records.base import at


def add_turn(builder: EpisodeBuilder, content: Any, where: str, told: Exchange | None) -> None:
    """An assistant message. Tools that the API ran itself are answered inside it; what follows was decided later."""
    more: dict[str, Any] = {}
    parts = read_content(content, where)
    builder.rejects += parts.rejects
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
