"""Raw logs into the store: each source whole or not at all, nothing lost, a second run changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pyarrow as pa

from logforge.connectors import detection as connectors
from logforge.connectors.mapping.connector import load_mapping
from logforge.connectors.records.base import NeedsWhole
from logforge.core.frames import concat, rows_table
from logforge.core.progress import Tick, silent
from logforge.ingestion.hygiene.danger import Dangers
from logforge.ingestion.hygiene.flaggers import flagger_versions
from logforge.ingestion.hygiene.personal_data import personal_kinds
from logforge.ingestion.hygiene.redaction import Redaction
from logforge.ingestion.long_files import in_parts
from logforge.ingestion.new_owners import heirs
from logforge.ingestion.ownership import remove_sources, resolve
from logforge.ingestion.pace import few_collections
from logforge.ingestion.packed import Unpacker, discard, withheld
from logforge.ingestion.reading import (
    Chunk,
    Group,
    Job,
    ReadOptions,
    SourceReading,
    prepare,
    read_lazily,
    read_together,
)
from logforge.ingestion.report import IngestReport, report_of
from logforge.ingestion.resumed import settle
from logforge.ingestion.safe_labels import replaced_by, with_safe_labels
from logforge.ingestion.sources.discover import Found, Verdict, check_paths, find, found_again, sha256_of
from logforge.ingestion.sources.limits import Limits
from logforge.ingestion.sources.pipes import apart, spooled
from logforge.ingestion.sources.unpacking import room_beside
from logforge.ingestion.stored_sources import Known, Stayed, source_id_of
from logforge.ingestion.workers import QUEUED, Crew, Task
from logforge.schemas.tables import SOURCES
from logforge.store.files import own_files
from logforge.store.forgotten import keys_in, refuse_pending
from logforge.store.keyed_hashes import store_key
from logforge.store.store import Store

STREAM_BYTES = 64 << 20
"""A larger source is read and stored piece by piece in its own transaction."""
COMMIT_BYTES = 16 << 20
"""Smaller sources share a transaction until together they reach this size."""
COMMIT_SOURCES = 1000
"""Or this number."""
GROUP_BYTES = 4 << 20
"""Small sources are read together up to this size."""
GROUP_SOURCES = 250
"""Or this number."""
_AHEAD = COMMIT_BYTES + QUEUED * GROUP_BYTES
"""What may be read before its turn, for each helping process."""
_CHECKPOINT_BYTES = 200 << 20
_MEMORY = "128MB"
"""DuckDB's limits while it ingests. Small checkpoints rewrite the file again and again, none at all keeps every committed row in
memory; without a limit DuckDB takes four fifths of the machine's."""
_SHARING = {"threads": "1"}
"""DuckDB's while other processes read: more threads take their cores from them, and do the same work with more effort."""
POOL_BYTES = 64 << 20
"""Less than this in all is read by one process: starting another takes as long as reading a third of it."""


def read_options(
    paths: Iterable[str | Path],
    format: str | None,
    mapping: str | Path | None,
    strict_arguments: bool,
    limits: Limits | None = None,
    redact: bool = True,
    danger: Iterable[str] = (),
    pii: Iterable[str] = (),
    allow_secret: Iterable[str] = (),
    flag_with: Iterable[str] = (),
) -> ReadOptions:
    """The options of a request, checked before anything is made: unknown formats, wrong mappings, paths that are not there."""
    if format is not None:
        connectors.get(format)
    check_paths(paths)
    shape = None if mapping is None else load_mapping(mapping)
    Dangers.of(entries := tuple(danger))
    flagger_versions(flaggers := tuple(flag_with))
    return ReadOptions(
        format,
        shape,
        strict_arguments,
        redact=redact,
        pii=personal_kinds(pii),
        allow=tuple(sorted(set(allow_secret))),
        flag_with=flaggers,
        danger=entries,
        limits=limits or Limits(),
    )


