"""`logforge ingest --dry-run`: which connector would read each file and why, and what it would keep; nothing is stored."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from logforge.connectors import claims, get
from logforge.connectors.base import Head, look
from logforge.discover import find
from logforge.forgotten import keys_in
from logforge.known import source_id_of
from logforge.packed import Unpacker, discard, withheld
from logforge.reading import Job, ReadOptions, SourceReading, read_source
from logforge.schemas.rules import remedy_of
from logforge.store import open_store, own_files
from logforge.tabulate import table

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
class DryRun:
    """The plans of all files."""

    files: tuple[FilePlan, ...]

    def exit_code(self, strict: bool = False) -> int:
        """That of the ingest it stands for."""
        kept = any(plan.kept for plan in self.files)
        return int(not kept or (strict and any(plan.quarantined for plan in self.files)))

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"dry_run": True, "files": [asdict(plan) for plan in self.files]}

    def render(self) -> str:
        """For people: a row per file, and under it why and what would be set aside."""
        if not self.files:
            return "nothing to read: no file was found"
        header = ("file", "format", "sure", "records", "kept", "dup", "quar", "skip", "episodes")
        rows = [
            (
                _end(p.path),
                p.format,
                p.confidence,
                p.records,
                p.kept,
                p.duplicates,
                p.quarantined,
                p.skipped,
                p.episodes,
            )
            for p in self.files
        ]
        aside = [f"{plan.path}: {reason}" for plan in self.files for reason in plan.reasons]
        return "\n".join([table(header, rows), "", *self._why(), *aside, "", "dry run: nothing was stored"])

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


def dry_run(paths: Iterable[str | Path], store: Path, options: ReadOptions) -> DryRun:
    """Read every file as an ingest into the store at this path would, and store nothing. The store need not be there; where
    it is, what was forgotten in it is left out here too."""
    if options.format is not None:
        get(options.format)
    if store.exists():
        with open_store(store, read_only=True) as opened:
            options = replace(options, forgotten=keys_in(opened))
    own = own_files(store)
    files = (
        withheld(
            Job(
                item.path, item.label, source_id_of(item.label), "", 0, options, item.companions, item.verdict
            )
        )
        for item in find(paths, store.parent)
        if item.path not in own
    )
    with tempfile.TemporaryDirectory(prefix="logforge-") as room:
        return DryRun(tuple(map(_plan, Unpacker(Path(room).resolve()).jobs(files))))


def _plan(job: Job) -> FilePlan:
    try:
        return _looked_at(job)
    finally:
        discard([job])


def _looked_at(job: Job) -> FilePlan:
    mapping = job.options.mapping
    unread = job.verdict is not None or job.archive
    head = Head(job.path.name, b"", "empty", {}) if unread else look(job.path)
    found = claims(head, *([mapping] if mapping else []))
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
