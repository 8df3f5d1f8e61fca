"""Raw logs into the store: each source whole or not at all, nothing lost, a second run changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import xxhash

from logforge import connectors
from logforge.connectors.base import Connector
from logforge.connectors.mapping import load_mapping
from logforge.discover import Found, Verdict, check_paths, find, same_place, sha256_of
from logforge.frames import concat, rows_table
from logforge.ingest_report import IngestReport, report_of
from logforge.ownership import Orphan, orphans, remove_sources, resolve
from logforge.progress import Tick, silent
from logforge.reading import Chunk, Job, ReadOptions, SourceReading, read_source, read_whole
from logforge.resumed import settle
from logforge.schemas.errors import StoreError
from logforge.schemas.tables import QUARANTINE, SOURCES
from logforge.store import Store

STREAM_BYTES = 64 << 20
"""A larger source is read and stored piece by piece in its own transaction."""
COMMIT_BYTES = 32 << 20
"""Smaller sources share a transaction until together they reach this size."""
COMMIT_SOURCES = 1000
"""Or this number."""
POOL_BYTES = 48 << 20
"""Less than this in all is read without worker processes: starting them would cost more."""


class Key(NamedTuple):
    """What a source was read from and with."""

    sha256: str
    format: str | None
    version: int | None
    settings: str


def read_options(
    paths: Iterable[str | Path], format: str | None, mapping: str | Path | None, strict_arguments: bool
) -> ReadOptions:
    """The options of a request, checked before anything is made: unknown formats, wrong mappings, paths that are not there."""
    if format is not None:
        connectors.get(format)
    check_paths(paths)
    return ReadOptions(format, None if mapping is None else load_mapping(mapping), strict_arguments)


def ingest(
    store: Store,
    paths: Iterable[str | Path],
    *,
    format: str | None = None,
    mapping: str | Path | None = None,
    strict_arguments: bool = False,
    workers: int = 1,
    progress: Tick = silent,
) -> IngestReport:
    """Read every file at or below `paths` into the store.

    `format` forces a connector by name; `mapping` is a YAML file that describes a shape of your own. `strict_arguments`
    refuses to mend damaged arguments and names. `workers` is the number of reading processes; more than one needs the
    caller's `if __name__ == "__main__":` guard, as every process pool does. Raises UnknownName for an unknown format,
    SpecError for a wrong mapping, InputError for a path that does not exist, StoreError when the store cannot be written.
    Bad input never raises: it is quarantined.
    """
    paths = list(paths)
    options = read_options(paths, format, mapping, strict_arguments)
    known = _known(store)
    own = {path.resolve() for path in (store.path, store.path.with_name(store.path.name + ".wal"))}
    found = [item for item in find(paths, store.path.parent) if item.path not in own]
    jobs = [_job(item, options, progress, index, len(found)) for index, item in enumerate(found)]
    fresh = [job for job in jobs if not _unchanged(job, known.get(job.source_id))]
    kept_as_is = {job.source_id for job in jobs} - {job.source_id for job in fresh}
    # Small checkpoints rewrite the file again and again; none at all keeps every committed row in memory.
    store.con.execute("SET checkpoint_threshold = '64MB'")
    done = _run(store, fresh, workers, progress, options.mapping)
    store.con.execute("CHECKPOINT")
    return report_of(store, sorted(done), sorted(kept_as_is - done))


def _known(store: Store) -> dict[str, Key]:
    rows = store.con.sql(
        "SELECT source_id, sha256, format, connector_version, settings FROM sources"
    ).fetchall()
    return {row[0]: Key(*row[1:]) for row in rows}


def _job(item: Found, options: ReadOptions, tick: Tick, index: int, total: int) -> Job:
    tick(index, total, f"looking at {item.label}")
    identifier = xxhash.xxh3_128_hexdigest(item.label.encode())
    verdict, digest, size = item.verdict, "", 0
    try:
        if verdict is None:
            size = sum(path.stat().st_size for path in (item.path, *item.companions))
            digest = sha256_of(item.path, *item.companions)
    except OSError as error:
        verdict = Verdict(None, True, "unreadable_file", f"the file cannot be read: {error.strerror}")
    return Job(item.path, item.label, identifier, digest, size, options, item.companions, verdict)


def _unchanged(job: Job, known: Key | None) -> bool:
    """Same bytes, read by the same version of the same connector with the same settings.

    What a connector read that is not here now (a mapping that is not given, a package that is gone) stays as it is.
    """
    if known is None or (known.sha256, known.settings) != (job.sha256, job.options.settings):
        return False
    here = {**connectors.registry()}
    if job.options.mapping is not None:
        here[job.options.mapping.name] = job.options.mapping
    if known.format is None:
        return known.version == job.options.unread_version
    return known.format not in here or here[known.format].version == known.version


@dataclass
class _Meter:
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


def _run(store: Store, jobs: list[Job], workers: int, tick: Tick, mapping: Connector | None) -> set[str]:
    """Read and store the jobs, then the sources whose copies of ownerless episodes take over. Returns the ids read."""
    done: set[str] = set()
    tried: set[str] = set()
    again: set[str] = set()
    while True:
        meter = _Meter(tick, sum(job.size for job in jobs))
        for batch in _batches(_readings(jobs, workers)):
            _commit(store, batch, meter)
            done |= {reading.job.source_id for reading in batch}
            meter.add(sum(reading.job.size for reading in batch), batch[-1].job.label)
        stale = settle(store)
        tried -= stale - again  # read once more, even when it was read in this run before the others came
        again |= stale
        jobs = _successors(store, tried, mapping)
        tried |= {job.source_id for job in jobs}
        if not jobs:
            return done


def _successors(store: Store, tried: set[str], mapping: Connector | None) -> list[Job]:
    """The sources whose copies take over the ownerless episodes: of each, the best whose file is there.

    A copy whose file is gone cannot be read again; that is said in the quarantine.
    """
    home = store.path.resolve().parent
    readable = {*connectors.registry(), *([mapping.name] if mapping else [])}
    chosen: dict[str, Job] = {}
    gone: list[Orphan] = []
    for copies in orphans(store).values():
        here = (copy for copy in copies if copy.source_id not in tried and copy.format in readable)
        places = ((copy, same_place(copy.path, home)) for copy in here)
        found = next(((copy, place) for copy, place in places if place is not None), None)
        if found is None:
            gone.append(copies[0])
        elif found[0].source_id not in chosen:
            copy, place = found
            chosen[copy.source_id] = _job(place, ReadOptions.of(copy.settings, mapping), silent, 0, 1)
    if not chosen:
        _say_gone(store, gone)
    return list(chosen.values())


def _say_gone(store: Store, gone: list[Orphan]) -> None:
    said = store.con.sql("SELECT episode_id FROM quarantine WHERE rule = 'copy_gone' ORDER BY 1").fetchall()
    if [row[0] for row in said] == sorted(copy.episode_id for copy in gone):
        return
    with store.transaction():
        store.con.execute("DELETE FROM quarantine WHERE rule = 'copy_gone'")
        rows = [
            {
                "level": "part",
                "source_id": copy.source_id,
                "episode_id": copy.episode_id,
                "locator": copy.path,
                "reason": "the file that held this episode is gone, and the file it was stored from no longer has it",
                "rule": "copy_gone",
                "records": 0,
            }
            for copy in gone
        ]
        store.insert("quarantine", rows_table(QUARANTINE, rows))


def _readings(jobs: list[Job], workers: int) -> Iterator[SourceReading]:
    """The jobs' readings in their order; large sources come unread, the others whole."""
    many = workers > 1 and len(jobs) > 1 and sum(job.size for job in jobs) >= POOL_BYTES
    pool = ProcessPoolExecutor(workers, get_context("forkserver")) if many else None
    with pool or nullcontext():
        waiting: list[Future[SourceReading] | SourceReading] = []
        for job in jobs:
            if job.size > STREAM_BYTES:
                waiting.append(read_source(job))
            else:
                waiting.append(pool.submit(read_whole, job) if pool else read_whole(job))
            if pool is None or len(waiting) > 4 * workers:
                yield _ready(waiting.pop(0))
        while waiting:
            yield _ready(waiting.pop(0))


