"""One OpenAI-style message at a time: what it says, calls and answers, and the tools that were offered with it."""

from __future__ import annotations

from typing import Any

from logforge.connectors.chat.message_keys import elsewhere, refusal_of, unread
from logforge.connectors.chat.ratings import rating_of
from logforge.connectors.episodes import (
    SOFT_REFUSAL,
    Call,
    EpisodeBuilder,
    bad_part,
    looks_like,
    micros,
    parse_arguments,
    read_content,
    said_calls,
    stopped_by,
    text_of,
    text_or_none,
)
from logforge.connectors.records import NotJson, at, canonical, loads
from logforge.schemas import Message, Reject, ResultStatus

ROLES = frozenset({"system", "developer", "user"})
_READ_ROLES = ROLES | {"assistant", "tool", "function"}
AGENTS = frozenset({"ai", "agent", "bot", "model", "gpt", "llm", "chatbot", "assistant", "computer"})
"""Roles by which other formats call the agent."""


def add_messages(builder: EpisodeBuilder, messages: list[Any], pointer: str) -> None:
    """Read a list of OpenAI-style messages into the builder. `pointer` is the locator of the list."""
    for index, message in enumerate(messages):
        add_message(builder, message, f"{pointer}/{index}")


def add_message(builder: EpisodeBuilder, message: Any, where: str) -> None:
    """Read one OpenAI-style message into the builder. `where` is its locator."""
    role = message.get("role") if isinstance(message, dict) else None
    content = message.get("content") if role is not None else None
    if (
        content is None
        and isinstance(role, str)
        and role in _READ_ROLES
        and (found := _elsewhere(role, message))
    ):
        builder.unknown(where, found, decides=True)
    elif role == "assistant":
        _add_turn(builder, message, content, where)
        builder.cut = stopped_by(message)
    elif role == "tool" or role == "function":
        _add_result(builder, message, content, where)
    elif not isinstance(role, str) or role not in ROLES:
        _add_stranger(builder, message, where)
    elif isinstance(content, list) and any(_is_result(block) for block in content):
        _add_answers(builder, message, content, where)
    else:
        builder.message(role, content, where, created_at=_time(message))


def _elsewhere(role: str, message: dict[str, Any]) -> dict[str, Any]:
    """What a message without content may say under keys that nobody reads; nothing of one that calls."""
    calls = role == "assistant" and (message.get("tool_calls") or message.get("function_call"))
    return {} if calls else elsewhere(message)


def _add_stranger(builder: EpisodeBuilder, message: Any, where: str) -> None:
    """A message of nobody that is known. One that calls, or has another format's word for the agent, may be the agent's own."""
    row = message if isinstance(message, dict) else {}
    calls = row.get("tool_calls") or row.get("function_call") or unread(row, ()) or looks_like(row)
    if calls or str(row.get("role")).lower() in AGENTS:
        builder.unknown(where, message, decides=True)
        return
    known = "system, developer, user, assistant, tool, function"
    builder.rejects.append(bad_part(where, f"message whose role is none of {known}", "unknown_role", message))


def _add_turn(builder: EpisodeBuilder, message: dict[str, Any], content: Any, where: str) -> None:
    thought = message.get("reasoning_content") or message.get("reasoning")
    thought = thought if isinstance(thought, str) else None
    calls = calls_of(message, where, builder.rejects)
    named = bool(message.get("tool_calls") or message.get("function_call"))
    said: list[Call] | None = None
    if isinstance(content, list):
        parts = read_content(content, at(where, "/content"))
        builder.rejects += parts.rejects
        builder.note(parts.unknown, decides=True)
        named = named or bool(parts.calls) or any(part.rule == "nameless_call" for part in parts.rejects)
        content, thought, calls = parts.text, parts.thought or thought, calls + parts.calls
    else:
        content = content or refusal_of(message) or content
        if isinstance(content, str) and not named:
            # A server's parser may have missed a call: it then stands in the text.
            said = said_calls(content, builder.offered, at(where, "/content"))
            named, calls = said is not None, said or []
    if lost := unread(message, calls):
        builder.unknown(where, lost, decides=True)
    if named and not calls and isinstance(content, str) and said is not None:
        builder.unparsed(content, where, thought=thought, created_at=_time(message))
    elif named and not calls:
        # It decided something that the log no longer tells; a `respond` step would be an invention.
        builder.message("assistant", content, where, thought=thought, created_at=_time(message))
    else:
        reward = rating_of(message).reward
        chance = _propensity(builder, message, where)
        builder.turn(
            content,
            calls,
            where,
            reward=reward,
            propensity=chance,
            thought=thought,
            created_at=_time(message),
        )


def _propensity(builder: EpisodeBuilder, message: dict[str, Any], where: str) -> float | None:
    """The probability that the policy gave what it decided in this turn, where the log has it."""
    value = message.get("propensity")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return float(value)
    rejected = bad_part(at(where, "/propensity"), "propensity outside (0, 1]", "bad_propensity", value)
    builder.rejects.append(rejected)
    return None


