"""Raw logs into the store: each source whole or not at all, nothing lost, a second run changes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import xxhash

from logforge import connectors
from logforge.discover import Found, find, sha256_of
from logforge.frames import concat, rows_table
from logforge.ingest_report import IngestReport, report_of
from logforge.ownership import remove_source, resolve
from logforge.reading import Chunk, Job, SourceReading, read_source, read_whole
from logforge.schemas.tables import SOURCES
from logforge.store import Store

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all and the source at hand."""

SETTINGS = '{"redaction":"none"}'
"""What else besides a source's bytes and connector decides the rows it gives."""

STREAM_BYTES = 64 << 20
"""A larger source is read and stored piece by piece in its own transaction."""
COMMIT_BYTES = 32 << 20
"""Smaller sources share a transaction until together they reach this size."""
POOL_BYTES = 48 << 20
"""Less than this in all is read without worker processes: starting them would cost more."""


def ingest(
    store: Store,
    paths: Iterable[str | Path],
    *,
    format: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Read every file at or below `paths` into the store.

    `format` forces a connector by name. `workers` is the number of reading processes (None: one per core for large
    inputs). Raises UnknownName for an unknown format, InputError for a path that does not exist, StoreError when the
    store cannot be written. Bad input never raises: it is quarantined.
    """
    if format is not None:
        connectors.get(format)
    known = _known(store)
    found = find(paths, store.path.parent)
    jobs = [job for item in found if _is_ours(item, store) and (job := _job(item, format))]
    fresh = [job for job in jobs if not _unchanged(job, known)]
    unchanged = [job.source_id for job in jobs if _unchanged(job, known)]
    tick = progress or (lambda done, total, label: None)
    store.con.execute("SET checkpoint_threshold = '4GB'")
    done = _run(store, fresh, {row[0] for row in known}, workers, tick)
    store.con.execute("CHECKPOINT")
    return report_of(store, done, unchanged)


def _is_ours(item: Found, store: Store) -> bool:
    """The store itself and its write-ahead log may lie among the logs."""
    return not item.path.resolve().as_posix().startswith(store.path.resolve().as_posix())


def _known(store: Store) -> set[tuple[str, str, str | None, int | None, str]]:
    return set(
        store.con.sql("SELECT source_id, sha256, format, connector_version, settings FROM sources").fetchall()
    )


def _job(item: Found, format: str | None) -> Job:
    identifier = xxhash.xxh3_128_hexdigest(item.label.encode("utf-8", "surrogateescape"))
    size = sum(path.stat().st_size for path in (item.path, *item.companions))
    digest = sha256_of(item.path, *item.companions)
    return Job(item.path, item.label, identifier, digest, size, format, item.companions)


def _unchanged(job: Job, known: set[tuple[str, str, str | None, int | None, str]]) -> bool:
    """Same bytes, read by the same version of the same connector with the same settings."""
    if job.format is not None:
        versions: list[tuple[str | None, int | None]] = [(job.format, connectors.get(job.format).version)]
    else:
        versions = [(name, connector.version) for name, connector in connectors.registry().items()]
        versions.append((None, connectors.registry_version()))
    return any((job.source_id, job.sha256, *version, SETTINGS) in known for version in versions)


def _run(store: Store, jobs: list[Job], known: set[str], workers: int | None, tick: Progress) -> list[str]:
    """Read and store the jobs, then those whose copies came free. Returns the ids of the sources read."""
    done: list[str] = []
    total = sum(job.size for job in jobs)
    finished = 0
    while jobs:
        heirs: set[str] = set()
        for batch in _batches(_readings(jobs, workers)):
            heirs |= _commit(store, batch, known)
            done += [reading.job.source_id for reading in batch]
            finished += sum(reading.job.size for reading in batch)
            tick(min(finished, total), total, batch[-1].job.label)
        known = known | set(done)
        read = set(done)
        jobs = [job for job in _heir_jobs(store, heirs) if job.source_id not in read]
    return done


def _heir_jobs(store: Store, labels: set[str]) -> Iterator[Job]:
    home = store.path.resolve().parent
    for label in sorted(labels):
        if (path := home / label).is_file():
            yield _job(Found(path, label), None)


def _readings(jobs: list[Job], workers: int | None) -> Iterator[SourceReading]:
    """The jobs' readings in their order; large sources come unread, the others whole."""
    if workers is None:
        workers = os.cpu_count() or 1 if sum(job.size for job in jobs) >= POOL_BYTES else 1
    pool = ProcessPoolExecutor(workers, get_context("forkserver")) if workers > 1 and len(jobs) > 1 else None
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
    return item.result() if isinstance(item, Future) else item


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
        if size >= COMMIT_BYTES or len(batch) >= 1000:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _commit(store: Store, readings: list[SourceReading], known: set[str]) -> set[str]:
    """Store some sources in one transaction. Returns the paths of sources to read again."""
    heirs: set[str] = set()
    lost: Counter[str] = Counter()
    with store.transaction():
        for reading in readings:
            if reading.job.source_id in known:
                heirs |= set(remove_source(store, reading.job.source_id))
        for chunk in _merged(readings):
            resolved = resolve(store, chunk)
            lost.update(resolved.lost)
            store.insert("episodes", resolved.tables.episodes)
            store.insert("messages", resolved.tables.messages)
            store.insert("steps", resolved.tables.steps)
            store.insert("copies", resolved.copies)
            store.insert("quarantine", chunk.quarantine)
        store.insert("sources", rows_table(SOURCES, [_source_row(reading) for reading in readings]))
        for source_id, records in lost.items():
            store.con.execute(
                "UPDATE sources SET kept = kept - ?, duplicates = duplicates + ? WHERE source_id = ?",
                [records, records, source_id],
            )
    return heirs


def _merged(readings: list[SourceReading]) -> Iterator[Chunk]:
    """One chunk for all readings where no episode comes twice; else each on its own, so that copies meet in turn."""
    if len(readings) == 1:
        yield from readings[0].chunks
        return
    chunks = [chunk for reading in readings for chunk in reading.chunks]
    ids = pa.chunked_array(
        [c for chunk in chunks for c in chunk.copies["episode_id"].chunks], type=pa.string()
    )
    if len(ids.unique()) < len(ids):
        yield from chunks
        return
    yield Chunk(
        concat([chunk.tables for chunk in chunks]),
        pa.concat_tables([chunk.copies for chunk in chunks]),
        pa.concat_tables([chunk.quarantine for chunk in chunks]),
    )


def _source_row(reading: SourceReading) -> dict[str, object]:
    job, counts = reading.job, reading.counts
    return {
        "source_id": job.source_id,
        "path": job.label,
        "format": reading.format,
        "connector_version": reading.connector_version,
        "bytes": job.size,
        "sha256": job.sha256,
        "settings": SETTINGS,
        "records": counts.records,
        "kept": counts.kept,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "skipped": counts.skipped,
        "skip_reasons": list(counts.skip_reasons.items()),
        "redactions": 0,
        "ingested_at": datetime.now(UTC).replace(tzinfo=None),
    }
