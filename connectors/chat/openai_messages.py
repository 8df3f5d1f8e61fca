"""OpenAI-style messages: `{"messages": [...]}` rows as JSON lines, a JSON array or one document.

A record is one conversation. Arguments may be text or an object; content text, null, a list of parts, or Anthropic's
blocks with calls and results in them; the message list itself JSON text. `function_call` / role `function` without ids
are read too. In a second shape each line is one message with a `session_id`; a record is then a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from logforge.connectors.chat.dialects import dialect_of
from logforge.connectors.chat.dialogue import add_history
from logforge.connectors.chat.message_keys import elsewhere, refusal_of, unread
from logforge.connectors.chat.ratings import rating_of
from logforge.connectors.chat.simulations import simulation_outcome
from logforge.connectors.episodes import (
    FINISHING,
    SOFT_REFUSAL,
    Call,
    EpisodeBuilder,
    Outcome,
    bad_part,
    close,
    content_id,
    cut_by,
    episode_id,
    failure_in,
    first_text,
    first_user_text,
    instance_task,
    is_unique,
    issue_in,
    looks_like,
    micros,
    parse_arguments,
    read_content,
    read_outcome,
    read_rows,
    reject,
    said_calls,
    stopped_by,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NeedsWhole, NotJson, Source, at, canonical, loads
from logforge.schemas import Ending, Episode, Message, Reading, Reject, ResultStatus, SourceKind

ROLES = frozenset({"system", "developer", "user"})
_READ_ROLES = ROLES | {"assistant", "tool", "function"}
AGENTS = frozenset({"ai", "agent", "bot", "model", "gpt", "llm", "chatbot", "assistant", "computer"})
"""Roles by which other formats call the agent."""
SESSION_KEYS = ("session_id", "conversation_id", "thread_id")
"""Keys that tell the conversation of a line that is a single message."""

_KINDS: dict[str, SourceKind] = {kind: kind for kind in get_args(SourceKind)}
_CALLS_IN_TEXT = re.compile(rb"<function=|<execute>|```mswea_bash_command")
_STEPS = frozenset({"action", "observation", "text"})
"""What the entries of a `trajectory` have that are no messages."""
_STRANGE = frozenset(
    {"parts", "toolInvocations", "toolUse", "toolResult", "toolCallId", "functionCall", "functionResponse"}
)
"""Keys by which other formats hold calls and results."""
_STREAM = b"chat.completion.chunk"
_OTHER_FORMATS = frozenset(
    {"suite_name", "trajectory_format", "sessionId", "simulations", "samples", "traj", "history"}
)


class OpenAIMessages:
    """Rows with a `messages` list."""

    name = "openai_messages"
    version = 6
    record = "one conversation (a line, an array element or the document), or one line where lines are single messages"
    fills = ("outcome", "score", "rewards", "propensities", "tools", "thoughts", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows whose `messages` have roles. Not those of formats that only look alike or write their calls as text."""
        if not head.has_rows or _OTHER_FORMATS & head.top or _STREAM in head.data:
            return 0.0
        if dialect_of(head):
            return 0.0  # messages of an SDK that means other blocks by them
        if {"system", "max_tokens"} <= head.top or "stop_reason" in head.keys.get("response", set()):
            return 0.0  # a request to, or an exchange with, Anthropic's API
        if "choices" in head.top | head.keys.get("response", set()) and "role" in head.keys.get(
            "messages", set()
        ):
            return 0.0  # a request with its response
        if "messages" in head.top:
            keys = head.keys.get("messages", set())
            if "trainable" in keys and "group_index" in head.top:
                return 0.0  # a rollout of ART's, of which some messages are no decisions
            structured = {"tool_calls", "function_call"} & keys
            if "value" in head.keys.get("messages.content", set()) or (
                _CALLS_IN_TEXT.search(head.data) and not structured
            ):
                return 0.0
            if _STRANGE & (keys | head.keys.get("messages.content", set())):
                # Parts of another format: each record that has them is set aside.
                return 0.1 if "role" in keys else 0.0
            return 0.6 if "role" in keys or not keys else 0.0
        if "trajectory" in head.top:
            keys = head.keys.get("trajectory", set())
            return 0.6 if {"role", "content"} <= keys and not _STEPS & keys else 0.0
        lines = (
            head.container == "object" and {"role", "content"} <= head.top and set(SESSION_KEYS) & head.top
        )
        return 0.5 if lines else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row; single-message lines are gathered by their session and come at the end."""
        sessions = _Sessions()

        def row(value: Any, locator: str) -> Iterator[Reading]:
            if not sessions.add(value, locator):
                yield from self._row(value, locator)
            elif source.span:
                raise NeedsWhole

        for reading in read_rows(source, row):
            sessions.cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
            yield reading
        yield from sessions.episodes(self.name)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        key = _key_of(row) if isinstance(row, dict) else "messages"
        messages = row.get(key) if isinstance(row, dict) else None
        if isinstance(messages, str):
            try:
                messages = loads(messages)
            except NotJson as error:
                yield Reject(
                    locator=locator,
                    reason="its messages are text that is no JSON (cut off or damaged)",
                    rule="malformed_record",
                    detail=str(error),
                    excerpt=messages[:200],
                )
                return
            pointer = at(locator, f"/{key}#")
        else:
            pointer = at(locator, f"/{key}")
        if not isinstance(messages, list):
            yield reject(locator, "no list of messages", "", row)
            return
        builder = EpisodeBuilder()
        # A label judges the last answer of a chat alone, as in TRL's rows: what came before it is history.
        history = len(messages) - 1 if _judges_last_answer(row, messages) else 0
        add_history(builder, messages[:history], pointer)
        for index in range(history, len(messages)):
            add_message(builder, messages[index], f"{pointer}/{index}")
        yield from close(builder, self._episode(builder, row, locator))

    def _episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        outcome = _outcome(row, locator, builder)
        task = first_user_text(builder)
        ending, reason = _ending(builder, row, outcome.known)
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "id", "instance_id", "conversation_id"),
            task_id=first_text(row, "task_id") or instance_task(first_text(row, "instance_id")),
            task=task,
            group_id=task_group(task) if issue_in(task) else None,
            session_id=first_text(row, *SESSION_KEYS),
            user_id=text_or_none(row.get("user_id")),
            model=text_or_none(row.get("model")),
            source_kind=_KINDS.get(str(row.get("source_kind")), "agent_log"),
            policy_id=first_text(row, "policy_id", "model"),
            tools=tool_names(row.get("tools")),
            **outcome.fields(),
            metadata=canonical({k: v for k, v in row.items() if k not in (_key_of(row), "tools")}),
        )


def _outcome(row: dict[str, Any], locator: str, builder: EpisodeBuilder) -> Outcome:
    """The verdict and the score of a row: its own fields, else ratings, else what a simulator wrote beside its messages."""
    told = read_outcome(row, locator, builder.rejects)
    if not told.known and isinstance(row.get("reward_info"), dict):
        return simulation_outcome(row, locator, builder.rejects)
    rating = rating_of(row)
    return told.void(failure_in(row)).or_else(Outcome(rating.success, rating.score, rating.source))


def _key_of(row: dict[str, Any]) -> str:
    """Where a row has its messages. Sets of coding agents' runs on the Hub call them `trajectory`."""
    return "trajectory" if "trajectory" in row and "messages" not in row else "messages"