def ingest(
    store: Store,
    paths: Iterable[str | Path],
    *,
    format: str | None = None,
    mapping: str | Path | None = None,
    strict_arguments: bool = False,
    redact: bool = True,
    danger: Iterable[str] = (),
    pii: Iterable[str] = (),
    allow_secret: Iterable[str] = (),
    flag_with: Iterable[str] = (),
    limits: Limits | None = None,
    name: str | None = None,
    workers: int = 1,
    progress: Tick = silent,
) -> IngestReport:
    """Read every file at or below `paths` into the store; `-` is standard input, and `name` what its source is called.

    `format` forces a connector by name; `mapping` is a YAML file that describes a shape of your own. `strict_arguments`
    refuses to mend damaged arguments and names. `redact` takes secrets out of all text before it is stored; `danger` lists
    further dangerous tools (`KIND=PATTERN`, or `none` to leave the built-in list out). `pii` names kinds of personal data to take out
    too, `allow_secret` what stays (globs or SHA-256), `flag_with` functions of the user's that flag messages. `limits` say how far a packed file may unfold. `workers` is the number of
    reading processes, this one among them; more than one needs the caller's `if __name__ == "__main__":` guard, as every process pool does.
    Raises UnknownName for an unknown format, SpecError for a wrong mapping, InputError for a path that does not exist,
    StoreError when the store cannot be written, or a forget in it was cut short. Bad input never raises: it is quarantined.
    """
    paths = list(paths)
    files, pipes = apart(paths, name)
    options = read_options(
        paths, format, mapping, strict_arguments, limits, redact, danger, pii, allow_secret, flag_with
    )
    refuse_pending(store)
    options = replace(options, forgotten=keys_in(store), secret_key=store_key(store.path))
    known = Known.of(store)
    recalled = known.recall(options)
    own = own_files(store.path)
    found = [item for item in find(files, store.path.parent) if item.path not in own]
    fresh: list[Job] = []
    kept_as_is: set[str] = set()
    with room_beside(store.path) as room, Crew(workers, partial(prepare, redact), room) as crew:
        found += spooled(pipes, room, name)
        found = with_safe_labels(found, options.redaction, options.secret_key)
        size = 0
        for index, item in enumerate(found):
            job = _job(item, recalled(source_id_of(item.label)), progress, index, len(found))
            if known.unchanged(job):
                kept_as_is.add(job.source_id)
                continue
            fresh.append(job)
            size += job.size
            if size >= POOL_BYTES:
                crew.start()  # it takes a second, in which the rest is looked at
        kept_as_is |= {member for archive in kept_as_is for member in known.members.get(archive, ())}
        unpacker = Unpacker(room, known)
        done = _read_and_store(store, fresh, crew, progress, options, unpacker)
    as_before = (kept_as_is | unpacker.unchanged | set(unpacker.stayed)) - done
    with store.settings(_CHECKPOINT_BYTES, memory_limit=_MEMORY):
        return report_of(store, sorted(done), sorted(as_before), sorted(map(str, unpacker.stayed.values())))


class Again(NamedTuple):
    """The ids of the sources that were read again, and those that stay as they were because nothing here reads them."""

    read: set[str]
    stayed: dict[str, Stayed]


def read_again(
    store: Store,
    sources: Mapping[str, str],
    *,
    format: str | None = None,
    mapping: str | Path | None = None,
    workers: int = 1,
    progress: Tick = silent,
) -> Again:
    """Read stored sources (settings by path) again, whatever their bytes: what reads them may have changed.

    They are read with the settings and the mapping they were read with; `format` and `mapping` are those of `ingest`, and
    go first. A source whose file is gone stays as it is. Raises as `ingest` does.
    """
    made = read_options([], format, mapping, False)
    refuse_pending(store)
    forgotten, key = keys_in(store), store_key(store.path)
    here = found_again(sources, store.path.resolve().parent)
    jobs = []
    for index, (item, options) in enumerate(_as_before(here, sources, made, key)):
        forced = format or (None if made.mapping else options.format)
        options = replace(options, format=forced, forgotten=forgotten, secret_key=key)
        jobs.append(_job(item, options, progress, index, len(here)))
    with room_beside(store.path) as room, Crew(workers, partial(prepare, made.redact), room) as crew:
        unpacker = Unpacker(room, Known.of(store), again=True)
        read = _read_and_store(store, jobs, crew, progress, made, unpacker)
    _remove_entered(store, sources, read)
    return Again(read, unpacker.stayed)


def _as_before(
    here: Iterable[Found], sources: Mapping[str, str], made: ReadOptions, key: bytes
) -> Iterator[tuple[Found, ReadOptions]]:
    """Each file with what it was read with, under a label that is safe by that."""
    alike: dict[Redaction, list[tuple[Found, ReadOptions]]] = {}
    for item in here:
        options = _options_before(item, sources, made)
        alike.setdefault(options.redaction, []).append((item, options))
    for redaction, pairs in alike.items():
        found, options_of = zip(*pairs, strict=True)
        yield from zip(with_safe_labels(found, redaction, key), options_of, strict=True)


def _options_before(item: Found, sources: Mapping[str, str], made: ReadOptions) -> ReadOptions:
    """What a source was read with; of a file below a folder that could not be entered, what the folder was to be read with."""
    folders = map(str, PurePosixPath(item.label).parents)
    settings = next(
        (sources[label] for label in (item.label, *item.only, *folders) if label in sources), None
    )
    return made if settings is None else ReadOptions.of(settings, made.mapping)


def _remove_entered(store: Store, labels: Iterable[str], read: set[str]) -> None:
    """Folders that could not be entered and now can are no sources of their own any more."""
    home = store.path.resolve().parent
    entered = {source_id_of(label) for label in labels if (home / label).is_dir()} - read
    with store.transaction():
        remove_sources(store, entered)


def _read_and_store(
    store: Store, jobs: list[Job], crew: Crew, tick: Tick, options: ReadOptions, unpacker: Unpacker
) -> set[str]:
    with few_collections(), store.settings(_CHECKPOINT_BYTES, memory_limit=_MEMORY):
        done = _run(store, jobs, crew, tick, options, unpacker)
        store.checkpoint()
    return done


