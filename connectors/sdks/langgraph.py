"""LangGraph's checkpoints in SQLite (`SqliteSaver`): a row for each state of a thread, each with all messages so far.

A record is a checkpoint. Those that lead to one end are one episode; where a thread was taken up again at an earlier state, each
end is one, whose copied calls count once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_record,
    close,
    episode_id,
    first_user_text,
    keyed,
    micros,
    object_or_empty,
    read_table,
    reject,
    text_or_none,
)
from logforge.connectors.records import (
    Database,
    Head,
    NotJson,
    Source,
    canonical,
    loads,
    sidecars,
    unpacked_value,
)
from logforge.connectors.sdks.langchain import add_messages, is_message
from logforge.connectors.sdks.talks import Placed, Told, ending_of
from logforge.schemas import Reading, Reject, Skip

_TABLE = "checkpoints"
_COLUMNS = frozenset(
    {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint"}
)


class LanggraphCheckpoints:
    """Threads in LangGraph's SQLite store."""

    name = "langgraph_checkpoints"
    version = 1
    record = "one checkpoint (a row of `checkpoints`)"
    fills = ("tokens",)

    def sniff(self, head: Head) -> float:
        """A database with LangGraph's table of checkpoints."""
        return 0.95 if head.container == "sqlite" and head.keys.get(_TABLE, set()) >= _COLUMNS else 0.0

    def companions(self, path: Path) -> list[Path]:
        """What lies beside the database while a program holds it."""
        return sidecars(path)

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per end of a thread."""
        yield from read_table(source, _TABLE, _COLUMNS, self._threads)

    def _threads(self, database: Database) -> Iterator[Reading]:
        rows = database.rows(_TABLE, order="thread_id, checkpoint_ns, checkpoint_id")
        seen = False
        for _, group in groupby(rows, _thread_of):
            states: list[_State] = []
            for locator, row in group:
                seen = True
                state = row if isinstance(row, Reject) else _state(row, f"{locator}/checkpoint")
                if isinstance(state, _State):
                    states.append(state)
                else:
                    yield state
            yield from self._ends(states)
        if not seen:
            yield Skip(reason="no_conversation")

    def _ends(self, states: list[_State]) -> Iterator[Reading]:
        by_id = {state.id: state for state in states}
        parents = {state.parent for state in states}
        ends = [state for state in states if state.id not in parents] or states[-1:]
        taken: set[str] = set()
        for end in reversed(ends):
            path = _path(end, by_id)
            fresh = [state for state in path if state.id not in taken]
            taken |= {state.id for state in path}
            yield from self._episode(path, len(fresh), is_last=end is ends[-1])

    def _episode(self, path: list[_State], records: int, *, is_last: bool) -> Iterator[Reading]:
        end, messages = path[-1], _messages(path)
        if not messages:
            if records:
                yield Skip(reason="no_conversation", records=records)
            return
        builder, told = EpisodeBuilder(), Told()
        add_messages(builder, messages, told)
        ending, reason = ending_of(builder, told, judged=False, cut=False)
        own = () if is_last else (end.id,)
        times = [time for state in (path[0], end) if (time := micros(state.value.get("ts"))) is not None]
        episode = builder.finish(
            id=episode_id(self.name, end.thread, end.space, path[0].id, *own),
            format=self.name,
            locator=end.where,
            records=records,
            ending=ending,
            ending_reason=reason,
            native_id=end.thread,
            session_id=end.thread,
            task=first_user_text(builder),
            model=told.model,
            policy_id=told.model,
            started_at=min(times, default=None),
            ended_at=max(times, default=None),
            metadata=canonical({"checkpoint_id": end.id, "checkpoint_ns": end.space} | told.more),
        )
        yield from keyed(close(builder, episode), {})


class _State(NamedTuple):
    """A checkpoint."""

    thread: str
    space: str
    id: str
    parent: str | None
    value: dict[str, Any]
    where: str


def _thread_of(found: tuple[str, dict[str, Any] | Reject]) -> tuple[str, str]:
    row = found[1]
    return ("", "") if isinstance(row, Reject) else (str(row["thread_id"]), str(row["checkpoint_ns"]))


def _state(row: dict[str, Any], where: str) -> _State | Reject:
    kind, data = row["type"], row["checkpoint"]
    try:
        value = unpacked_value(data) if kind == "msgpack" and isinstance(data, bytes) else loads(data)
    except (NotJson, TypeError) as error:
        reason = "the checkpoint is packed in a way that is not read" if kind == "pickle" else "damaged"
        return bad_record(where, reason, "malformed_record", str(error)[:200])
    thread, own = text_or_none(row["thread_id"]), text_or_none(row["checkpoint_id"])
    if not isinstance(value, dict) or thread is None or own is None:
        return reject(where, "no checkpoint of a thread", "", value)
    parent = text_or_none(row["parent_checkpoint_id"])
    return _State(thread, str(row["checkpoint_ns"] or ""), own, parent, value, f"{where}#")


def _path(end: _State, by_id: dict[str, _State]) -> list[_State]:
    """The states that led to this one, the first one first."""
    path, seen = [end], {end.id}
    while (parent := by_id.get(path[-1].parent or "")) is not None and parent.id not in seen:
        path.append(parent)
        seen.add(parent.id)
    return path[::-1]


def _messages(path: list[_State]) -> list[Placed]:
    """The messages of all states on a path, each as it was last: some may be taken out of later ones."""
    found: dict[Any, Placed] = {}
    for state in path:
        values, where = object_or_empty(state.value.get("channel_values")), f"{state.where}/channel_values"
        listed = values.get("messages")
        for index, item in enumerate(listed if isinstance(listed, list) else ()):
            message, place = _opened(item, f"{where}/messages/{index}")
            own = message.get("id") if isinstance(message, dict) else None
            found[own if isinstance(own, str) else index] = Placed(message, place)
    return list(found.values())


def _opened(item: Any, where: str) -> tuple[Any, str]:
    """A message that was packed as its class and its fields, or as it is."""
    value = item.get("value") if isinstance(item, dict) and "ext" in item else None
    if isinstance(value, list) and len(value) > 2 and is_message(value[2]):
        return value[2], f"{where}/value/2"
    return item, where
