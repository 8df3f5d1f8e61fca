"""A dataset after one more log: `build-dataset --like EARLIER`, which makes the states of the new episodes alone, against a build
from nothing and against the same build where all states are made. CPU seconds and peak memory of processes of their own, one thread;
of the whole, and of what gives rows and states.

LOGFORGE_BENCH_EPISODES sets how many simulated episodes the earlier dataset has (3,000 by default); 200 are added.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Result
from logforge.envs.catalogue import make
from logforge.envs.simulation import simulate
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store

EPISODES = int(os.environ.get("LOGFORGE_BENCH_EPISODES", "3000"))
ADDED = 200
WHAT = {"cpu": "the build", "states": "rows and states"}
_ALONE = """
import json, re, sys, time
from pathlib import Path
from unittest.mock import patch
from benchmarks.pipeline import CONFIG, SPEC, counting
from logforge.dataset.build import pipeline
from logforge.dataset.build.earlier_dataset import earlier_reduction
from logforge.dataset.build.known_states import KnownStates
from logforge.dataset.build.earlier_dataset import earlier_vocabulary
from logforge.dataset.build.pipeline import build_dataset
from logforge.store.store import Store
home, name, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
like = {}
if how != "nothing":
    like = {"vocabulary": earlier_vocabulary(home / "first"), "reduction": earlier_reduction(home / "first", CONFIG.encoder)}
if how != "reuse":
    patch.object(KnownStates, "find", return_value=None).start()
parts = {}
for part in ("make_rows", "encode"):
    patch.object(pipeline, part, counting(getattr(pipeline, part), part, parts)).start()
with Store(home / "store.duckdb") as store:
    store.con.execute("SET threads = 1")
    start = time.process_time()
    report = build_dataset(store, SPEC, name=name, out=home, config=CONFIG, **like)
    spent = time.process_time() - start
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({"cpu": spent, "states": sum(parts.values()), "peak": peak, "hash": report.hash, "episodes": report.state_episodes}))
"""


def run(episodes: int = EPISODES, added: int = ADDED) -> list[Result]:
    """One more log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate(make("it-ops"), "mix", episodes, 0, folder / "logs")
        simulate(make("it-ops"), "mix", added, 1, folder / "more")
        home = _built(folder, "home", "logs")
        with Store(home / "store.duckdb") as store:
            ingest(store, [folder / "more"], workers=1)
        shutil.copytree(home, folder / "made")
        reuse, made = _build(home, "next", "reuse"), _build(folder / "made", "next", "made")
        nothing = _build(_filled(folder, "fresh", "logs", "more"), "next", "nothing")
    if reuse["hash"] != made["hash"] or reuse["episodes"]["made"] != added:
        raise RuntimeError(f"states were not reused as they are made: {reuse}, {made}")
    others = (nothing, "from nothing"), (made, "all states made")
    return [_result(reuse, *other, episodes, added, what) for what in WHAT for other in others]


def _built(folder: Path, name: str, *logs: str) -> Path:
    """A folder with a store of some logs and the dataset `first` of it."""
    home = _filled(folder, name, *logs)
    _build(home, "first", "nothing")
    return home


def _filled(folder: Path, name: str, *logs: str) -> Path:
    home = folder / name
    home.mkdir()
    with Store(home / "store.duckdb") as store:
        ingest(store, [folder / log for log in logs], workers=1)
    return home


def _build(home: Path, name: str, how: str) -> dict[str, Any]:
    """What a build in a process of its own took."""
    command = [sys.executable, "-c", _ALONE, str(home), name, how]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])  # DuckDB shows its progress to what has no file
    return found


def _result(
    reuse: dict[str, Any], other: dict[str, Any], how: str, episodes: int, added: int, what: str
) -> Result:
    return Result(
        f"{WHAT[what]} of {added} more episodes than {episodes:,}, --like the earlier one",
        f"{reuse[what]:.2f} CPU s, {reuse['peak']:,.0f} MB",
        f"{how} {other[what]:.2f} CPU s, {other['peak']:,.0f} MB",
        other[what] / reuse[what],
        "",
        None,
    )
