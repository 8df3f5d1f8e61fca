"""Stores a batch of sources in one transaction, in place of what they brought before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from logforge.connectors.records import NeedsWhole
from logforge.core import Scope, Tick, concat, per, rows_table, stage
from logforge.ingestion.batches import label_of
from logforge.ingestion.ownership import remove_sources, resolve
from logforge.ingestion.packed import discard
from logforge.ingestion.reading import Chunk, Group, SourceReading, read_lazily
from logforge.ingestion.settling import settle_labels
from logforge.schemas import SOURCES
from logforge.store import Store


@dataclass
class Meter:
    """Bytes done of those to read, and the callback that shows them."""

    tick: Tick
    total: int
    done: int = 0

    def show(self, part: int, label: str) -> None:
        """Show a part of the batch at hand as done."""
        self.tick(min(self.done + part, self.total), self.total, label)

    def add(self, size: int, label: str) -> None:
        """Count a batch as done."""
        self.done += size
        self.show(0, label)


@stage(
    per(Scope.BATCH, "one transaction: rows in place of what the sources brought before, owners of copies")
)
def commit(store: Store, groups: list[Group], meter: Meter) -> None:
    """Store some sources in one transaction, in place of what they brought before."""
    try:
        _store(store, groups, meter)
    except NeedsWhole:  # a source of a transaction of its own, and nothing of it is stored
        _store(store, [read_lazily(groups[0].readings[0].job)], meter)
    discard(reading.job for group in groups for reading in group.readings)


def _store(store: Store, groups: list[Group], meter: Meter) -> None:
    readings = [reading for group in groups for reading in group.readings]
    lost: Counter[str] = Counter()
    stored = 0
    with store.transaction():
        replaced = {identifier for reading in readings for identifier in reading.job.replaces}
        remove_sources(store, {reading.job.source_id for reading in readings} | replaced)
        for chunk in _merged(groups):
            resolved = resolve(store, chunk)
            lost.update(resolved.lost)
            store.insert("episodes", resolved.tables.episodes)
            store.insert("messages", resolved.tables.messages)
            store.insert("steps", resolved.tables.steps)
            store.insert("copies", resolved.copies)
            store.insert("quarantine", resolved.quarantine)
            store.insert("secrets", resolved.secrets)
            stored += resolved.tables.messages.nbytes
            meter.show(stored, label_of(groups))
        store.insert("sources", rows_table(SOURCES, [_source_row(reading) for reading in readings]))
        for source_id, records in lost.items():
            store.con.execute(
                "UPDATE sources SET kept = kept - ?, duplicates = duplicates + ? WHERE source_id = ?",
                [records, records, source_id],
            )
        settle_labels(store)


def _merged(groups: list[Group]) -> Iterator[Chunk]:
    """All groups' chunks as one, but those that hold an episode another holds too: these come in turn, so that copies
    meet."""
    if len(groups) == 1:
        yield from groups[0].chunks
        return
    chunks = [chunk for group in groups for chunk in group.chunks]
    counts = Counter(identifier for chunk in chunks for identifier in chunk.copies["episode_id"].to_pylist())
    twice = {identifier for identifier, count in counts.items() if count > 1}
    alone = [bool(twice) and not twice.isdisjoint(chunk.copies["episode_id"].to_pylist()) for chunk in chunks]
    together = [chunk for chunk, single in zip(chunks, alone, strict=True) if not single]
    if together:
        yield Chunk(
            concat([chunk.tables for chunk in together]),
            pa.concat_tables([chunk.copies for chunk in together]),
            pa.concat_tables([chunk.quarantine for chunk in together]),
            pa.concat_tables([chunk.secrets for chunk in together]),
        )
    yield from (chunk for chunk, single in zip(chunks, alone, strict=True) if single)


def _source_row(reading: SourceReading) -> dict[str, object]:
    job, counts = reading.job, reading.counts
    return {
        "source_id": job.source_id,
        "path": job.label,
        "format": reading.format,
        "connector_version": reading.connector_version,
        "bytes": job.size,
        "sha256": job.sha256,
        "settings": reading.settings or job.settings,
        "records": counts.records,
        "kept": counts.kept,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "skipped": counts.skipped,
        "skip_reasons": list(counts.skip_reasons.items()),
        "redactions": reading.redactions,
        "ingested_at": datetime.now(UTC).replace(tzinfo=None),
    }
