"""Two reading processes against one, in wall time: it needs two idle cores to mean anything."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from benchmarks.made import write_arrays, write_lines
from benchmarks.measure import Result, ingest_alone

MESSAGES = 600_000
REPEATS = 3


def run() -> list[Result]:
    """Many files, and one long file."""
    with tempfile.TemporaryDirectory() as folder:
        many, one = Path(folder, "many"), Path(folder, "one")
        messages = write_arrays(many, MESSAGES, 4_000)
        write_lines(one / "lines.jsonl", sum(path.stat().st_size for path in many.iterdir()))
        return [_compared(many, "files of 3 MB", messages), _compared(one, "one file", messages)]


def _compared(logs: Path, name: str, messages: int) -> Result:
    alone, both = [], []
    for number in range(REPEATS):
        alone.append(ingest_alone(logs.with_name(f"{logs.name}{number}-1.duckdb"), logs, threads=1).seconds)
        both.append(ingest_alone(logs.with_name(f"{logs.name}{number}-2.duckdb"), logs, workers=2).seconds)
    one, two = statistics.median(alone), statistics.median(both)
    return Result(
        f"two workers, {name}, {messages:,} messages (load {os.getloadavg()[0]:.1f})",
        f"{two:.1f} s",
        f"one {one:.1f} s",
        one / two,
        "≥ 1.7",
        one / two >= 1.7,
    )
