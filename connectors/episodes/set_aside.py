"""What an episode's record held that is set aside, and whether a decision may lie in it: then nothing of it can be kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from logforge.connectors.episodes.words import Unknown, told_unknown, unknown_parts, unsaid, words_of
from logforge.connectors.records import canonical, excerpt
from logforge.schemas import Reject


class SetAside:
    """The parts of a record that are set aside, in the log's order."""

    def __init__(self) -> None:
        self.rejects: list[Reject] = []
        self.undecided: Reject | None = None
        """The first part that is not understood and in which a decision of the agent may lie: `close` sets the record aside."""

    def unknown(self, locator: str, part: Any, *, decides: bool) -> None:
        """Note a part that is not understood. `decides`: what the agent did may lie in it, or nothing else is left of its message."""
        found = Reject(
            level="part",
            locator=locator,
            reason="a part that logforge does not understand",
            rule="unknown_part",
            detail=told_unknown(part),
            excerpt=excerpt(part),
        )
        self.rejects.append(found)
        if decides and self.undecided is None:
            self.undecided = found

    def note(self, unknown: list[Unknown], *, decides: bool) -> None:
        """The same of all parts of a message that are not understood, each with its locator."""
        for place, part in unknown:
            self.unknown(place, part, decides=decides)

    def silent(self, row: dict[str, Any], read: Collection[str], locator: str, *, decides: bool) -> None:
        """Note what a message that gave no words and no call holds beside the keys that are `read`: they may stand there."""
        if found := unsaid(row, read):
            self.unknown(locator, found, decides=decides)

    def words_in(self, content: Any, locator: str, decides: bool) -> str | None:
        """The text of a message's content. What is not understood in it is noted."""
        if content is None or isinstance(content, str):
            return content
        text = words_of(content)
        for _, part in unknown_parts(content):
            self.unknown(locator, part, decides=decides or not text)
        return text

    def wordless(self, locator: str) -> None:
        """A message that has no words, not even empty ones: they may stand where nobody reads.

        Where something of it was set aside just before, that is told already.
        """
        if any(part.locator.startswith(locator) for part in self.rejects[-4:]):
            return
        reason = "a message without words where they are read"
        self.rejects.append(Reject(level="part", locator=locator, reason=reason, rule="no_words", excerpt=""))

    def without_step(self, reward: float | None, locator: str) -> None:
        """A turn that decided nothing: a reward that the log gives it belongs to no step."""
        if reward is not None:
            reason = "a reward of a turn that says and calls nothing"
            rule, told = "reward_without_step", canonical(reward)
            self.rejects.append(
                Reject(level="part", locator=locator, reason=reason, rule=rule, detail=told, excerpt=told)
            )
