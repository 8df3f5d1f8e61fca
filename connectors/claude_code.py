"""Claude Code sessions: JSON lines of {type, sessionId, uuid, parentUuid, message, …}, or the web export {"loglines": […]}.

A record is a line (or an element of `loglines`). One API message is spread over several lines that share its
`message.id`; it is put together again here. A sub-agent's lines (`isSidechain`) lie in the same file or in one of their
own; each sub-agent's run is an episode whose parent is the session's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from logforge.connectors.base import BOM, Head, Source, at, excerpt, split_array
from logforge.connectors.builder import EpisodeBuilder, episode_id
from logforge.connectors.content import Answer, Parts, count_or_none, micros, read_content, text_or_none
from logforge.connectors.jsontext import NotJson, canonical, loads
from logforge.connectors.rows import close, first_user_text
from logforge.schemas.episode import Duplicate, Ending, Reading, Reject, ResultStatus, Skip

OTHER_LINES = frozenset(
    {
        "summary",
        "system",
        "file-history-snapshot",
        "progress",
        "queue-operation",
        "attachment",
        "ai-title",
        "custom-title",
    }
)
"""Line types that hold no message; each is skipped under its own name, types unknown here as `other_line`."""

INTERRUPTED = "[Request interrupted by user"
"""How the marker begins that Claude Code writes in the user's name when the user stops it."""
_REFUSED = re.compile(r"The user doesn't want to (?:proceed with|take) this|\[Request interrupted by user")
_EXPORT = re.compile(rb'\s*\{\s*"loglines"\s*:\s*(?=\[)')


class ClaudeCode:
    """Claude Code's session files."""

    name = "claude_code"
    version = 1
    record = "one line of the session file, or one element of the export's `loglines`"

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
        session = _Lines(self.name)
        for locator, row in _lines(source):
            reading = session.add(row, locator)
            if reading is not None:
                yield reading
        yield from session.episodes()


def _is_session_line(line: bytes) -> bool:
    try:
        row = loads(line)
    except NotJson:
        return False
    named = isinstance(row, dict) and row.get("type") in ("user", "assistant") and "sessionId" in row
    return named and isinstance(row.get("message"), dict)


def _lines(source: Source) -> Iterator[tuple[str, Any | Reject]]:
    for number, (locator, row) in enumerate(source.records()):
        if isinstance(row, dict) and isinstance(row.get("loglines"), list) and "type" not in row:
            for index, line in enumerate(row["loglines"]):
                yield at(locator, f"/loglines/{index}"), line
        elif number == 0 and isinstance(row, Reject) and (torn := _torn_export(source)):
            yield from split_array(torn, f"{source.label}#/loglines")
            return
        else:
            yield locator, row


def _torn_export(source: Source) -> bytes | None:
    """From the `[` of `loglines` on, when the file is an export that is no JSON as a whole."""
    data = source.bytes().removeprefix(BOM)
    begins = _EXPORT.match(data)
    return data[begins.end() :] if begins else None


class _Line(NamedTuple):
    """A user or assistant line."""

    row: dict[str, Any]
    message: dict[str, Any]
    locator: str

    @property
    def time(self) -> int | None:
        return micros(self.row.get("timestamp"))


class _Chain(NamedTuple):
    """Which run a line belongs to: the session's own (no root) or that of the sub-agent whose first line is `root`."""

    session: str | None
    root: str | None


@dataclass
class _Turn:
    """One API message, from all its lines."""

    line: _Line
    parts: Parts
    usage: dict[str, Any]
    stop_reason: Any

    def merge(self, line: _Line, parts: Parts) -> None:
        """A later line of the same message. Its lines repeat the usage; the one that counts most output is complete."""
        self.parts.merge(parts)
        usage = _usage(line.message)
        if (count_or_none(usage.get("output_tokens")) or 0) >= (
            count_or_none(self.usage.get("output_tokens")) or 0
        ):
            self.usage = usage
        self.stop_reason = line.message.get("stop_reason") or self.stop_reason


