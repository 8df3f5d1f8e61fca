"""Datasets for other tools: `export` writes any form of catalogue.py. logforge/shards/d3rlpy.py makes d3rlpy's replay buffer."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logforge.core import BaseReport, Lines, Tick, picked, silent
from logforge.exports.catalogue import TRANSITIONS, Format, Options, format_named
from logforge.exports.job import Job, Written, check_build
from logforge.schemas import Mismatch, UsageError
from logforge.shards import SPLITS, Shard, load_shards, read_manifest
from logforge.store import DEFAULT_PATH, open_store, own_files

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class ExportReport(BaseReport):
    """What was written: rows by split, how many of the split's transitions (or contrasts) they hold, and what was left out."""

    dataset: str
    format: str
    out: str
    counts: str
    written: tuple[Written, ...]
    bytes: int

    @property
    def path(self) -> Path:
        """The file or folder."""
        return Path(self.out)

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return sum(part.rows for part in self.written)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        splits = {
            part.split: {
                "rows": part.rows,
                self.counts: part.covered,
                "left_out": dict(sorted(part.left_out.items())),
                "of": part.total,
            }
            for part in self.written
        }
        return {**picked(self, "dataset", "format", "out", "rows", "bytes"), "splits": splits}

    def lines(self) -> Lines:
        """A line for each split, and one for each reason why something was left out."""
        yield f"{self.dataset} → {self.out} ({self.format}, {self.bytes:,} bytes)"
        for part in self.written:
            yield f"{part.split}: {part.rows:,} rows, {part.covered:,} of {part.total:,} {self.counts}"
            for reason, count in sorted(part.left_out.items()):
                yield f"  left out: {count:,} ({reason})"


def export(
    dataset: str | Path,
    format: str,
    out: str | Path,
    split: str | None = None,
    *,
    store: str | Path = DEFAULT_PATH,
    options: Options | None = None,
    progress: Tick = silent,
) -> ExportReport:
    """Write one split of a dataset (train, unless another is named) in another tool's form; see catalogue.py.

    Formats that hold every split write them all where none is named. Those that hold texts read them from the store that the
    dataset was built from. `out` appears whole or not at all. Raises UsageError for an empty split or an option that the
    format does not take, MissingExtra, and Mismatch when store and dataset do not belong together.
    """
    form, target, chosen = format_named(format), Path(out), options or Options()
    chosen.check(form)
    if target.resolve() in own_files(Path(store)):
        raise UsageError(f"{out} is the store, or a file of it", "name another file with --out")
    shards = _shards(dataset, form, split)
    job = Job(shards, target, chosen, None, progress)
    module, _, function = form.writer.partition(":")
    write = getattr(importlib.import_module(module), function)
    if form.texts:
        with open_store(store, read_only=True) as opened:
            check_build(opened, job.manifest, dataset)
            written = write(replace(job, opened=opened))
    else:
        written = write(job)
    _check_counts(form, job, written)
    return ExportReport(str(dataset), form.name, str(out), form.counts, tuple(written), _bytes(target))


def _shards(dataset: str | Path, form: Format, split: str | None) -> tuple[Shard, ...]:
    every = form.every_split and split is None
    known = read_manifest(dataset).splits
    names = [name for name in SPLITS if name in known] if every else [split or "train"]
    shards = tuple(load_shards(dataset, name) for name in names)
    for shard in shards:
        shard.verify()
    if not any(shard.size for shard in shards):
        remedy = "name another --split, or ingest more episodes and build again"
        raise UsageError(
            f"{' and '.join(map(repr, names))} of {dataset} has no transitions to export", remedy
        )
    return shards


def _check_counts(form: Format, job: Job, written: list[Written]) -> None:
    """Nothing is lost on the way: what is written and what is left out are all that the split has."""
    if form.counts != TRANSITIONS:
        return
    for part in written:
        expected = job.manifest.splits[part.split].transitions
        if part.total != expected:
            raise Mismatch(
                f"{job.out}: transitions of {part.split}", expected, part.total, "report this: it is a bug"
            )


def _bytes(target: Path) -> int:
    if target.is_file():
        return target.stat().st_size
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
