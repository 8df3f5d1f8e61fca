"""What a format's `write` is given and what it gives back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logforge.core import Tick, replaced_file, silent
from logforge.exports.catalogue import Options
from logforge.schemas import Manifest, Mismatch, UsageError
from logforge.shards import Shard
from logforge.store import Store


@dataclass(frozen=True)
class Job:
    """One export: a shard for each split that is written, and where to. `store` is open for formats that hold texts."""

    shards: tuple[Shard, ...]
    out: Path
    options: Options = field(default_factory=Options)
    opened: Store | None = None
    tick: Tick = silent

    @property
    def shard(self) -> Shard:
        """The shard of a format that writes one split."""
        return self.shards[0]

    @property
    def manifest(self) -> Manifest:
        """The dataset's."""
        return self.shard.manifest

    @property
    def store(self) -> Store:
        """The store of a format that holds texts; it holds this very build."""
        assert self.opened is not None, "the catalogue says that the format holds texts"
        return self.opened


@dataclass(frozen=True)
class Written:
    """What came of a split: `rows` written, which hold `covered` transitions (or contrasts); the rest left out, by reason."""

    split: str
    rows: int
    covered: int
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Written and left out."""
        return self.covered + sum(self.left_out.values())


def check_build(store: Store, manifest: Manifest, folder: str | Path) -> None:
    """Raise Mismatch when the store does not hold this very build of the dataset."""
    rows = store.con.sql("SELECT hash FROM datasets WHERE dataset = ?", params=[manifest.dataset]).fetchall()
    held = rows[0][0] if rows else "no such dataset"
    if held != manifest.hash:
        remedy = "name the --store that it was built from"
        raise Mismatch(f"{folder}: dataset in the store", manifest.hash, held, remedy)


@contextmanager
def json_lines(job: Job, left_out: Mapping[str, int]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes one object as a line of the job's file, which appears when the block ends without an error.

    Raises UsageError, with the reasons in `left_out`, when no line was written.
    """
    rows = 0

    def put(row: dict[str, Any]) -> None:
        nonlocal rows
        rows += 1
        stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")

    with replaced_file(job.out) as fresh, fresh.open("w", encoding="utf-8", newline="\n") as stream:
        yield put
        if not rows:
            why = "; ".join(
                f"{count:,} left out: {reason}" for reason, count in sorted(left_out.items()) if count
            )
            remedy = "name another --split, or let in what was left out: docs/exports.md tells how"
            raise UsageError(
                f"{job.shard.split} of {job.manifest.dataset} has no row to write ({why or 'it has none'})",
                remedy,
            )
