"""Cursor's `state.vscdb`: a SQLite database with a row for each conversation and one for each bubble of it.

Key `composerData:ID` names the bubbles in order (or, in older versions, holds them); `bubbleId:ID:BUBBLE` is one of them. A
record is a conversation; a bubble of a conversation that is gone is one too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from logforge.connectors.editors.cursor_bubbles import Bubbles, described, parent_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    episode_id,
    first_user_text,
    native_or_content,
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
    json_cell,
    loads,
    sidecars,
)
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

_TABLE = "cursorDiskKV"
_COMPOSERS = "composerData:"
_BUBBLES = "bubbleId:"
_STOPPED = {
    "aborted": "the user stopped it",
    "cancelled": "the user stopped it",
    "error": "an error ended it",
    "generating": "the log stops within a response",
}


class Cursor:
    """Conversations of Cursor."""

    name = "cursor"
    version = 1
    record = "one conversation (a row `composerData:…`), or a bubble whose conversation is gone"
    fills = ("thoughts", "tokens", "times")

    def sniff(self, head: Head) -> float:
        """A database with Cursor's table of keys and values."""
        return 0.95 if head.container == "sqlite" and head.keys.get(_TABLE) == {"key", "value"} else 0.0

    def companions(self, path: Path) -> list[Path]:
        """What lies beside the database while Cursor runs."""
        return sidecars(path)

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation."""
        yield from read_table(source, _TABLE, ("key", "value"), self._conversations)

    def _conversations(self, database: Database) -> Iterator[Reading]:
        seen = named = 0
        for locator, row in database.rows(_TABLE, where="key >= ? AND key < ?", values=_range(_COMPOSERS)):
            seen += 1
            if isinstance(row, Reject):
                yield row
            elif row["value"] is None:
                yield Skip(reason="empty_document")
            else:
                name = str(row["key"]).removeprefix(_COMPOSERS)
                named += database.count(_TABLE, "key >= ? AND key < ?", _range(f"{_BUBBLES}{name}:"))
                yield from self._conversation(database, name, row["value"], f"{locator}/value#")
        alone = database.count(_TABLE, "key >= ? AND key < ?", _range(_BUBBLES)) - named
        if alone > 0:
            yield Skip(reason="bubble_without_conversation", records=alone)
        if not seen and alone <= 0:
            yield Skip(reason="no_conversation")

    def _conversation(self, database: Database, name: str, value: Any, locator: str) -> Iterator[Reading]:
        composer = json_cell(value, locator.removesuffix("#"))
        if isinstance(composer, Reject):
            yield composer
            return
        if not isinstance(composer, dict):
            yield reject(locator, "no conversation", "", composer)
            return
        bubbles, builder = Bubbles(), EpisodeBuilder()
        bubbles.transcript.model = text_or_none(object_or_empty(composer.get("modelConfig")).get("modelName"))
        model = bubbles.transcript.model
        bubbles.transcript.rejects += _gather(database, name, composer, locator, bubbles)
        bubbles.settle()
        bubbles.transcript.build(builder)
        yield from close(builder, self._episode(builder, name, composer, locator, model))

    def _episode(
        self, builder: EpisodeBuilder, name: str, composer: dict[str, Any], locator: str, model: str | None
    ) -> Episode:
        ending, reason = _ending(builder, composer)
        parent = parent_of(composer)
        model = next((message.model for message in builder.messages if message.model), model)
        return builder.finish(
            id=native_or_content(self.name, name, [name, composer]),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=name,
            session_id=name,
            parent_episode_id=episode_id(self.name, parent.lower()) if parent else None,
            task=first_user_text(builder),
            model=model,
            policy_id=model,
            metadata=described(composer),
        )


def _range(prefix: str) -> tuple[str, str]:
    """Keys that begin so, as a range that the table's index serves."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _gather(
    database: Database, name: str, composer: dict[str, Any], locator: str, bubbles: Bubbles
) -> Iterator[Reject]:
    """Hand over the conversation's bubbles in order; those that cannot be read, or that it does not name, are told."""
    headers = composer.get("fullConversationHeadersOnly")
    if not isinstance(headers, list) or not headers:
        held = composer.get("conversation")
        for index, bubble in enumerate(held if isinstance(held, list) else ()):
            bubbles.add(bubble, f"{locator}/conversation/{index}")
        headers = []
    found = 0
    for index, header in enumerate(headers):
        bubble_id = header.get("bubbleId") if isinstance(header, dict) else None
        place = f"{locator}/fullConversationHeadersOnly/{index}"
        if not isinstance(bubble_id, str):
            yield bad_part(place, "a bubble without an id", "bad_message", header)
            continue
        row = next(database.rows(_TABLE, where="key = ?", values=(f"{_BUBBLES}{name}:{bubble_id}",)), None)
        if row is None:
            yield bad_part(place, "a bubble that is not in the database", "bad_message", header)
            continue
        found += 1
        where, cells = row
        if isinstance(cells, Reject):
            yield msgspec.structs.replace(cells, level="part")
            continue
        try:
            bubbles.add(loads(cells["value"]), f"{where}/value#")
        except (NotJson, TypeError):
            yield bad_part(f"{where}/value", "a bubble that is no JSON", "malformed_record", cells["value"])
    left = database.count(_TABLE, "key >= ? AND key < ?", _range(f"{_BUBBLES}{name}:")) - found
    if left > 0:
        reason = "bubbles that the conversation does not name: taken back, or of another branch"
        yield bad_part(locator, reason, "other_branch", f"{left:,} bubbles")


def _ending(builder: EpisodeBuilder, composer: dict[str, Any]) -> tuple[Ending, str]:
    status = composer.get("status")
    if isinstance(status, str) and status in _STOPPED:
        return "truncated", _STOPPED[status]
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"
