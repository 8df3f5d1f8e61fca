"""Peak memory of an ingest, all its processes together, on files of 16 MB, on one long file of lines and on one long array.

The target is 600 MB for 4 GB of input; LOGFORGE_BENCH_GB sets how much (1 by default: it takes minutes).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.made import write_array, write_arrays, write_lines
from benchmarks.measure import Result, ingest_alone

GIGABYTES = float(os.environ.get("LOGFORGE_BENCH_GB", "1"))
_MESSAGE = 800
"""Bytes a message takes, about."""


def run() -> list[Result]:
    """Each shape with one worker and with two."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        many, one, array = Path(folder, "many"), Path(folder, "one"), Path(folder, "array")
        write_arrays(many, int(GIGABYTES * 1e9 / _MESSAGE))
        write_lines(one / "lines.jsonl", int(GIGABYTES * 1e9))
        write_array(array / "array.json", int(GIGABYTES * 1e9))
        for logs, name in ((many, "files of 16 MB"), (one, "one file"), (array, "one array")):
            for workers in (1, 2):
                store = Path(folder, f"{logs.name}{workers}.duckdb")
                taken = ingest_alone(store, logs, workers=workers)
                results.append(_result(name, workers, taken.peak_mb, taken.seconds))
                store.unlink()
    return results


def _result(name: str, workers: int, peak: float, seconds: float) -> Result:
    what = f"peak memory, {GIGABYTES:g} GB in {name}, {workers} worker{'s' * (workers > 1)}"
    met = peak < 600 if workers == 1 else None
    return Result(what, f"{peak:.0f} MB ({seconds:.0f} s)", "", None, "< 600 MB" if workers == 1 else "", met)
