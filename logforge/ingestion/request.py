"""What an ingest is asked for, and what its first stages make of it: checked options, sources that were found, jobs to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from logforge.connectors import detection as connectors
from logforge.connectors.mapping import load_mapping
from logforge.core import Tick
from logforge.ingestion.hygiene import Dangers, flagger_versions, personal_kinds
from logforge.ingestion.reading import Job, ReadOptions
from logforge.ingestion.sources import Found, Limits, check_paths
from logforge.ingestion.stored_sources import Known, Stayed
from logforge.ingestion.workers import Crew
from logforge.store import Store


class Place(NamedTuple):
    """Where sources are read: a private folder beside the store, and the processes that read."""

    room: Path
    crew: Crew


@dataclass(frozen=True)
class Request:
    """What is to be read into a store, and how; nothing was looked at yet. `pipes` are standard input, called `name`."""

    store: Store
    files: tuple[str | Path, ...]
    pipes: tuple[str | Path, ...]
    name: str | None
    options: ReadOptions
    tick: Tick


@dataclass(frozen=True)
class Sources:
    """The files of a request, and what the store holds already."""

    request: Request
    found: tuple[Found, ...]
    known: Known


@dataclass(frozen=True)
class Looked:
    """What is to be read, job by job, and the ids of the sources that are as they were. With `again` the members of an archive are
    read whatever they were; `options` are for sources that others hand over."""

    store: Store
    place: Place
    known: Known
    jobs: tuple[Job, ...]
    options: ReadOptions
    tick: Tick
    kept: frozenset[str] = frozenset()
    again: bool = False


@dataclass(frozen=True)
class Stored:
    """The ids of the sources that were read, those that were looked at and are as they were, and those left though they changed."""

    store: Store
    read: frozenset[str]
    kept: frozenset[str]
    stayed: dict[str, Stayed]


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
    samples: bool = True,
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
        samples=samples,
        redact=redact,
        pii=personal_kinds(pii),
        allow=tuple(sorted(set(allow_secret))),
        flag_with=flaggers,
        danger=entries,
        limits=limits or Limits(),
    )