def _judges_last_answer(row: dict[str, Any], messages: list[Any]) -> bool:
    """A label on a chat of several answers, without tools, calls or a rating of any one answer."""
    if not isinstance(row.get("label"), bool) or row.get("tools") or row.get("functions"):
        return False
    plain = all(
        isinstance(message, dict)
        and message.get("role") in ("assistant", *ROLES)
        and not isinstance(message.get("content"), list)
        and not (message.get("tool_calls") or message.get("function_call") or rating_of(message))
        for message in messages
    )
    answers = [index for index, message in enumerate(messages) if plain and message["role"] == "assistant"]
    return len(answers) > 1 and answers[-1] == len(messages) - 1


class _Sessions:
    """Lines that are single messages, by session."""

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[dict[str, Any], str]]] = {}
        self._latest: str | None = None
        self.cut = False
        """The file's last line is damaged, so the end of the session before it is lost."""

    def add(self, row: Any, locator: str) -> bool:
        """Take a line that is a single message of a session."""
        self._latest, self.cut = None, False
        if (
            not isinstance(row, dict)
            or {"messages", "trajectory"} & row.keys()
            or not isinstance(row.get("role"), str)
        ):
            return False
        session = first_text(row, *SESSION_KEYS)
        if session is None:
            return False
        self._lines.setdefault(session, []).append((row, locator))
        self._latest = session
        return True

    def episodes(self, name: str) -> Iterator[Reading]:
        """One episode per session."""
        for session, lines in self._lines.items():
            builder = EpisodeBuilder()
            for row, locator in lines:
                add_message(builder, row, locator)
            locator = lines[0][1]
            ending, reason = _ending(builder, lines[-1][0], False)
            if self.cut and session == self._latest:
                ending, reason = "truncated", "the log is cut off"
            episode = builder.finish(
                id=_session_id(name, session, [row for row, _ in lines]),
                format=name,
                locator=locator,
                records=len(lines),
                ending=ending,
                ending_reason=reason,
                native_id=session,
                session_id=session,
                task=first_user_text(builder),
                model=next((m for row, _ in lines if (m := text_or_none(row.get("model")))), None),
            )
            yield from close(builder, episode)


def _session_id(name: str, session: str, rows: list[dict[str, Any]]) -> str:
    """By its id and first line. A short id is counted and given again, and many runs begin with the same words of the user:
    there the first line of the agent counts too."""
    answer = next((row for row in rows if row["role"] == "assistant"), rows[0])
    told = [] if is_unique(session) or answer is rows[0] else [canonical(answer)]
    return episode_id(name, session, canonical(rows[0]), *told)


def _ending(builder: EpisodeBuilder, row: dict[str, Any], judged: bool) -> tuple[Ending, str]:
    """A flag or a reason to stop says it; else a run whose last call is unanswered has not ended, unless that call is one that ends runs,
    whatever its verdict; else an outcome, or the agent's last word, is the end."""
    if (why := cut_by(row) or builder.cut) is not None:
        return "truncated", why
    if row.get("terminated") is True:
        return "terminal", "the outcome is known" if judged else "the log says so"
    unanswered = builder.ends_unanswered
    if judged and (not unanswered or builder.last_action in FINISHING):
        return "terminal", "the outcome is known"
    if unanswered:
        return "truncated", "last call is unanswered"
    last = builder.messages[-1].role if builder.messages else ""
    if last == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"


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
    listed, pointer = _parsed(message.get("tool_calls"), at(where, "/tool_calls"))
    legacy = message.get("function_call")
    if not listed and not legacy:
        return []
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
