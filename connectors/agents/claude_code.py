"""Claude Code sessions: JSON lines of {type, sessionId, uuid, parentUuid, message, …}, or the web export {"loglines": […]}.

A record is a line (or an element of `loglines`). One API message is spread over several lines that share its
`message.id`; it is put together again here. A sub-agent's lines (`isSidechain`) lie in the same file or in one of their
own; each sub-agent's run is an episode whose parent is the session's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from logforge.connectors.agents.claude_lines import Chain, Line, Lines
from logforge.connectors.episodes import (
    Answer,
    EpisodeBuilder,
    Parts,
    close,
    cost_or_none,
    count_or_none,
    episode_id,
    is_unique,
    is_uuid,
    limit_met,
    read_content,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, elements, loads, too_deep
from logforge.schemas import Ending, Episode, Reading, Reject, ResultStatus, Step

INTERRUPTED = "[Request interrupted by user"
"""How the marker begins that Claude Code writes in the user's name when the user stops it."""
_REFUSED = re.compile(r"The user doesn't want to (?:proceed with|take) this|\[Request interrupted by user")
_OWN = frozenset({"uuid", "parentUuid", "session_id", "parent_tool_use_id", "isSidechain"})
"""Keys that tell a session's lines where they name no `sessionId`: old versions, iFlow's, and what `--output-format stream-json` writes."""
_EXPORT = re.compile(rb'\s*\{\s*"loglines"\s*:\s*(?=\[)')


class ClaudeCode:
    """Claude Code's session files."""

    name = "claude_code"
    version = 6
    record = "one line of the session file, or one element of the export's `loglines`"
    fills = ("thoughts", "tokens", "cost", "latency", "times")

    def sniff(self, head: Head) -> float:
        """A first object of the export or of a session line; else one of the first lines is a session line."""
        if "loglines" in head.top or {"sessionId", "message", "type"} <= head.top:
            return 0.95
        if {"type", "leafUuid"} <= head.top:
            return 0.9
        if head.container in ("object", "array", "text"):
            return 0.9 if any(_is_session_line(line) for line in head.data.split(b"\n")[:50]) else 0.0
        return 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session and one per sub-agent, after what is skipped or set aside."""
        lines = Lines()
        for locator, row in _records(source):
            reading = lines.add(row, locator)
            if reading is not None:
                yield reading
        yield from _episodes(lines)


def _is_session_line(line: bytes) -> bool:
    if b'"message"' not in line:
        return False
    try:
        row = loads(line)
    except NotJson:
        return False
    message = (
        row.get("message") if isinstance(row, dict) and row.get("type") in ("user", "assistant") else None
    )
    if not isinstance(message, dict):
        return False
    return "sessionId" in row or (bool(_OWN & row.keys()) and message.get("role") == row["type"])


def _records(source: Source) -> Iterator[tuple[str, Any | Reject]]:
    for number, (locator, row) in enumerate(source.records()):
        if isinstance(row, dict) and isinstance(row.get("loglines"), list) and "type" not in row:
            for index, line in enumerate(row["loglines"]):
                yield at(locator, f"/loglines/{index}"), line
        elif number == 0 and isinstance(row, Reject) and (begin := _torn_export(source)):
            with source.path.open("rb") as file:
                yield from elements(file, begin, f"{source.label}#/loglines", source.max_record)
            return
        else:
            yield locator, row


def _torn_export(source: Source) -> int | None:
    """Where the `[` of `loglines` stands, when the file is an export that is no JSON as a whole."""
    with source.path.open("rb") as file:
        file.seek(source.start)
        begins = _EXPORT.match(file.read(1000))
    return source.start + begins.end() if begins else None


@dataclass
class _Turn:
    """One API message, from all its lines."""

    line: Line
    parts: Parts
    usage: dict[str, Any]
    stop_reason: Any
    cost: float | None = None

    def merge(self, line: Line, parts: Parts) -> None:
        """A later line of the same message. Its lines repeat the usage; the one that counts most output is complete."""
        self.parts.merge(parts)
        usage = _usage(line.message)
        if (count_or_none(usage.get("output_tokens")) or 0) >= (
            count_or_none(self.usage.get("output_tokens")) or 0
        ):
            self.usage = usage
        self.stop_reason = line.message.get("stop_reason") or self.stop_reason
        self.cost = self.cost if (cost := cost_or_none(line.row.get("costUSD"))) is None else cost


def _episodes(lines: Lines) -> Iterator[Reading]:
    """Every run of a file. A sub-agent's parent is its session's run, which may lie in another file."""
    runs = lines.runs()
    ids = {chain: _identity(chain, run[0]) for chain, run in runs.items()}
    for chain, run in runs.items():
        parent = None
        if chain.root is not None:
            session = Chain(chain.session, None)
            parent = ids.get(session) or (_identity(session, run[0]) if is_uuid(chain.session) else None)
        cut = lines.cut and run[-1] is lines.kept[-1]
        try:
            readings = list(_episode(run, chain, id=ids[chain], parent=parent, cut=cut))
        except RecursionError:
            readings = [too_deep(run[0].locator, len(run))]
        yield from readings


def _identity(chain: Chain, first: Line) -> str:
    """The session's UUID. Another name may be given twice, so what it begins with counts too."""
    if is_uuid(chain.session):
        return episode_id(ClaudeCode.name, chain.native_id)
    return episode_id(ClaudeCode.name, *([chain.native_id] if chain.session else []), canonical(first.row))