def _job(item: Found, options: ReadOptions, tick: Tick, index: int, total: int) -> Job:
    tick(index, total, f"looking at {item.label}")
    identifier = source_id_of(item.label)
    job = withheld(Job(item.path, item.label, identifier, "", 0, options, replaces=replaced_by(item)))
    if job.verdict:
        return job
    verdict, digest, size = item.verdict, "", 0
    try:
        if verdict is None:
            size = sum(path.stat().st_size for path in (item.path, *item.companions))
            digest = sha256_of(item.path, *item.companions)
    except OSError as error:
        verdict = Verdict(None, True, "unreadable_file", f"the file cannot be read: {error.strerror}")
    return replace(job, sha256=digest, size=size, companions=item.companions, verdict=verdict, only=item.only)


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


def _run(
    store: Store, jobs: list[Job], crew: Crew, tick: Tick, options: ReadOptions, unpacker: Unpacker
) -> set[str]:
    """Read and store the jobs, then the sources whose copies of ownerless episodes take over. Returns the ids read."""
    done: set[str] = set()
    tried: set[str] = set()
    again: set[str] = set()
    while True:
        meter = _Meter(tick, sum(job.size for job in jobs))
        if meter.total >= POOL_BYTES:
            crew.start()
        with store.settings(**(_SHARING if crew.helpers else {})):
            for batch in _batches(_read(jobs, crew, unpacker)):
                _commit(store, batch, meter)
                done |= {reading.job.source_id for group in batch for reading in group.readings}
                meter.add(sum(map(_size, batch)), _label(batch))
                batch.clear()  # stored: nothing is to hold its rows while the next is read
        stale = settle(store)
        tried -= stale - again  # read once more, even when it was read in this run before the others came
        again |= stale
        successors = heirs(store, tried, options)
        tried |= set(successors)
        jobs = _once(_job(place, then, silent, 0, 1) for place, then in successors.values())
        if not jobs:
            return done


def _once(jobs: Iterable[Job]) -> list[Job]:
    """The jobs, with those for members of one archive made one."""
    found: dict[tuple[str, str], Job] = {}
    for job in jobs:
        key = (job.source_id, job.options.settings)
        found[key] = replace(job, only=job.only | found[key].only) if key in found else job
    return list(found.values())


def _read(jobs: list[Job], crew: Crew, unpacker: Unpacker) -> Iterator[Group]:
    """The jobs read, in their order; a large source comes unread, the others whole."""
    large = partial(_begin, crew=crew)
    tasks = (
        Task(large, group[0], group[0].size, here=True)
        if group[0].size > STREAM_BYTES
        else Task(read_together, group, sum(job.size for job in group))
        for group in _grouped(unpacker.jobs(jobs))
    )
    return crew.results(tasks, crew.helpers * _AHEAD)


def _begin(job: Job, crew: Crew) -> Group:
    """Begin to read a large source: in parts, or a piece while the piece before is stored."""
    return in_parts(job, crew, crew.helpers * _AHEAD) or read_lazily(job, overlapping=crew.helpers > 0)


def _grouped(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Small sources that are read together; larger ones alone."""
    group: list[Job] = []
    size, most = 0, min(GROUP_SOURCES, COMMIT_SOURCES)
    for job in jobs:
        if group and (size + job.size > min(GROUP_BYTES, COMMIT_BYTES, STREAM_BYTES) or len(group) == most):
            yield group
            group, size = [], 0
        group.append(job)
        size += job.size
    if group:
        yield group


def _size(group: Group) -> int:
    return sum(reading.job.size for reading in group.readings)


def _label(groups: list[Group]) -> str:
    return groups[-1].readings[-1].job.label


def _batches(groups: Iterator[Group]) -> Iterator[list[Group]]:
    """Groups of sources that share a transaction."""
    batch: list[Group] = []
    for group in groups:
        if _size(group) > STREAM_BYTES:
            yield [group]
            continue
        batch.append(group)
        if sum(map(_size, batch)) >= COMMIT_BYTES or sum(len(g.readings) for g in batch) >= COMMIT_SOURCES:
            yield batch
            batch = []
    if batch:
        yield batch


def _commit(store: Store, groups: list[Group], meter: _Meter) -> None:
    """Store some sources in one transaction, in place of what they brought before."""
    try:
        _store(store, groups, meter)
    except NeedsWhole:  # a source of a transaction of its own, and nothing of it is stored
        _store(store, [read_lazily(groups[0].readings[0].job)], meter)
    discard(reading.job for group in groups for reading in group.readings)


def _store(store: Store, groups: list[Group], meter: _Meter) -> None:
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
            meter.show(stored, _label(groups))
        store.insert("sources", rows_table(SOURCES, [_source_row(reading) for reading in readings]))
        for source_id, records in lost.items():
            store.con.execute(
                "UPDATE sources SET kept = kept - ?, duplicates = duplicates + ? WHERE source_id = ?",
                [records, records, source_id],
            )


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
