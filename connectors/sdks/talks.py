"""Conversations that SDKs keep as lists of messages: rows with a list, bare lists, and lines that are single messages.

A record is one conversation where it holds its messages. In a bare list, and where lines are single messages, it is one
message; those of one conversation are one episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from logforge.connectors.chat import chat_ending, tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    content_id,
    cut_by,
    failure_in,
    first_number,
    first_text,
    first_user_text,
    limit_met,
    read_outcome,
    read_rows,
    reject,
)
from logforge.connectors.records import NeedsWhole, Source, at, canonical
from logforge.connectors.sdks.pieces import parsed
from logforge.schemas import Ending, Reading, Reject, Skip

SESSION_KEYS = ("chatId", "chat_id", "session_id", "sessionId", "conversation_id", "thread_id", "threadId")
"""Keys that tell the conversation of a row, or of a line that is a single message."""


class Placed(NamedTuple):
    """A message and where it stands."""

    message: Any
    where: str


@dataclass
class Told:
    """What a conversation's messages tell beside what was said. The last one that says why it stopped decides."""

    stop: str | None = None
    cut: str | None = None
    """Why the last answer is not whole, where no reason to stop says it."""
    ended: str | None = None
    """Why the run came to its end, where the log says so."""
    model: str | None = None
    temperature: float | None = None
    tools: list[str] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """What else belongs to the episode's metadata."""


AddMessages = Callable[[EpisodeBuilder, list[Placed], Told], None]
AddRow = Callable[[EpisodeBuilder, dict[str, Any], str, Told], None]


class Sdk(NamedTuple):
    """What differs between SDKs."""

    name: str
    keys: tuple[str, ...]
    """Where a row may have its messages."""
    is_message: Callable[[Any], bool]
    """A line or an element of a list that is a message on its own."""
    add: AddMessages
    add_row: AddRow | None = None
    """What a row says beside its messages, and before them: system prompt, tools, settings."""
    builder: type[EpisodeBuilder] = EpisodeBuilder
    passes: Callable[[Any], bool] = lambda value: False
    """True for a record that holds no message by its nature."""


def read_talks(sources: Iterable[Source], sdk: Sdk) -> Iterator[Reading]:
    """One episode per conversation; those made of single messages come at the end. The first source is the one that is read,
    others are its companions."""
    parts = list(sources)
    bare: dict[str | None, list[Placed]] = {}
    latest: str | None = None
    cut = False

    def row(value: Any, locator: str) -> Iterator[Reading]:
        nonlocal latest
        if isinstance(value, list):
            yield from _listed(sdk, value, {}, locator, locator)
        elif isinstance(value, dict) and (key := list_key(value, sdk.keys)) is not None:
            messages, where = parsed(value_at(value, key), at(locator, f"/{key}"))
            yield from _listed(sdk, messages, value, where, locator)
        elif sdk.passes(value):
            yield Skip(reason="other_line")
        elif sdk.is_message(value):
            if parts[0].span:
                raise NeedsWhole
            latest = first_text(value, *SESSION_KEYS)
            bare.setdefault(latest, []).append(Placed(value, locator))
        else:
            yield reject(locator, f"no list under {' or '.join(sdk.keys)}", "", value)

    for reading in chain.from_iterable(read_rows(part, row) for part in parts):
        cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
        yield reading
    for session, messages in bare.items():
        place, torn = messages[0].where, cut and session == latest
        yield from _episode(sdk, messages, {}, place, session, records=len(messages), cut=torn)


def list_key(row: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of these keys under which a list stands, or the JSON text of one. A key may lead into an object: `values/messages`."""
    return next((key for key in keys if _is_list(value_at(row, key))), None)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip()[:1] == "[")


def value_at(row: dict[str, Any], key: str) -> Any:
    """What stands under a key, which may lead into an object."""
    outer, _, inner = key.partition("/")
    found = row.get(outer)
    return found.get(inner) if inner and isinstance(found, dict) else None if inner else found


def _without(row: dict[str, Any], key: str | None) -> dict[str, Any]:
    """A row without the list that stands there."""
    outer, _, inner = (key or "").partition("/")
    rest = {name: value for name, value in row.items() if name not in (outer, "tools")}
    found = row.get(outer)
    if inner and isinstance(found, dict):
        rest[outer] = {name: value for name, value in found.items() if name != inner}
    return rest


def _listed(sdk: Sdk, messages: Any, row: dict[str, Any], where: str, locator: str) -> Iterator[Reading]:
    if not isinstance(messages, list):
        yield Reject(
            locator=locator,
            reason="its messages are text that is no JSON (cut off or damaged)",
            rule="malformed_record",
            excerpt=str(messages)[:200],
        )
        return
    placed = [Placed(message, at(where, f"/{index}")) for index, message in enumerate(messages)]
    yield from _episode(sdk, placed, row, locator, None)


def _episode(
    sdk: Sdk,
    messages: list[Placed],
    row: dict[str, Any],
    locator: str,
    session: str | None,
    *,
    records: int = 1,
    cut: bool = False,
) -> Iterator[Reading]:
    builder = sdk.builder()
    told = Told()
    if sdk.add_row is not None:
        sdk.add_row(builder, row, locator, told)
    sdk.add(builder, messages, told)
    outcome = read_outcome(row, locator, builder.rejects).void(failure_in(row))
    told.cut = told.cut or cut_by(row)
    ending = ending_of(builder, told, judged=outcome.known, cut=cut)
    model = told.model or first_text(row, "model", "model_id", "modelId")
    listed = list_key(row, sdk.keys)
    metadata = _without(row, listed) | told.more
    temperature = told.temperature
    episode = builder.finish(
        id=content_id(sdk.name, row or [message.message for message in messages]),
        format=sdk.name,
        locator=locator,
        records=records,
        ending=ending[0],
        ending_reason=ending[1],
        native_id=session or first_text(row, "id", *SESSION_KEYS),
        session_id=session or first_text(row, *SESSION_KEYS),
        task_id=first_text(row, "task_id"),
        task=first_user_text(builder),
        user_id=first_text(row, "user_id", "userId"),
        model=model,
        policy_id=first_text(row, "policy_id") or model,
        temperature=first_number(row, "temperature") if temperature is None else temperature,
        tools=tool_names(row.get("tools")) if told.tools is None else told.tools,
        **outcome.fields(),
        metadata=canonical(metadata),
    )
    yield from close(builder, episode)


def ending_of(builder: EpisodeBuilder, told: Told, *, judged: bool, cut: bool) -> tuple[Ending, str]:
    """A cut log and an answer that was cut off are no end; else as in any chat."""
    if cut:
        return "truncated", "the log is cut off"
    if told.cut is not None:
        return "truncated", told.cut
    if told.stop is not None and (why := limit_met(told.stop)) is not None:
        return "truncated", why
    if told.ended is not None:
        return "terminal", told.ended
    return chat_ending(builder, judged)