@dataclass
class _Lines:
    """Takes the lines of a file, then tells its runs apart."""

    format: str
    kept: list[_Line] = field(default_factory=list)
    parents: dict[str, tuple[str | None, bool]] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    cut: bool = False

    def add(self, row: Any, locator: str) -> Reading | None:
        """Take a line, or say why not."""
        self.cut = isinstance(row, Reject) and row.rule == "malformed_record"
        try:
            return self._add(row, locator)
        except RecursionError:
            return Reject(locator=locator, reason="nested too deep", rule="malformed_record")

    def _add(self, row: Any, locator: str) -> Reading | None:
        if not isinstance(row, dict):
            return (
                row
                if isinstance(row, Reject)
                else _bad_line(locator, "line is no object", "not_an_object", row)
            )
        uuid = row.get("uuid") if isinstance(row.get("uuid"), str) else None
        if uuid is not None:
            parent = row.get("parentUuid")
            side = (parent if isinstance(parent, str) else None, row.get("isSidechain") is True)
            self.parents.setdefault(uuid, side)
        refused = _refuse(row, locator)
        if refused is not None:
            return refused
        if uuid is not None and (repeated := self._repeated(uuid, row, locator)) is not None:
            return repeated
        self.kept.append(_Line(row, row["message"], locator))
        return None

    def _repeated(self, uuid: str, row: dict[str, Any], locator: str) -> Reading | None:
        message = row["message"]
        digest = xxhash.xxh3_64_intdigest(canonical(message).encode())
        known = self.messages.get(uuid)
        if known is None:
            self.messages[uuid] = digest
            return None
        if known == digest:
            return Duplicate()
        if row["type"] == "assistant" and isinstance(message.get("id"), str):
            return None  # a snapshot that grew under one uuid: merged like the other lines of its API message
        return _bad_line(locator, "another message under a uuid already read", "conflicting_uuid", row)

    def episodes(self) -> Iterator[Reading]:
        """Every run, in the order of its first line."""
        runs: dict[_Chain, list[_Line]] = {}
        roots: dict[str, str] = {}
        for line in self.kept:
            runs.setdefault(
                _Chain(text_or_none(line.row.get("sessionId")), self._root(line.row, roots)), []
            ).append(line)
        last = self.kept[-1] if self.kept else None
        ids = {chain: self._identity(chain, lines[0]) for chain, lines in runs.items()}
        for chain, lines in runs.items():
            parent = _Chain(chain.session, None)
            parent_id = ids.get(parent) or (episode_id(self.format, chain.session) if chain.session else None)
            parent_id = parent_id if chain.root is not None else None
            cut = self.cut and lines[-1] is last
            try:
                readings = list(
                    _episode(
                        lines, chain, id=ids[chain], format=self.format, parent_episode_id=parent_id, cut=cut
                    )
                )
            except RecursionError:
                where = lines[0].locator
                readings = [
                    Reject(
                        locator=where, reason="nested too deep", rule="malformed_record", records=len(lines)
                    )
                ]
            yield from readings

    def _identity(self, chain: _Chain, first: _Line) -> str:
        native = _native_id(chain)
        return episode_id(self.format, native if chain.session else canonical(first.row))

    def _root(self, row: dict[str, Any], roots: dict[str, str]) -> str | None:
        """The uuid of the first line of the sub-agent's run that a line is part of; None for the session's own lines."""
        if row.get("isSidechain") is not True:
            return None
        uuid = text_or_none(row.get("uuid")) or "sidechain"
        path: list[str] = []
        while uuid not in roots:
            path.append(uuid)
            parent = self.parents.get(uuid, (None, False))[0]
            if parent is None or parent in path or not self.parents.get(parent, (None, False))[1]:
                roots[uuid] = uuid
            else:
                uuid = parent
        roots.update(dict.fromkeys(path, roots[uuid]))
        return roots[uuid]


def _refuse(row: dict[str, Any], locator: str) -> Reject | Skip | None:
    """Why a line holds no message of a run; None when it may."""
    kind, message = row.get("type"), row.get("message")
    if kind not in ("user", "assistant"):
        known = isinstance(kind, str) and kind in OTHER_LINES
        return (
            Skip(reason=f"{kind}_line" if known else "other_line")
            if isinstance(kind, str)
            else _untyped(locator, row)
        )
    if row.get("isMeta") is True:
        return Skip(reason="meta_line")
    if not isinstance(message, dict):
        return _bad_line(locator, f"{kind} line without a message", "no_message", row)
    content = message.get("content")
    if content is None or content == "" or content == []:
        return Skip(reason="no_content")
    if not isinstance(content, str | list):
        return _bad_line(locator, "content is neither text nor a list of blocks", "bad_content", row)
    if message.get("model") == "<synthetic>":
        return Skip(reason="synthetic_line")
    return None


