"""Reads one source into rows, piece by piece: what a connector yields becomes tables, counts and quarantine rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow.lib import ArrowException

from logforge.connectors import get, registry_version
from logforge.connectors.episodes import as_logged
from logforge.connectors.records import Connector, NeedsWhole, Source, Span, excerpt
from logforge.core import Tables, rows_table, tables_of
from logforge.ingestion.hygiene import (
    Dangers,
    Hygiene,
    Redaction,
    cleaned,
    flagger_versions,
    personal_version,
    rules_version,
)
from logforge.ingestion.hygiene.secrets import vendors as vendor_secrets
from logforge.ingestion.pace import ahead, collect_seldom
from logforge.ingestion.sources import VERSION as UNPACKING
from logforge.ingestion.sources import Limits, Verdict, judge
from logforge.ingestion.stored_options import remembered, remembering
from logforge.schemas import COPIES, QUARANTINE, Episode, InputError, Reading, Reject, Skip
from logforge.store import RULE as FORGOTTEN
from logforge.store import is_forgotten, is_hidden, key_of, names_forgotten

ARCHIVE = "archive"
"""The format of an archive's own row in `sources`; its members are sources of their own."""
CHUNK_WEIGHT = 20_000
"""A source is handed on in pieces of about so many messages (one of 1,000 characters counts twice, and so on) and
rejects, which bounds the memory of a large one."""
LONG_WEIGHT = 10_000
"""And one that is stored while it is read in pieces of half that: they take 60 MB less at their peak and 4 % more time."""


@dataclass(frozen=True)
class ReadOptions:
    """How sources are read: `format` forces a connector by name, `mapping` is one made from a YAML file that stands beside
    the registered ones, `samples` keeps each of equal rows without an id or a time, `strict_arguments` undoes what was mended in arguments and names. `redact` takes secrets out,
    `pii` names kinds of personal data to take out too, `allow` what stays (see logforge.ingestion.hygiene.redaction.Redaction), `flag_with` functions that
    flag messages (see logforge/ingestion/hygiene/flaggers.py). `danger` lists entries for logforge/ingestion/hygiene/danger.py, `secret_key` is the store's key for hashes of secrets. `earlier` is what
    the source was read with before, where it is no connector that would claim it by itself (see logforge/ingestion/stored_options.py)."""

    format: str | None = None
    mapping: Connector | None = None
    strict_arguments: bool = False
    samples: bool = True
    redact: bool = True
    pii: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    flag_with: tuple[str, ...] = ()
    danger: tuple[str, ...] = ()
    secret_key: bytes = field(default=b"", repr=False)
    forgotten: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    earlier: Connector | None = None

    @cached_property
    def settings(self) -> str:
        """What else besides a source's bytes and connector decides the rows it gives."""
        arguments = "strict" if self.strict_arguments else "mended"
        record = {"max_record": self.limits.record}
        redaction = rules_version() if self.redact else "none"
        more = {
            "danger": self.danger,
            "pii": self.pii,
            "pii_rules": personal_version(self.pii) if self.pii else None,
            "allow": self.allow,
            "flag_with": flagger_versions(self.flag_with),
            "equal_rows": None if self.samples else "copies",
        }
        given = {name: value for name, value in more.items() if value}
        return json.dumps(
            {"format": self.format, "arguments": arguments, "redaction": redaction, **record, **given}
        )

    @cached_property
    def redaction(self) -> Redaction:
        """What is taken out of texts."""
        return Redaction(self.redact, self.pii, self.allow)

    @cached_property
    def hygiene(self) -> Hygiene:
        """How what is read is cleaned."""
        return Hygiene(self.redaction, Dangers.of(self.danger), self.flag_with, self.secret_key)

    @cached_property
    def packed_settings(self) -> str:
        """The settings of a packed file: how far it may unfold decides whether it is read."""
        return json.dumps({**json.loads(self.settings), "limits": astuple(self.limits)})

    @classmethod
    def of(cls, settings: str, mapping: Connector | None) -> ReadOptions:
        """The options that gave these settings, and a mapping that is given now. Functions that flagged messages are left out: a
        store is data, and names no code to run."""
        before = remembered(settings)
        found = json.loads(before.settings)
        record = found.get("max_record", Limits.record)
        limits = Limits(*found["limits"]) if "limits" in found else Limits(record=record)
        return cls(
            found["format"],
            mapping,
            strict_arguments=found["arguments"] == "strict",
            samples=found.get("equal_rows") != "copies",
            redact=found["redaction"] != "none",
            pii=tuple(found.get("pii", ())),
            allow=tuple(found.get("allow", ())),
            danger=tuple(found.get("danger", ())),
            limits=limits,
            earlier=before.reader(),
        )

    def judge(self, path: Path) -> Verdict:
        """Which connector reads a file under these options, or why none does."""
        return judge(path, get(self.format) if self.format else None, self.mapping, self.earlier)

    @cached_property
    def unread_version(self) -> int:
        """The connector version of a source that none claimed: it changes when a connector comes, goes or changes."""
        return registry_version() ^ (self.mapping.version if self.mapping else 0)


