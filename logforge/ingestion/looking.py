"""Looks at sources before any is read: what was found, what is as it was, and a job for each of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from logforge.core import Scope, Tick, from_summary, per, stage
from logforge.ingestion.hygiene import Redaction
from logforge.ingestion.packed import withheld
from logforge.ingestion.reading import Job, ReadOptions
from logforge.ingestion.request import Looked, Place, Request, Sources
from logforge.ingestion.safe_labels import replaced_by, with_safe_labels
from logforge.ingestion.sources import Found, Verdict, find, found_again, sha256_of, spooled
from logforge.ingestion.stored_sources import Known, source_id_of
from logforge.store import keys_in, own_files, store_key


@stage(
    from_summary(
        "which files there are, and what the store has of them", "labels, hashes and settings: a row a source"
    )
)
def find_sources(request: Request) -> Sources:
    """The files at or below what was asked for, and what the store holds."""
    store = request.store
    options = replace(request.options, forgotten=keys_in(store), secret_key=store_key(store.path))
    known, own = Known.of(store), own_files(store.path)
    found = (item for item in find(request.files, store.path.parent) if item.path not in own)
    return Sources(replace(request, options=options), tuple(found), known)


@stage(per(Scope.SOURCE, "its label, its hash, and whether it is as it was"))
def look(sources: Sources, place: Place) -> Looked:
    """Each source under a safe label, hashed, and held against what the store has of it."""
    request, known, options = sources.request, sources.known, sources.request.options
    recalled = known.recall(options)
    found = [*sources.found, *spooled(request.pipes, place.room, request.name)]
    found = with_safe_labels(found, options.redaction, options.secret_key)
    fresh, kept, size = list[Job](), set[str](), 0
    for index, item in enumerate(found):
        job = job_of(item, recalled(source_id_of(item.label)), request.tick, index, len(found))
        if known.unchanged(job):
            kept.add(job.source_id)
            continue
        fresh.append(job)
        size += job.size
        place.crew.start_for(size)  # it takes a second, in which the rest is looked at
    kept |= {member for archive in kept for member in known.members.get(archive, ())}
    return Looked(request.store, place, known, tuple(fresh), options, request.tick, frozenset(kept))


@stage(per(Scope.SOURCE, "what it was read with"))
def look_again(request: Request, sources: Mapping[str, str], place: Place) -> Looked:
    """Stored sources (settings by path) whatever their bytes, with the settings that they were read with."""
    store, made = request.store, request.options
    forgotten, key = keys_in(store), store_key(store.path)
    here = found_again(sources, store.path.resolve().parent)
    jobs = []
    for index, (item, options) in enumerate(_as_before(here, sources, made, key)):
        forced = made.format or (None if made.mapping else options.format)
        options = replace(options, format=forced, forgotten=forgotten, secret_key=key)
        jobs.append(job_of(item, options, request.tick, index, len(here)))
    return Looked(store, place, Known.of(store), tuple(jobs), made, request.tick, again=True)


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


def job_of(item: Found, options: ReadOptions, tick: Tick, index: int, total: int) -> Job:
    """What is to be read of a file: its bytes' hash and size, or why nothing can be."""
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