def _episode(run: list[Line], chain: Chain, *, id: str, parent: str | None, cut: bool) -> Iterator[Reading]:
    builder = EpisodeBuilder()
    turns, uuids = _add_lines(builder, run)
    written = tuple(at(line.locator, "/message/") for line in run if line.is_meta)
    ending, reason = _ending(builder, cut, turns[-1] if turns else None, written)
    model = next((m for turn in turns if (m := text_or_none(turn.line.message.get("model")))), None)
    first = run[0].row
    episode = builder.finish(
        id=id,
        format=ClaudeCode.name,
        locator=run[0].locator,
        records=len(run),
        ending=ending,
        ending_reason=reason,
        native_id=chain.native_id,
        session_id=chain.session,
        parent_episode_id=parent,
        task=_task(builder, written),
        model=model,
        policy_id=model,
        metadata=canonical(
            {k: v for k in ("version", "cwd", "gitBranch", "userType") if (v := first.get(k))}
        ),
    )
    steps = [replace(step, decision_key=_decision_key(step, episode, uuids)) for step in episode.steps]
    yield from close(builder, replace(episode, steps=steps))


def _task(builder: EpisodeBuilder, written: tuple[str, ...]) -> str | None:
    """The first text before any decision that the user wrote; those that the program wrote (by their places) are none."""
    for message in builder.messages:
        if message.role == "assistant":
            return None
        if message.role == "user" and not message.locator.startswith(written):
            return message.content
    return None


def _decision_key(step: Step, episode: Episode, uuids: dict[int, str]) -> str | None:
    """What names a decision in every file that holds it: the API's id of its message, else the uuid of its line, and what it
    was. A resumed session keeps both; a fork may write its parent's lines anew, with other uuids and times."""
    uuid = uuids.get(step.position)
    if uuid is None:
        return None
    said = episode.messages[step.position].content if step.kind != "tool" else None
    return episode_id(ClaudeCode.name, uuid, step.action, step.tool_call_id, step.arguments, said)


