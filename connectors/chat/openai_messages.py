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
from logforge.connectors.chat.openai_turns import ROLES, add_message, tool_names
from logforge.connectors.chat.ratings import rating_of
from logforge.connectors.chat.simulations import simulation_outcome
from logforge.connectors.episodes import (
    FINISHING,
    EpisodeBuilder,
    Outcome,
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
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_or_none,
)
from logforge.connectors.records import Head, NeedsWhole, NotJson, Source, at, canonical, loads
from logforge.schemas import Ending, Episode, Reading, Reject, SourceKind

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
