"""A folder of 100,000 small files: how long the first ingest takes, how long one that finds nothing changed, how much memory.

LOGFORGE_BENCH_FILES sets another number.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.made import write_small
from benchmarks.measure import Result, ingest_alone

FILES = int(os.environ.get("LOGFORGE_BENCH_FILES", "100000"))


def run() -> list[Result]:
    """Both runs; the reference opens, reads and hashes each file."""
    with tempfile.TemporaryDirectory() as folder:
        logs, store = Path(folder, "logs"), Path(folder, "s.duckdb")
        write_small(logs, FILES)
        first = ingest_alone(store, logs, threads=1)
        again = ingest_alone(store, logs, threads=1)
    return [
        Result(
            f"{FILES:,} small files, {name}",
            f"{taken.cpu_seconds:.1f} CPU s, {taken.cpu_seconds / FILES * 1e6:.0f} µs a file, {taken.peak_mb:.0f} MB",
            "",
            None,
            "< 600 MB",
            taken.peak_mb < 600,
        )
        for name, taken in (("first run", first), ("nothing changed", again))
    ]