def _add_lines(builder: EpisodeBuilder, lines: list[Line]) -> tuple[list[_Turn], dict[int, str]]:
    """Gather the lines of each API message, then add everything where it began: a call stands before its results.

    Returns the turns, and the id of each by its position: the API's where it is unique, else the line's uuid.
    """
    entries: list[_Turn | tuple[Line, Parts]] = []
    turns: dict[str, _Turn] = {}
    for line in lines:
        parts = read_content(line.message.get("content"), at(line.locator, "/message/content"))
        if line.row["type"] == "user":
            entries.append((line, parts))
            continue
        message_id = text_or_none(line.message.get("id"))
        begun = turns.get(message_id) if message_id is not None else None
        if begun is not None:
            begun.merge(line, parts)
            continue
        cost = cost_or_none(line.row.get("costUSD"))  # versions of 2025 up to May
        turn = _Turn(line, parts, _usage(line.message), line.message.get("stop_reason"), cost)
        entries.append(turn)
        if message_id is not None:
            turns[message_id] = turn
    asked: dict[str, int] = {}
    uuids: dict[int, str] = {}
    for entry in entries:
        if isinstance(entry, _Turn):
            own = text_or_none(entry.line.message.get("id"))
            named = own if is_unique(own) else text_or_none(entry.line.row.get("uuid"))
            if named is not None:
                uuids[len(builder.messages)] = named
            _add_turn(builder, entry, asked)
        else:
            _add_user(builder, *entry, asked)
    return [entry for entry in entries if isinstance(entry, _Turn)], uuids


def _add_turn(builder: EpisodeBuilder, turn: _Turn, asked: dict[str, int]) -> None:
    line, parts = turn.line, turn.parts
    pieces = parts.texts or parts.thoughts
    where = pieces[0].locator if pieces else parts.calls[0].locator if parts.calls else line.locator
    more: dict[str, Any] = {
        "thought": parts.thought,
        "created_at": line.time,
        "model": text_or_none(line.message.get("model")),
        "tokens_in": _tokens_in(turn.usage),
        "tokens_out": count_or_none(turn.usage.get("output_tokens")),
        "cost_usd": turn.cost,
    }
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=True)
    if parts.texts or parts.calls:
        builder.turn(parts.text, parts.calls, where or line.locator, **more)
        asked.update(
            {call.call_id: line.time for call in parts.calls if call.call_id and line.time is not None}
        )
    elif parts.thoughts:
        # Thinking alone decided nothing yet: the stream stopped before the decision.
        builder.message("assistant", None, where or line.locator, **more)
    for answer in parts.answers:
        _add_answer(builder, line, answer, asked)


def _add_user(builder: EpisodeBuilder, line: Line, parts: Parts, asked: dict[str, int]) -> None:
    builder.rejects += parts.rejects
    builder.note(parts.unknown, decides=parts.decides)
    for answer in parts.answers:
        _add_answer(builder, line, answer, asked)
    if parts.texts:
        role = "system" if line.is_summary else "user"
        builder.message(role, parts.text, parts.texts[0].locator, created_at=line.time)


def _add_answer(builder: EpisodeBuilder, line: Line, answer: Answer, asked: dict[str, int]) -> None:
    begun, ended = asked.get(answer.call_id or ""), line.time
    latency = (ended - begun) / 1e6 if begun is not None and ended is not None and ended >= begun else None
    status: ResultStatus | None = "refused" if answer.text and _REFUSED.match(answer.text) else None
    builder.result(
        answer.call_id,
        answer.text,
        answer.locator,
        failed=answer.failed,
        status=status,
        latency_s=latency,
        created_at=ended,
    )


def _usage(message: dict[str, Any]) -> dict[str, Any]:
    usage = message.get("usage")
    return usage if isinstance(usage, dict) else {}


def _tokens_in(usage: dict[str, Any]) -> int | None:
    """All that the model read: fresh, written to the cache and read from it."""
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    counts = [count for key in keys if (count := count_or_none(usage.get(key))) is not None]
    return count_or_none(sum(counts)) if counts else None


def _ending(
    builder: EpisodeBuilder, cut: bool, last_turn: _Turn | None, written: tuple[str, ...]
) -> tuple[Ending, str]:
    """The format has no outcome; a run is taken as ended when its last message is the agent's reply. What the program wrote
    after it is no question."""
    last = next((m for m in reversed(builder.messages) if not m.locator.startswith(written)), None)
    if cut:
        return "truncated", "the log is cut off"
    if last is not None and last.role != "assistant" and (last.content or "").startswith(INTERRUPTED):
        return "truncated", "interrupted by the user"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if last is None or last.role != "assistant" or last.content is None:
        return "truncated", "the log stops before the agent's reply"
    if last_turn is not None and (why := limit_met(last_turn.stop_reason)) is not None:
        return "truncated", why
    return "terminal", "the agent gave its reply"