def _untyped(locator: str, row: dict[str, Any]) -> Reject:
    return _bad_line(locator, "line without a type", "no_type", row)


def _bad_line(locator: str, reason: str, rule: str, found: Any) -> Reject:
    return Reject(locator=locator, reason=reason, rule=rule, excerpt=excerpt(found))


def _native_id(chain: _Chain) -> str | None:
    return "/".join(part for part in chain if part) or None


def _episode(lines: list[_Line], chain: _Chain, *, id: str, cut: bool, **more: Any) -> Iterator[Reading]:
    builder = EpisodeBuilder()
    turns = _add_lines(builder, lines)
    ending, reason = _ending(builder, cut, turns[-1] if turns else None)
    model = next((m for turn in turns if (m := text_or_none(turn.line.message.get("model")))), None)
    episode = builder.finish(
        id=id,
        locator=lines[0].locator,
        records=len(lines),
        ending=ending,
        ending_reason=reason,
        native_id=_native_id(chain),
        session_id=chain.session,
        task=first_user_text(builder),
        model=model,
        policy_id=model,
        metadata=canonical(
            {
                key: value
                for key in ("version", "cwd", "gitBranch", "userType")
                if (value := lines[0].row.get(key))
            }
        ),
        **more,
    )
    yield from close(builder, episode)


def _add_lines(builder: EpisodeBuilder, lines: list[_Line]) -> list[_Turn]:
    """Gather the lines of each API message, then add everything where it began: a call stands before its results."""
    entries: list[_Turn | tuple[_Line, Parts]] = []
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
        turn = _Turn(line, parts, _usage(line.message), line.message.get("stop_reason"))
        entries.append(turn)
        if message_id is not None:
            turns[message_id] = turn
    asked: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, _Turn):
            _add_turn(builder, entry, asked)
        else:
            _add_user(builder, *entry, asked)
    return [entry for entry in entries if isinstance(entry, _Turn)]


def _add_turn(builder: EpisodeBuilder, turn: _Turn, asked: dict[str, int]) -> None:
    line, parts = turn.line, turn.parts
    pieces = parts.texts or parts.thoughts
    where = pieces[0].locator if pieces else parts.calls[0].locator if parts.calls else line.locator
    more = {
        "thought": parts.thought,
        "created_at": line.time,
        "model": text_or_none(line.message.get("model")),
        "tokens_in": _tokens_in(turn.usage),
        "tokens_out": count_or_none(turn.usage.get("output_tokens")),
    }
    builder.rejects += parts.rejects
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


def _add_user(builder: EpisodeBuilder, line: _Line, parts: Parts, asked: dict[str, int]) -> None:
    builder.rejects += parts.rejects
    for answer in parts.answers:
        _add_answer(builder, line, answer, asked)
    if parts.texts:
        builder.message("user", parts.text, parts.texts[0].locator, created_at=line.time)


def _add_answer(builder: EpisodeBuilder, line: _Line, answer: Answer, asked: dict[str, int]) -> None:
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


def _ending(builder: EpisodeBuilder, cut: bool, last_turn: _Turn | None) -> tuple[Ending, str]:
    """The format has no outcome; a run is taken as ended when its last message is the agent's reply."""
    last = builder.messages[-1] if builder.messages else None
    if cut:
        return "truncated", "the log is cut off"
    if last is not None and last.role != "assistant" and (last.content or "").startswith(INTERRUPTED):
        return "truncated", "interrupted by the user"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if last is None or last.role != "assistant" or last.content is None:
        return "truncated", "the log stops before the agent's reply"
    if last_turn is not None and last_turn.stop_reason == "max_tokens":
        return "truncated", "the model's output limit"
    return "terminal", "the agent gave its reply"
