"""`logforge ingest --dry-run`: which connector would read each file and why, and what it would keep; nothing is stored."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from logforge.connectors import claims, get
from logforge.connectors.records import Head, look
from logforge.core import BaseReport, Lines, noted, table
from logforge.ingestion.packed import Unpacker, discard, withheld
from logforge.ingestion.reading import Job, ReadOptions, SourceReading, read_source
from logforge.ingestion.safe_labels import with_safe_labels
from logforge.ingestion.sources import Found, apart, find, spooled
from logforge.ingestion.stored_sources import Known, source_id_of
from logforge.schemas import remedy_of
from logforge.store import key_path, keys_in, open_store, own_files, store_key

_KEYS = 8
_ARCHIVE = "an archive: its members are read as the files of a folder are"
_PATH = 48


@dataclass(frozen=True)
class FilePlan:
    """What an ingest would make of one file. `evidence` is what its beginning shows, `others` the weaker claims."""

    path: str
    format: str | None
    confidence: float | None
    others: tuple[str, ...]
    evidence: str
    records: int
    kept: int
    duplicates: int
    quarantined: int
    skipped: int
    episodes: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class DryRun(BaseReport):
    """The plans of all files; `stayed` says of others why an ingest would leave them as the store has them."""

    first = ("dry_run",)
    dry_run: ClassVar[bool] = True

    files: tuple[FilePlan, ...]
    stayed: tuple[str, ...] = ()

    def exit_code(self, strict: bool = False) -> int:
        """That of the ingest it stands for."""
        held = any(plan.kept or plan.duplicates for plan in self.files)
        return int(not held or (strict and any(plan.quarantined for plan in self.files)))

    def lines(self) -> Lines:
        """A row per file, and under it why and what would be set aside."""
        if not self.files and not self.stayed:
            yield "nothing to read: no file was found"
            return
        header = ("file", "format", "sure", "records", "kept", "dup", "quar", "skip", "episodes")
        rows = [
            (
                _end(p.path), p.format, p.confidence, p.records, p.kept, p.duplicates, p.quarantined, p.skipped, p.episodes,
            )
            for p in self.files
        ]  # fmt: skip
        yield table(header, rows) + "\n"
        yield from self._why()
        yield from (f"{plan.path}: {reason}" for plan in self.files for reason in plan.reasons)
        yield from noted(self.stayed, "would leave it as it is: ")
        yield "\ndry run: nothing was stored"

    def _why(self) -> list[str]:
        """What the files of each format look like; files that look the same share a line."""
        seen = Counter((plan.format or "no connector", plan.evidence, plan.others) for plan in self.files)
        return [
            f"{name} ({count} file{'s' * (count > 1)}): {evidence}"
            + (f"; also claimed by {', '.join(others)}" if others else "")
            for (name, evidence, others), count in sorted(seen.items())
        ]


def _end(path: str) -> str:
    return path if len(path) <= _PATH else "…" + path[-_PATH + 1 :]


def dry_run(
    paths: Iterable[str | Path], store: Path, options: ReadOptions, name: str | None = None
) -> DryRun:
    """Read every file as an ingest into the store at this path would, and store nothing. The store need not be there; where
    it is, what was forgotten in it is left out here too, and what was read with a mapping is read with it."""
    if options.format is not None:
        get(options.format)
    known = Known()
    if store.exists():
        with open_store(store, read_only=True) as opened:
            key = store_key(store) if key_path(store).exists() else b""
            options = replace(options, forgotten=keys_in(opened), secret_key=key)
            known = Known.of(opened)
    own, recalled = own_files(store), known.recall(options)
    files, pipes = apart(paths, name)
    found = [item for item in find(files, store.parent) if item.path not in own]
    with tempfile.TemporaryDirectory(prefix="logforge-") as room:
        found += spooled(pipes, Path(room).resolve(), name)
        found = with_safe_labels(found, options.redaction, options.secret_key)
        jobs = (withheld(_job(item, recalled(source_id_of(item.label)))) for item in found)
        unpacker = Unpacker(Path(room).resolve(), known, again=True)
        plans = tuple(map(_plan, unpacker.jobs(jobs)))
    return DryRun(plans, tuple(sorted(map(str, unpacker.stayed.values()))))


def _job(item: Found, options: ReadOptions) -> Job:
    return Job(item.path, item.label, source_id_of(item.label), "", 0, options, item.companions, item.verdict)


def _plan(job: Job) -> FilePlan:
    try:
        return _looked_at(job)
    finally:
        discard([job])


def _looked_at(job: Job) -> FilePlan:
    mapping = job.options.mapping
    unread = job.verdict is not None or job.archive
    head = Head(job.path.name, b"", "empty", {}) if unread else look(job.path)
    found = claims(head, *(one for one in (mapping, job.options.earlier) if one is not None))
    reading = read_source(job)
    episodes, reasons = _drain(reading)
    counts = reading.counts
    sure = next((claim.confidence for claim in found if claim.connector.name == reading.format), None)
    return FilePlan(
        path=job.label,
        format=reading.format,
        confidence=sure,
        others=tuple(
            f"{c.connector.name} ({c.confidence:g})" for c in found if c.connector.name != reading.format
        ),
        evidence=job.verdict.reason if job.verdict else _ARCHIVE if job.archive else _evidence(head),
        records=counts.records,
        kept=counts.kept,
        duplicates=counts.duplicates,
        quarantined=counts.quarantined,
        skipped=counts.skipped,
        episodes=episodes,
        reasons=(
            *reasons,
            *(f"would skip {n} × {reason}" for reason, n in sorted(counts.skip_reasons.items())),
        ),
    )


def _drain(reading: SourceReading) -> tuple[int, tuple[str, ...]]:
    """Read to the end, keeping only the number of episodes and what would be set aside, by rule with its first place."""
    episodes = 0
    aside: dict[str, list[Any]] = {}
    for chunk in reading.chunks:
        episodes += len(chunk.copies)
        for row in chunk.quarantine.select(["rule", "reason", "locator", "detail"]).to_pylist():
            aside.setdefault(row["rule"], [0, row])[0] += 1
    return episodes, tuple(
        f"would set aside {n} × {rule}: {row['reason']}"
        + (f" ({row['detail']})" if row["detail"] else "")
        + f" — first: {row['locator']} → {remedy_of(rule)}"
        for rule, (n, row) in sorted(aside.items())
    )


def _evidence(head: Head) -> str:
    if head.members:
        return f"a zip archive with {len(head.members)} members, the first {head.members[0]!r}"
    if head.top:
        keys = sorted(head.top)
        more = f" and {len(keys) - _KEYS} more" if len(keys) > _KEYS else ""
        return f"begins with an {head.container}; keys of the first object: {', '.join(keys[:_KEYS])}{more}"
    return {"empty": "empty", "text": "text that begins like no JSON", "binary": "binary"}.get(
        head.container, f"begins with an {head.container}"
    )