def _add_result(builder: EpisodeBuilder, message: dict[str, Any], content: Any, where: str) -> None:
    ids = message.get("tool_call_ids")
    several = [text_or_none(i) for i in ids] if isinstance(ids, list) else []
    call_id = text_or_none(message.get("tool_call_id")) or (several[0] if several else None)
    failed = True if message.get("error") or message.get("is_error") is True else None
    told = message.get("status")
    status: ResultStatus | None = "refused" if told in ("refused", SOFT_REFUSAL) else None
    kind = SOFT_REFUSAL if told == SOFT_REFUSAL else None
    text = text_of(content) or ""
    name, time = text_or_none(message.get("name")), _time(message)
    if builder.result(
        call_id, text, where, failed=failed, status=status, error_class=kind, name=name, created_at=time
    ):
        for other in several[1:]:
            builder.also_answers(other)


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _add_answers(builder: EpisodeBuilder, message: dict[str, Any], content: list[Any], where: str) -> None:
    """A user turn of Anthropic blocks: each result on its own, and whatever the user wrote as a message of its own."""
    parts = read_content(content, at(where, "/content"))
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=parts.decides)
    for answer in parts.answers:
        builder.result(
            answer.call_id, answer.text, answer.locator, failed=answer.failed, created_at=_time(message)
        )
    if parts.texts:
        builder.message("user", parts.text, parts.texts[0].locator, created_at=_time(message))


def _time(message: dict[str, Any]) -> int | None:
    stamp = message.get("timestamp") or message.get("created_at")
    return None if stamp is None else micros(stamp)


def calls_of(message: dict[str, Any], where: str, rejects: list[Reject]) -> list[Call]:
    """The calls of an assistant message, of either style. What is no call goes to `rejects`."""
    listed, legacy = message.get("tool_calls"), message.get("function_call")
    if not listed and not legacy:
        return []
    listed, pointer = _parsed(listed, at(where, "/tool_calls"))
    calls: list[Call] = []
    if listed and not isinstance(listed, list):
        rejects.append(bad_part(pointer, "tool_calls is no list", "bad_tool_calls", listed))
    for index, call in enumerate(listed if isinstance(listed, list) else ()):
        _add_call(calls, *_parsed(call, f"{pointer}/{index}"), rejects)
    if legacy and not calls:
        _add_call(calls, legacy, at(where, "/function_call"), rejects)
    return calls


def _parsed(value: Any, where: str) -> tuple[Any, str]:
    """A call, or a list of them, and its place. Tables keep them as JSON text, which is read; what is no JSON stays."""
    if isinstance(value, str) and value:
        try:
            return loads(value), f"{where}#"
        except NotJson:
            pass
    return value, where


def _add_call(calls: list[Call], call: Any, where: str, rejects: list[Reject]) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    inner = function if isinstance(function, dict) else call if isinstance(call, dict) else {}
    name = inner.get("name") if not isinstance(function, str) else function
    if isinstance(name, str) and name:
        arguments = inner.get("arguments", inner.get("args"))
        proposed = text_or_none(call.get("proposed_action")) if isinstance(call, dict) else None
        calls.append(Call(name, arguments, text_or_none(call.get("id")), where, proposed))
    else:
        rejects.append(bad_part(where, "tool call without a name", "nameless_call", call))


def thought_of(message: dict[str, Any]) -> str | None:
    """What an assistant message thought: in blocks of its content, else beside it."""
    content = message.get("content")
    inner = read_content(content, "").thought if isinstance(content, list) else None
    beside = (message.get(key) for key in ("reasoning_content", "reasoning"))
    return inner or next((thought for thought in beside if isinstance(thought, str) and thought), None)


def message_name(message: Any) -> str:
    """A text that is equal for equal messages: an answer has keys that it loses when it is sent again."""
    if not isinstance(message, dict):
        return canonical(message)
    calls = [
        (call.name, call.call_id, parse_arguments(call.arguments)[0]) for call in calls_of(message, "", [])
    ]
    text = text_of(message.get("content")) or ""
    return canonical([message.get("role"), text, calls, message.get("tool_call_id")])


def add_requested(
    builder: EpisodeBuilder, message: Any, where: str, request: dict[str, Any] | None
) -> Message | None:
    """Add a message. Returns the answer to a known request, whose tools are offered with it; None for any other message."""
    begin = len(builder.messages)
    if request is not None:
        offer_requested(builder, request)
    add_message(builder, message, where)
    is_answer = len(builder.messages) > begin and builder.messages[-1].role == "assistant"
    return builder.messages[-1] if is_answer and request is not None else None


def offer_requested(builder: EpisodeBuilder, request: dict[str, Any]) -> None:
    """Offer what a request offers. One that names none after others named some offers none, nor does one that forbids calls."""
    names, choice = tool_names(request.get("tools")), request.get("tool_choice")
    forbids = (choice.get("type") if isinstance(choice, dict) else choice) == "none"
    left_out = request.get("tools") is None and builder.offered is not None
    builder.offer([] if forbids or left_out else names)


def tool_names(tools: Any) -> list[str] | None:
    """Names of the tools offered, from a list of definitions or its JSON text; None when the row says nothing."""
    if isinstance(tools, str):
        try:
            tools = loads(tools)
        except NotJson:
            return None
    if not isinstance(tools, list):
        return None
    names = set()
    for tool in tools:
        if isinstance(tool, dict):
            inner = tool["function"] if isinstance(tool.get("function"), dict) else tool
            tool = inner.get("name")
        if isinstance(tool, str):
            names.add(tool)
    return sorted(names)
