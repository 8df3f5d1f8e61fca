"""Ingest of tau-bench messages into DuckDB, final checkpoint included, against orjson.loads over the same bytes.

One core (DuckDB too); the files are the sample's real episodes again and again, each copy told apart by its trial
number, so that nothing is a duplicate. Memory is measured in a fresh process for 6 and for 30 files of 16 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Result, cpu_seconds

SAMPLE = Path(__file__).resolve().parent.parent / "sample_logs" / "tau_bench"
MESSAGES = 200_000
FILE_MESSAGES = 20_000
"""About 16 MB."""


def run() -> list[Result]:
    """Both figures."""
    import orjson

    from logforge.ingestion import ingest
    from logforge.store import Store

    with tempfile.TemporaryDirectory() as folder:
        paths, messages = write_logs(Path(folder, "logs"), MESSAGES)
        data = [path.read_bytes() for path in paths]
        number = iter(range(100))

        def ingest_all() -> None:
            with Store(Path(folder, f"{next(number)}.duckdb")) as store:
                store.con.execute("SET threads = 1")
                ingest(store, [Path(folder, "logs")], workers=1)

        ours, plain = cpu_seconds(ingest_all), cpu_seconds(lambda: [orjson.loads(item) for item in data])
    ratio = plain / ours
    few, many = peak_mb(6), peak_mb(30)
    return [
        Result(
            "ingest tau-bench, one core",
            f"{messages / ours:,.0f} messages/s ({messages:,} in {ours:.2f} CPU s)",
            f"orjson.loads {messages / plain:,.0f} messages/s",
            ratio,
            "≥ 0.10",
            ratio >= 0.10,
        ),
        Result(
            "peak memory, 30 files of 16 MB against 6",
            f"{many:.0f} MB",
            f"{few:.0f} MB",
            many / few,
            "≤ 1.25 (independent of the number of files)",
            many / few <= 1.25,
        ),
    ]


def write_logs(folder: Path, messages: int, per_file: int = 4_000) -> tuple[list[Path], int]:
    """Files of real episodes until they hold `messages` in all."""
    folder.mkdir(parents=True)
    episodes = [
        episode for path in sorted(SAMPLE.glob("*.json")) for episode in json.loads(path.read_bytes())
    ]
    paths: list[Path] = []
    total = held = 0
    rows: list[dict[str, object]] = []
    trial = 0
    while total < messages:
        for episode in episodes:
            rows.append({**episode, "trial": trial})
            held += len(episode["traj"])
        trial += 1
        if held >= per_file:
            paths.append(folder / f"{len(paths):04}.json")
            paths[-1].write_text(json.dumps(rows))
            total, held, rows = total + held, 0, []
    return paths, total


def peak_mb(files: int) -> float:
    """Peak resident memory of a fresh process that ingests so many files."""
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder, "logs"), files * FILE_MESSAGES, FILE_MESSAGES)
        code = (
            "import resource; from logforge.ingestion import ingest; from logforge.store import Store\n"
            f"with Store({str(Path(folder, 's.duckdb'))!r}) as s:\n"
            f"    ingest(s, [{str(Path(folder, 'logs'))!r}], workers=1)\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)
