"""Two reading processes against one, in wall time: it needs two idle cores to mean anything."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.made import write_arrays, write_lines
from benchmarks.measure import Result, Run, ingest_alone

MESSAGES = int(os.environ.get("LOGFORGE_BENCH_MESSAGES", "2000000"))
REPEATS = 2


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
        alone.append(ingest_alone(logs.with_name(f"{logs.name}{number}-1.duckdb"), logs, threads=1))
        both.append(ingest_alone(logs.with_name(f"{logs.name}{number}-2.duckdb"), logs, workers=2))
    one, two = _middle(alone), _middle(both)
    ratio = one.seconds / two.seconds
    return Result(
        f"two workers, {name}, {messages:,} messages (load {os.getloadavg()[0]:.1f})",
        f"{two.seconds:.1f} s ({two.cpu_seconds:.1f} CPU s, {two.peak_mb:.0f} MB)",
        f"one {one.seconds:.1f} s ({one.cpu_seconds:.1f} CPU s)",
        ratio,
        "≥ 1.7",
        ratio >= 1.7,
    )


def _middle(runs: list[Run]) -> Run:
    """The run of median length."""
    return sorted(runs)[len(runs) // 2]
