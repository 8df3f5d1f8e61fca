"""Names decisions so that copies of them, in a fork or a later request's history, are known for what they are.

A copy often has other timestamps and has lost the ids of its messages. What stays is the id of a call, and the words. So a call
is named by its id and what it was. What has no id of its own is named by what was said since the last call that has one; before
the first such call, since the beginning of the session that was the first of all, where that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from logforge.connectors.episodes.identity import episode_id
from logforge.connectors.episodes.pairing import is_unique
from logforge.schemas import Episode, Message, Reading, Step

INJECTED = ("<", "# AGENTS.md")
"""How texts begin that Codex writes in the user's name: environment, instructions, notifications. A fork may have others."""


def with_decision_keys(episode: Episode, root: str | None, ids: Mapping[int, str]) -> Episode:
    """The episode with its `decision_key`s. `root` is the id of the session that was the first of all, `ids` are those of
    assistant messages by their position."""
    chain = _Chain(episode.format, root, ids)
    steps: dict[int, list[Step]] = {}
    for step in episode.steps:
        steps.setdefault(step.position, []).append(step)
    keyed = [
        step for message in episode.messages for step in chain.take(message, steps.get(message.position, []))
    ]
    return replace(episode, steps=keyed)


def keyed(readings: Iterable[Reading], ids: Mapping[int, str]) -> Iterator[Reading]:
    """The readings, each episode with its `decision_key`s. `ids` are those of responses by the position of their messages.

    A later log may hold the conversation without these responses. So they name only what stands before the first call that has
    an id of its own: from there on the words do.
    """
    for reading in readings:
        if isinstance(reading, Episode):
            unique = (step.position for step in reading.steps if is_unique(step.tool_call_id))
            first = next(unique, len(reading.messages))
            early = {position: own for position, own in ids.items() if position < first}
            reading = with_decision_keys(reading, None, early)
        yield reading


class _Chain:
    """What was said since the last thing that is unique everywhere."""

    def __init__(self, format: str, root: str | None, ids: Mapping[int, str]) -> None:
        self.format, self.ids = format, ids
        self.since = None if root is None else episode_id(format, "session", root)

    def take(self, message: Message, steps: list[Step]) -> list[Step]:
        """The steps of a message with their keys; then the message is part of what was said."""
        keyed = [replace(step, decision_key=self._key(step, message)) for step in steps]
        if steps or (message.role == "user" and not (message.content or "").lstrip().startswith(INJECTED)):
            self._say(message.role, message.content)
        for step in keyed:
            if is_unique(step.tool_call_id):
                self.since = step.decision_key
            elif step.kind == "tool":
                self._say(step.action, step.tool_call_id, step.arguments)
        return keyed

    def _say(self, *what: object) -> None:
        if self.since is not None:
            self.since = episode_id(self.format, self.since, *what)

    def _key(self, step: Step, message: Message) -> str | None:
        own = self.ids.get(message.position)
        own = own if is_unique(own) else None
        if is_unique(step.tool_call_id):
            return episode_id(self.format, step.tool_call_id, step.action, step.arguments)
        if step.kind != "tool" and own is not None:
            return episode_id(self.format, own, message.content)
        since = self.since or own
        if since is None:
            return None
        said = message.content if step.kind != "tool" else None
        return episode_id(self.format, since, step.action, step.tool_call_id, step.arguments, said)
