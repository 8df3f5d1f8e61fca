"""Reads one source into rows, piece by piece: what a connector yields becomes tables, counts and quarantine rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.lib import ArrowException

from logforge.connectors import get, registry_version
from logforge.connectors.arguments import as_logged
from logforge.connectors.base import Connector, Source, excerpt
from logforge.discover import Verdict, judge
from logforge.frames import Tables, rows_table, tables_of
from logforge.schemas.episode import Episode, Reading, Reject, Skip
from logforge.schemas.tables import COPIES, QUARANTINE

CHUNK_WEIGHT = 20_000
"""A source is handed on in pieces of about so many messages (one of 1,000 characters counts twice, and so on) and
rejects, which bounds the memory of a large one."""


@dataclass(frozen=True)
class ReadOptions:
    """How sources are read: `format` forces a connector by name, `mapping` is one made from a YAML file that stands beside
    the registered ones, `strict_arguments` undoes what was mended in arguments and names."""

    format: str | None = None
    mapping: Connector | None = None
    strict_arguments: bool = False

    @property
    def settings(self) -> str:
        """What else besides a source's bytes and connector decides the rows it gives."""
        arguments = "strict" if self.strict_arguments else "mended"
        return json.dumps({"format": self.format, "arguments": arguments, "redaction": "none"})

    @classmethod
    def of(cls, settings: str, mapping: Connector | None) -> ReadOptions:
        """The options that gave these settings."""
        found = json.loads(settings)
        return cls(found["format"], mapping, found["arguments"] == "strict")

    @property
    def unread_version(self) -> int:
        """The connector version of a source that none claimed: it changes when a connector comes, goes or changes."""
        return registry_version() ^ (self.mapping.version if self.mapping else 0)


@dataclass(frozen=True)
class Job:
    """A source to read; `verdict` is there when nothing can be read."""

    path: Path
    label: str
    source_id: str
    sha256: str
    size: int
    options: ReadOptions = ReadOptions()
    companions: tuple[Path, ...] = ()
    verdict: Verdict | None = None


@dataclass
class Counts:
    """The conservation law of one source: records = kept + duplicates + quarantined + skipped."""

    kept: int = 0
    duplicates: int = 0
    quarantined: int = 0
    skip_reasons: Counter[str] = field(default_factory=Counter)

    @property
    def skipped(self) -> int:
        """Records that are no part of an episode."""
        return sum(self.skip_reasons.values())

    @property
    def records(self) -> int:
        """Everything the source holds."""
        return self.kept + self.duplicates + self.quarantined + self.skipped


@dataclass(frozen=True)
class Chunk:
    """A piece of a source: its episodes as tables, each episode's copy row, and what was set aside."""

    tables: Tables
    copies: pa.Table
    quarantine: pa.Table


@dataclass
class SourceReading:
    """A source being read: iterate over `chunks`, then `counts`, `format` and `connector_version` are complete."""

    job: Job
    counts: Counts = field(default_factory=Counts)
    format: str | None = None
    connector_version: int | None = None
    chunks: Iterable[Chunk] = ()


def read_source(job: Job) -> SourceReading:
    """Begin to read a source. Its chunks come lazily."""
    reading = SourceReading(job)
    reading.chunks = _chunks(reading)
    return reading


def read_whole(job: Job) -> SourceReading:
    """Read a source to its end, for workers: the chunks are a list and the whole can be pickled."""
    reading = read_source(job)
    reading.chunks = list(reading.chunks)
    return reading