def _ready(item: Future[SourceReading] | SourceReading) -> SourceReading:
    try:
        return item.result() if isinstance(item, Future) else item
    except BrokenProcessPool:
        reason = "a reading process died (out of memory, or the caller lacks a __main__ guard)"
        raise StoreError("ingest", reason, "use --workers 1; what was stored so far is whole") from None


def _batches(readings: Iterator[SourceReading]) -> Iterator[list[SourceReading]]:
    """Groups of sources that share a transaction."""
    batch: list[SourceReading] = []
    size = 0
    for reading in readings:
        if reading.job.size > STREAM_BYTES:
            yield [reading]
            continue
        batch.append(reading)
        size += reading.job.size
        if size >= COMMIT_BYTES or len(batch) >= COMMIT_SOURCES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _commit(store: Store, readings: list[SourceReading], meter: _Meter) -> None:
    """Store some sources in one transaction, in place of what they brought before."""
    lost: Counter[str] = Counter()
    stored = 0
    with store.transaction():
        remove_sources(store, [reading.job.source_id for reading in readings])
        for chunk in _merged(readings):
            resolved = resolve(store, chunk)
            lost.update(resolved.lost)
            store.insert("episodes", resolved.tables.episodes)
            store.insert("messages", resolved.tables.messages)
            store.insert("steps", resolved.tables.steps)
            store.insert("copies", resolved.copies)
            store.insert("quarantine", chunk.quarantine)
            stored += resolved.tables.messages.nbytes
            meter.show(stored, readings[-1].job.label)
        store.insert("sources", rows_table(SOURCES, [_source_row(reading) for reading in readings]))
        for source_id, records in lost.items():
            store.con.execute(
                "UPDATE sources SET kept = kept - ?, duplicates = duplicates + ? WHERE source_id = ?",
                [records, records, source_id],
            )


def _merged(readings: list[SourceReading]) -> Iterator[Chunk]:
    """All readings' chunks as one, but those that hold an episode another holds too: these come in turn, so that copies
    meet."""
    if len(readings) == 1:
        yield from readings[0].chunks
        return
    chunks = [chunk for reading in readings for chunk in reading.chunks]
    counts = Counter(identifier for chunk in chunks for identifier in chunk.copies["episode_id"].to_pylist())
    twice = {identifier for identifier, count in counts.items() if count > 1}
    alone = [bool(twice) and not twice.isdisjoint(chunk.copies["episode_id"].to_pylist()) for chunk in chunks]
    together = [chunk for chunk, single in zip(chunks, alone, strict=True) if not single]
    if together:
        yield Chunk(
            concat([chunk.tables for chunk in together]),
            pa.concat_tables([chunk.copies for chunk in together]),
            pa.concat_tables([chunk.quarantine for chunk in together]),
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
        "settings": job.options.settings,
        "records": counts.records,
        "kept": counts.kept,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "skipped": counts.skipped,
        "skip_reasons": list(counts.skip_reasons.items()),
        "redactions": 0,
        "ingested_at": datetime.now(UTC).replace(tzinfo=None),
    }
