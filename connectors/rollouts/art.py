"""Trajectories of ART (OpenPipe's trainer): groups as JSON lines, or a trajectory a row as Parquet.

An entry of `messages_and_choices` is a message that the policy was given, or a choice that it sampled: its decision. In Parquet
the flag `trainable` tells them apart, and calls are JSON text. Further histories of a trajectory are episodes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.chat import chat_ending, tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    content_id,
    episode_id,
    first_user_text,
    read_outcome,
    read_rows,
    reject,
    stopped_by,
    task_group,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.rollouts.messages import Talk, one_record, with_object
from logforge.schemas import Reading

_LISTS = ("messages_and_choices", "messages")
_TOLD = frozenset({*_LISTS, "tools", "additional_histories", "trajectories"})


class _History(NamedTuple):
    """A history, where it stands, and what it is one of: the trajectory and its group."""

    value: dict[str, Any]
    locator: str
    trajectory: dict[str, Any]
    group: dict[str, Any]
    parent: str | None


class Art:
    """ART's trajectories."""

    name = "art"
    version = 1
    record = "one group (a line), or one trajectory (a row)"
    fills = ("score", "tools", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Groups of trajectories, trajectories, or the columns that ART writes."""
        if not head.has_rows:
            return 0.0
        group = {"messages_and_choices", "reward"} <= head.keys.get("trajectories", set())
        alone = {"messages_and_choices", "reward"} <= head.top
        row = {"group_index", "messages", "reward"} <= head.top and "trainable" in head.keys.get(
            "messages", set()
        )
        return 0.95 if group or alone or row else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per history of a trajectory."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        listed = row.get("trajectories") if isinstance(row, dict) else None
        if isinstance(listed, list) and listed:
            group = {key: value for key, value in row.items() if key not in _TOLD}
            found = [
                (item, at(locator, f"/trajectories/{index}"), group) for index, item in enumerate(listed)
            ]
        else:
            found = [(row, locator, {})]
        if not all(isinstance(item, dict) and _list_of(item) for item, _, _ in found):
            yield reject(locator, "a trajectory without a list of messages", "", row)
            return
        yield from one_record([read for item in found for read in self._trajectory(*item)])

    def _trajectory(
        self, row: dict[str, Any], locator: str, group: dict[str, Any]
    ) -> Iterator[list[Reading]]:
        own = content_id(self.name, [row, group])
        yield list(self._history(own, _History(row, locator, row, group, None)))
        further = row.get("additional_histories")
        for index, value in enumerate(further if isinstance(further, list) else ()):
            where = at(locator, f"/additional_histories/{index}")
            if isinstance(value, dict) and _list_of(value):
                history = _History(value, where, row, group, own)
                yield list(self._history(episode_id(self.name, own, index), history))

    def _history(self, own: str, history: _History) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        talk, row = Talk(builder), history.trajectory
        key = _list_of(history.value) or ""
        entries = history.value[key]
        for index, entry in enumerate(entries):
            _add(talk, entry, at(history.locator, f"/{key}/{index}"))
        own_place = history.locator.rpartition("/additional_histories")[0]
        where = own_place if row is not history.value and own_place else history.locator
        outcome = read_outcome(row, where, builder.rejects, success=(), score=("reward",))
        ending, reason = chat_ending(builder, outcome.known, row)
        task = first_user_text(builder)
        kept = {k: with_object(v) for k, v in row.items() if k not in _TOLD}
        episode = builder.finish(
            id=own,
            format=self.name,
            locator=history.locator,
            ending=ending,
            ending_reason=reason,
            parent_episode_id=history.parent,
            group_id=task_group(task),
            task=task,
            model=text_or_none(row.get("model")),
            policy_id=text_or_none(row.get("model")),
            tools=tool_names(history.value.get("tools")),
            **outcome.fields(),
            metadata=canonical(kept | ({"group": history.group} if history.group else {})),
        )
        yield from close(builder, episode)


def _list_of(row: dict[str, Any]) -> str | None:
    """The key of its messages."""
    return next((key for key in _LISTS if isinstance(row.get(key), list)), None)


def _inner(entry: dict[str, Any]) -> dict[str, Any] | None:
    """The message of a choice."""
    message = entry.get("message")
    return message if isinstance(message, dict) and "role" not in entry else None


def _add(talk: Talk, entry: Any, where: str) -> None:
    inner = _inner(entry) if isinstance(entry, dict) else None
    if inner is not None:
        talk.add(inner, f"{where}/message", decided=True)
        talk.builder.cut = stopped_by(entry)
    else:
        talk.add(entry, where, decided=isinstance(entry, dict) and entry.get("trainable") is True)
