"""The messages of a Gemini CLI session: what the user said, and the agent's turns with their calls and results."""

from __future__ import annotations

from typing import Any, Final

from logforge.connectors.chat import CallOrder, read_parts
from logforge.connectors.episodes import (
    Call,
    bad_part,
    count_or_none,
    distinct_calls,
    micros,
    text_or_none,
    unread_calls,
)
from logforge.connectors.records import at
from logforge.schemas import ResultStatus

NOTICES = frozenset({"info", "error", "warning"})
"""Messages that the program shows to the user and the model never sees."""

_READ: Final = frozenset(
    {"id", "timestamp", "type", "content", "displayContent", "toolCalls", "thoughts", "tokens", "model"}
)
"""The keys of a message."""
_STATES: dict[str, ResultStatus] = {"success": "ok", "error": "error", "cancelled": "refused"}
"""What a call's own state says of a result that is not there."""


def add_message(builder: CallOrder, message: Any, where: str, notices: list[Any]) -> set[str]:
    """Add a message. Returns the states of its calls."""
    kind = text_or_none(message.get("type")) if isinstance(message, dict) else None
    if kind in NOTICES:
        notices.append({"type": kind, "content": message.get("content")})
    elif kind == "user":
        parts = read_parts(message.get("content"), at(where, "/content"))
        builder.rejects += parts.rejects
        builder.note(parts.unknown, decides=parts.decides)
        if parts.texts:
            time = micros(message.get("timestamp"))
            builder.message("user", parts.text, parts.texts[0].locator, created_at=time)
        elif message.get("content") is None:
            builder.silent(message, _READ, where, decides=True)
    elif kind == "gemini":
        return _add_turn(builder, message, where)
    else:
        known = "user, gemini, info, error, warning"
        builder.rejects.append(
            bad_part(where, f"message whose type is none of {known}", "unknown_role", message)
        )
    return set()


def _add_turn(builder: CallOrder, message: dict[str, Any], where: str) -> set[str]:
    parts = read_parts(message.get("content"), at(where, "/content"))
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=True)
    listed = message.get("toolCalls")
    calls = [
        (call, at(where, f"/toolCalls/{index}"))
        for index, call in enumerate(listed if isinstance(listed, list) else ())
    ]
    known = [
        (call, place) for call, place in calls if isinstance(call, dict) and text_or_none(call.get("name"))
    ]
    builder.rejects += [
        bad_part(place, "tool call without a name", "nameless_call", call)
        for call, place in calls
        if (call, place) not in known
    ]
    thought = "\n".join(filter(None, [parts.thought, *_thoughts(message)])) or None
    more = {"thought": thought, "created_at": micros(message.get("timestamp")), **_facts(message)}
    named = [
        Call(str(call["name"]), call.get("args"), text_or_none(call.get("id")), place)
        for call, place in known
    ]
    if lost := unread_calls(message, _READ):
        builder.unknown(where, lost, decides=True)
    elif message.get("content") is None and not calls:
        builder.silent(message, _READ, where, decides=True)
    if not named and (calls or not parts.texts):
        # It only thought, or decided what the log no longer tells: a `respond` step would be an invention.
        if thought or calls:
            builder.message("assistant", parts.text, where, **more)
        return set()
    pointer = parts.texts[0].locator if parts.texts else where
    kept = distinct_calls(named)
    known = [pair for pair, call in zip(known, named, strict=True) if any(call is one for one in kept)]
    builder.turn(parts.text, named, pointer, **more)
    waiting = builder.open_calls() if known else []
    for (step, _), (call, place) in zip(waiting, known, strict=True):
        builder.answer_next(step)
        if not _add_result(builder, call, place) and (state := _STATES.get(str(call.get("status")))):
            builder.state(step, state)
    return {str(call.get("status")) for call, _ in known}


def _facts(message: dict[str, Any]) -> dict[str, Any]:
    counts = message.get("tokens")
    counts = counts if isinstance(counts, dict) else {}
    said = [count for key in ("output", "thoughts") if (count := count_or_none(counts.get(key))) is not None]
    return {
        "model": text_or_none(message.get("model")),
        "tokens_in": count_or_none(counts.get("input")),
        "tokens_out": count_or_none(sum(said)) if said else None,
    }


def _thoughts(message: dict[str, Any]) -> list[str]:
    thoughts = message.get("thoughts")
    return [
        "\n".join(text for key in ("subject", "description") if (text := text_or_none(thought.get(key))))
        for thought in (thoughts if isinstance(thoughts, list) else ())
        if isinstance(thought, dict)
    ]


def _add_result(builder: CallOrder, call: dict[str, Any], where: str) -> bool:
    """What a call gave, if the log has it. It stands in the call itself, so it is paired with it by its place."""
    result, state = call.get("result"), call.get("status")
    if not result:
        return False
    parts = read_parts(result, at(where, "/result"))
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=False)
    failed = {"success": False, "error": True, "cancelled": True}.get(str(state))
    status: ResultStatus | None = "refused" if state == "cancelled" else None
    if parts.responses:
        text, pointer = "\n".join(r.text or "" for r in parts.responses), parts.responses[0].locator
        failed = parts.responses[0].failed if failed is None else failed
    elif parts.texts:
        text, pointer = parts.text or "", parts.texts[0].locator
    else:
        return False
    time = micros(call.get("timestamp"))
    return builder.result(None, text, pointer, failed=failed, status=status, created_at=time)
