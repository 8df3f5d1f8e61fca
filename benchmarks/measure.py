"""How a benchmark measures and what it reports."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

WATCHED = 0.2
"""Seconds between two looks at a process that is measured: a look takes over a millisecond of a core, which two reading
processes would miss."""


@dataclass(frozen=True)
class Result:
    """One measured figure. `ratio` is against `reference`, measured in the same run; `target` is what it is to reach."""

    name: str
    figure: str
    reference: str
    ratio: float | None
    target: str
    met: bool | None


def write_page(path: Path, lines: Iterable[str]) -> None:
    """Write a page of measured figures, and show it."""
    text = "\n".join(lines) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    print(text)


def cpu_seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Median CPU seconds of this process over some calls."""
    return alternating(call, repeats=repeats)[0]


def alternating(*calls: Callable[[], object], repeats: int = 3) -> list[float]:
    """Median CPU seconds of each of some calls, taken in turn so that what else the machine does weighs on all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            start = time.process_time()
            call()
            taken.append(time.process_time() - start)
    return [statistics.median(taken) for taken in times]


class Run(NamedTuple):
    """An ingest in a process of its own: how long it took (seconds), what it and its helpers used of the processors from start
    to end, and the most memory they held (MB)."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


_INGEST = """
import json, sys, time
if __name__ == "__main__":
    from logforge.ingestion import ingest
    from logforge.store import Store
    store, logs, options = json.loads(sys.argv[1])
    threads = options.pop("threads", None)
    with Store(store) as opened:
        if threads:
            opened.con.execute(f"SET threads = {threads}")
        start = time.perf_counter()
        ingest(opened, [logs], **options)
        print(time.perf_counter() - start)
"""


def ingest_alone(store: Path, logs: Path, **options: object) -> Run:
    """Ingest in a fresh process, as the command line does (its reading processes import no more than they need).

    `threads` is DuckDB's number of threads, the other options are those of `ingest`.
    """
    script = store.with_suffix(".run.py")
    script.write_text(_INGEST)
    given = json.dumps([str(store), str(logs), options])
    with subprocess.Popen(
        [sys.executable, str(script), given], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        peak = cpu = 0.0
        while process.poll() is None:
            held, used = _session(process.pid)
            peak, cpu = max(peak, held), max(cpu, used)
            time.sleep(WATCHED)
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"the ingest ended with {process.returncode}")
    return Run(float(said), cpu, peak)


def _session(session: int) -> tuple[float, float]:
    """Memory of all processes of a session in MB, shared pages counted once for each, and CPU seconds, ended ones included."""
    pages = ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    ticks += sum(map(int, fields[11:15]))
                    pages += int((folder / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, ticks / os.sysconf("SC_CLK_TCK")
