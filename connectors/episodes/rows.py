"""What connectors share whose record is one conversation: reading row by row, and closing an episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from logforge.connectors.episodes.builder import EpisodeBuilder
from logforge.connectors.episodes.samples import Samples
from logforge.connectors.records import Database, Source, described, excerpt, open_database
from logforge.schemas import Episode, Reading, Reject, Skip

ReadRow = Callable[[Any, str], Iterator[Reading]]
"""Reads one record (its parsed value and locator)."""


def read_rows(source: Source, read_row: ReadRow) -> Iterator[Reading]:
    """Read a source whose records are conversations. A record that is no JSON, or nested too deep, is set aside alone."""
    samples = Samples() if source.samples else None
    for locator, row in source.records():
        if isinstance(row, Reject):
            yield row
            continue
        try:
            readings = list(read_row(row, locator))
        except RecursionError:
            readings = [Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")]
        yield from readings if samples is None else samples.told(row, readings)


def read_table(
    source: Source, table: str, columns: Collection[str], read: Callable[[Database], Iterator[Reading]]
) -> Iterator[Reading]:
    """Read a database that has a table with these columns. One without, or that cannot be opened, is set aside."""
    with open_database(source) as database:
        if isinstance(database, Reject):
            yield database
        elif set(columns) <= set(database.tables.get(table, ())):
            yield from read(database)
        else:
            yield reject(f"{source.label}#", f"no table {table}", "", sorted(database.tables))


def reject(locator: str, reason: str, detail: str, row: Any) -> Reject:
    """A whole record set aside."""
    return Reject(
        locator=locator,
        reason=reason,
        rule="not_a_conversation",
        detail=detail or described(row),
        excerpt=excerpt(row),
    )


def _counted(parts: list[Reject]) -> str:
    counts = Counter(part.rule for part in parts)
    return "set aside: " + ", ".join(f"{count} × {rule}" for rule, count in counts.most_common())


def close(builder: EpisodeBuilder, episode: Episode) -> Iterator[Reading]:
    """The episode and the parts of it that were set aside.

    A conversation of which no message is left is none. Neither is one with a part in which a decision may lie that nobody
    understood: it is set aside whole.
    """
    undecided = builder.undecided
    if undecided is not None:
        yield msgspec.structs.replace(
            undecided,
            level="record",
            locator=episode.locator,
            records=episode.records,
            detail=_unknown(undecided),
        )
    elif episode.messages:
        yield episode
    elif builder.rejects:
        yield Reject(
            locator=episode.locator,
            reason="no message of it can be kept",
            rule="no_message",
            detail=_counted(builder.rejects),
            records=episode.records,
        )
    else:
        yield Skip(reason="empty_conversation", records=episode.records)
    kept = episode.episode_id if episode.messages and undecided is None else None
    for part in builder.rejects:
        yield msgspec.structs.replace(part, episode_id=kept)


def _unknown(part: Reject) -> str:
    return f"at {part.locator}: {part.detail}; the decision that may lie in it is not known, so no decision of the record is kept"


def first_user_text(builder: EpisodeBuilder) -> str | None:
    """The first user message before any decision: the task as the agent saw it."""
    for message in builder.messages:
        if message.role == "user":
            return message.content
        if message.role == "assistant":
            return None
    return None


def first_number(row: dict[str, Any], *keys: str) -> float | None:
    """The first of these keys that holds a finite number."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            return float(value)
    return None


def first_bool(row: dict[str, Any], *keys: str) -> bool | None:
    """The first of these keys that holds a truth value."""
    return next((row[key] for key in keys if isinstance(row.get(key), bool)), None)