def _chunks(reading: SourceReading) -> Iterator[Chunk]:
    counts = reading.counts
    episodes: list[Episode] = []
    rejects: list[Reject] = []
    seen: set[str] = set()
    size = 0
    for item in _read(reading):
        if isinstance(item, Episode):
            if item.episode_id in seen:
                counts.duplicates += item.records
                continue
            seen.add(item.episode_id)
            counts.kept += item.records
            episodes.append(item)
            size += sum(1 + len(message.content or "") // 1000 for message in item.messages)
        elif isinstance(item, Reject):
            counts.quarantined += item.records if item.level == "record" else 0
            rejects.append(item)
            size += 1
        elif isinstance(item, Skip):
            counts.skip_reasons[item.reason] += item.records
        else:
            counts.duplicates += item.records
        if size >= CHUNK_WEIGHT:
            yield _chunk(reading, episodes, rejects)
            episodes, rejects, size = [], [], 0
    yield _chunk(reading, episodes, rejects)


def _read(reading: SourceReading) -> Iterator[Reading]:
    """The connector's readings, or the one reading that says why there is no connector.

    A connector must not raise; if one does, the rest of the file is quarantined as one record and the run goes on.
    """
    job = reading.job
    options = job.options
    verdict = job.verdict or judge(job.path, get(options.format) if options.format else None, options.mapping)
    connector = verdict.connector
    if connector is None:
        reading.connector_version = options.unread_version
        if verdict.quarantined:
            yield Reject(locator=job.label, reason=verdict.reason, rule=verdict.rule, detail=verdict.detail)
        else:
            yield Skip(reason=verdict.rule)
        return
    reading.format, reading.connector_version = connector.name, connector.version
    found = False
    try:
        for item in connector.read(Source(job.path, job.label, job.companions)):
            found = True
            yield as_logged(item) if options.strict_arguments and isinstance(item, Episode) else item
    except Exception as error:
        found = True
        yield Reject(
            locator=job.label,
            reason=f"the connector {connector.name} failed; what follows in this file was not read",
            rule="connector_failed",
            detail=f"{type(error).__name__}: {error}"[:300],
        )
    if not found:
        yield Reject(locator=job.label, reason="holds no record", rule="no_records")


def _chunk(reading: SourceReading, episodes: list[Episode], rejects: list[Reject]) -> Chunk:
    job = reading.job
    try:
        tables = tables_of(episodes, job.source_id)
    except (ArrowException, TypeError, UnicodeError, OverflowError):
        episodes, unfit = _storable(reading, episodes)
        rejects, tables = rejects + unfit, tables_of(episodes, job.source_id)
    return Chunk(
        tables=tables,
        copies=rows_table(COPIES, [_copy_row(job, episode) for episode in episodes]),
        quarantine=rows_table(QUARANTINE, [_quarantine_row(job, reject) for reject in rejects]),
    )


def _storable(reading: SourceReading, episodes: list[Episode]) -> tuple[list[Episode], list[Reject]]:
    """The episodes whose values fit the tables, and a reject for each of the others."""
    fit: list[Episode] = []
    unfit: list[Reject] = []
    for episode in episodes:
        try:
            tables_of([episode])
            fit.append(episode)
        except (ArrowException, TypeError, UnicodeError, OverflowError) as error:
            reading.counts.kept -= episode.records
            reading.counts.quarantined += episode.records
            reason = "the connector gave a value of the wrong type"
            unfit.append(
                Reject(
                    locator=episode.locator,
                    reason=reason,
                    rule="unfit_value",
                    detail=str(error),
                    records=episode.records,
                )
            )
    return fit, unfit


def _copy_row(job: Job, episode: Episode) -> dict[str, Any]:
    return {
        "episode_id": episode.episode_id,
        "source_id": job.source_id,
        "started_at": episode.started_at,
        "sha256": job.sha256,
        "path": job.label,
        "records": episode.records,
        "owner": True,
    }


def _quarantine_row(job: Job, reject: Reject) -> dict[str, Any]:
    return {
        "level": reject.level,
        "source_id": job.source_id,
        "episode_id": reject.episode_id,
        "locator": reject.locator,
        "reason": reject.reason,
        "rule": reject.rule,
        "detail": reject.detail,
        "excerpt": excerpt(reject.excerpt),
        "records": reject.records if reject.level == "record" else 0,
    }