@dataclass(frozen=True, slots=True)
class Job:
    """A source to read; `verdict` is there when nothing can be read.

    What was unpacked of a packed file is read from a private copy in `folder`. `asides` were set aside while unpacking and
    belong to this source's account; `archive` marks an archive's own row, which has nothing else. `replaces` are sources
    that go when this one is stored, `only` the members to read of an archive. `span` are the lines to read, when the rest of
    the file is read by other jobs (see logforge/ingestion/long_files.py).
    """

    path: Path
    label: str
    source_id: str
    sha256: str
    size: int
    options: ReadOptions = ReadOptions()
    companions: tuple[Path, ...] = ()
    verdict: Verdict | None = None
    asides: tuple[Reject | Skip, ...] = ()
    packed: bool = False
    archive: bool = False
    replaces: tuple[str, ...] = ()
    only: frozenset[str] = frozenset()
    folder: Path | None = None
    span: Span | None = None

    @property
    def begins(self) -> bool:
        """It reads the beginning of its source."""
        return self.span is None or self.span.begin == 0

    @property
    def settings(self) -> str:
        """What `sources.settings` says."""
        return self.options.packed_settings if self.packed else self.options.settings


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
    """A piece of a source: its episodes as tables, each episode's copy row, what was set aside, and the secrets that were
    taken out of both."""

    tables: Tables
    copies: pa.Table
    quarantine: pa.Table
    secrets: pa.Table


@dataclass
class SourceReading:
    """A source being read: iterate over `chunks`, then the rest is complete. `failed`: what follows in it was not read."""

    job: Job
    counts: Counts = field(default_factory=Counts)
    format: str | None = None
    connector_version: int | None = None
    settings: str = ""
    redactions: int = 0
    failed: bool = False
    chunks: Iterable[Chunk] = ()


class Group(NamedTuple):
    """Sources that are read together. Iterate over `chunks`, then the readings are complete."""

    readings: list[SourceReading]
    chunks: Iterable[Chunk]


@dataclass
class _Pile:
    """What was read and is not yet a chunk: episodes, no one twice, and rejects, each with the source it is of."""

    episodes: dict[str, tuple[SourceReading, Episode]] = field(default_factory=dict)
    rejects: list[tuple[SourceReading, Reject]] = field(default_factory=list)
    weight: int = 0
    hygiene: Hygiene | None = None

    def takes(self, reading: SourceReading, item: Episode | Reject) -> bool:
        """No second copy of an episode, and nothing that is to be cleaned otherwise."""
        twice = isinstance(item, Episode) and item.episode_id in self.episodes
        return not twice and self.hygiene in (None, reading.job.options.hygiene)

    def add(self, reading: SourceReading, item: Episode | Reject) -> None:
        """Put an item on the pile."""
        self.hygiene = self.hygiene or reading.job.options.hygiene
        if isinstance(item, Episode):
            self.episodes[item.episode_id] = (reading, item)
            self.weight += sum(1 + len(message.content or "") // 1000 for message in item.messages)
        else:
            self.rejects.append((reading, item))
            self.weight += 1


def prepare(redact: bool) -> None:
    """Have a new process ready to read: load the connectors and build the secret scanner."""
    collect_seldom()
    registry_version()
    if redact:
        vendor_secrets.hits(["a"])


def read_source(job: Job) -> SourceReading:
    """Begin to read a source. Its chunks come lazily."""
    reading = SourceReading(job)
    reading.chunks = _chunks([reading], CHUNK_WEIGHT)
    return reading


def read_lazily(job: Job, overlapping: bool = False) -> Group:
    """Begin to read a source that is a group of its own; when `overlapping`, a thread reads on while a chunk is cleaned
    and stored."""
    reading = SourceReading(job)
    return Group([reading], _chunks([reading], min(LONG_WEIGHT, CHUNK_WEIGHT), overlapping))


def read_together(jobs: list[Job]) -> Group:
    """Read sources to their end, for workers: many small ones share a chunk, and the whole can be pickled."""
    readings = [SourceReading(job) for job in jobs]
    return Group(readings, list(_chunks(readings, CHUNK_WEIGHT)))


def _chunks(readings: list[SourceReading], weight: int, overlapping: bool = False) -> Iterator[Chunk]:
    made = map(_fitting, _piles(readings, weight))
    for pile, tables in ahead(made) if overlapping else made:
        yield _chunk(pile, tables)


def _piles(readings: list[SourceReading], weight: int) -> Iterator[_Pile]:
    """The sources' contents. Copies of an episode go into different piles, so that they meet in the store."""
    pile = _Pile()
    for reading in readings:
        for item in _counted(reading):
            if not pile.takes(reading, item):
                yield pile
                pile = _Pile()
            pile.add(reading, item)
            if pile.weight >= weight:
                yield pile
                pile = _Pile()
    yield pile


def _counted(reading: SourceReading) -> Iterator[Episode | Reject]:
    """The episodes and rejects of one source, and everything counted on the way."""
    counts = reading.counts
    seen: set[str] = set()
    for item in _read(reading):
        if isinstance(item, Episode) and item.episode_id not in seen:
            seen.add(item.episode_id)
            if is_forgotten(item, reading.job.options.forgotten, reading.job.options.secret_key):
                counts.skip_reasons[FORGOTTEN] += item.records
                continue
            counts.kept += item.records
            yield item
        elif isinstance(item, Reject):
            if item.level == "part" and names_forgotten(item.episode_id, reading.job.options.forgotten):
                continue
            counts.quarantined += item.records if item.level == "record" else 0
            yield item
        elif isinstance(item, Skip):
            counts.skip_reasons[item.reason] += item.records
        else:
            counts.duplicates += item.records


def _read(reading: SourceReading) -> Iterator[Reading]:
    """The connector's readings, or the one reading that says why there is no connector.

    A connector must not raise; if one does, the rest of the file is quarantined as one record and the run goes on.
    """
    job = reading.job
    options = job.options
    yield from job.asides
    if job.archive:
        reading.format, reading.connector_version = ARCHIVE, UNPACKING
        return
    verdict = job.verdict or options.judge(job.path)
    connector = verdict.connector
    if connector is None:
        reading.connector_version = options.unread_version
        if verdict.quarantined:
            yield Reject(
                locator=job.label,
                reason=verdict.reason,
                rule=verdict.rule,
                detail=verdict.detail,
                excerpt=excerpt(verdict.excerpt),
            )
        else:
            yield Skip(reason=verdict.rule)
        return
    reading.format, reading.connector_version = connector.name, connector.version
    reading.settings = remembering(job.settings, connector, options.earlier)
    found = False
    try:
        source = Source(
            job.path, job.label, job.companions, options.limits.record, job.span, samples=options.samples
        )
        for item in connector.read(source):
            found = True
            yield as_logged(item) if options.strict_arguments and isinstance(item, Episode) else item
    except NeedsWhole:
        raise
    except InputError as error:  # a source that can only be read as a whole, and is too long for that
        found = True
        yield Reject(locator=job.label, reason=error.reason, rule=error.rule)
    except Exception as error:
        found = reading.failed = True
        yield Reject(
            locator=job.label,
            reason=f"the connector {connector.name} failed; what follows in this file was not read",
            rule="connector_failed",
            detail=f"{type(error).__name__}: {error}"[:300],
        )
    if not found and job.begins and not job.asides:
        yield Reject(locator=job.label, reason="holds no record", rule="no_records")


def _fitting(pile: _Pile) -> tuple[_Pile, Tables]:
    try:
        return pile, _tables(pile)
    except (ArrowException, TypeError, UnicodeError, OverflowError):
        pile = _storable(pile)
        return pile, _tables(pile)


def _chunk(pile: _Pile, tables: Tables) -> Chunk:
    aside = [_quarantine_row(reading.job, _hushed(reading, item)) for reading, item in pile.rejects]
    clean = cleaned(tables, rows_table(QUARANTINE, aside), pile.hygiene or Hygiene())
    for reading in {id(reading): reading for reading, _ in (*pile.episodes.values(), *pile.rejects)}.values():
        reading.redactions += clean.redactions[reading.job.source_id]
    copies = [_copy_row(reading.job, item) for reading, item in pile.episodes.values()]
    return Chunk(clean.tables, rows_table(COPIES, copies), clean.quarantine, clean.secrets)


def _tables(pile: _Pile) -> Tables:
    readings, episodes = zip(*pile.episodes.values(), strict=True) if pile.episodes else ((), ())
    return tables_of(episodes, [reading.job.source_id for reading in readings])


def _storable(pile: _Pile) -> _Pile:
    """The pile with a reject in place of each episode that has a value which does not fit the tables."""
    fit = _Pile(rejects=list(pile.rejects), hygiene=pile.hygiene)
    for reading, episode in pile.episodes.values():
        try:
            tables_of([episode])
            fit.add(reading, episode)
        except (ArrowException, TypeError, UnicodeError, OverflowError) as error:
            reading.counts.kept -= episode.records
            reading.counts.quarantined += episode.records
            fit.add(
                reading,
                Reject(
                    locator=episode.locator,
                    reason="the connector gave a value of the wrong type",
                    rule="unfit_value",
                    detail=str(error),
                    records=episode.records,
                ),
            )
    return fit


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


def _hushed(reading: SourceReading, reject: Reject) -> Reject:
    """Where a source holds something forgotten, nobody can say whose text a reject shows: it shows none."""
    job = reading.job
    holder = (
        reading.counts.skip_reasons[FORGOTTEN]
        or is_hidden(job.label)
        or key_of("holder", job.label) in job.options.forgotten
    )
    if not holder or reject.episode_id is not None:
        return reject
    return msgspec.structs.replace(reject, detail="", excerpt="")


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
