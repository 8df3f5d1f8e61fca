"""A dataset built again with another reward spec, against a bare np.save of its arrays: CPU seconds of one thread.

The first figure is rewards, returns, states and the writing of the shards, as a whole build spends them that finds its states in
the store: looking for them, their hash and checksums count. The second is the same where they are made, of texts that are encoded.
The third and fourth are those builds with all the rest: near-duplicates, splits and their proof, rows, validation, conflicts,
weights, rows in the store.
LOGFORGE_BENCH_STEPS sets how many steps the logs hold (200,000 by default). Memory is what a process that builds them has at its
peak, and the slope what each episode of the second half adds to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.made import write_arrays
from benchmarks.measure import Result, alternating
from logforge.dataset.build import pipeline as build
from logforge.dataset.build import publication, rows, transitions
from logforge.dataset.build.known_states import KnownStates
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.build.report import BuildReport
from logforge.ingestion.pipeline import ingest
from logforge.rewards.pipeline import load_spec
from logforge.schemas.transition import DRAWN_SPLITS
from logforge.shards.arrays import ARRAYS
from logforge.shards.reader import load_shards
from logforge.store.store import Store

STEPS = int(os.environ.get("LOGFORGE_BENCH_STEPS", "200000"))
SPEC = Path(__file__).resolve().parent.parent / "sample_logs" / "reward.yaml"
CONFIG = BuildConfig(encoder="hashing")
PARTS = (
    (build, "score"),
    (rows, "look_for_states"),
    (transitions, "returns_to_go"),
    (build, "encode"),
    (publication, "write_dataset"),
)
"""What gives rewards, returns, states and shards."""
_MESSAGES = 2.3
"""For each step, about."""
_ALONE = """
import re, sys
from pathlib import Path
from benchmarks.pipeline import CONFIG, SPEC
from logforge.dataset.build.pipeline import build_dataset
from logforge.store.store import Store
with Store(sys.argv[1]) as store:
    build_dataset(store, SPEC, out=sys.argv[2], config=CONFIG)
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def run() -> list[Result]:
    """One store of so many steps, and one of half as many."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = {share: _filled(folder, share) for share in (1.0, 0.5)}
        peaks = {share: _peak(folder, share) for share in sizes}
        return [*_speed(folder), *_memory(sizes, peaks)]


def _filled(folder: Path, share: float) -> int:
    """A store with so large a share of the steps; how many episodes it holds."""
    logs = folder / f"logs{share}"
    write_arrays(logs, int(STEPS * share * _MESSAGES))
    with Store(folder / f"{share}.duckdb") as store:
        ingest(store, [logs], workers=1)
        ((episodes,),) = store.con.sql("SELECT count(*) FROM episodes").fetchall()
    return int(episodes)


def _peak(folder: Path, share: float) -> float:
    """The memory of a build in a process of its own, in MB."""
    command = [sys.executable, "-c", _ALONE, str(folder / f"{share}.duckdb"), str(folder / f"out{share}")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(said.splitlines()[-1])  # DuckDB shows its progress to what has no file


def _memory(sizes: dict[float, int], peaks: dict[float, float]) -> Iterator[Result]:
    (many, most), (few, less) = ((sizes[share], peaks[share]) for share in (1.0, 0.5))
    yield Result(f"peak memory of a build, {many:,} episodes", f"{most:,.0f} MB", "", None, "", None)
    each = (most - less) / (many - few) * 1024
    yield Result(f"memory for each episode beyond {few:,}", f"{each:,.1f} kB", "", None, "", None)


def _speed(folder: Path) -> Iterator[Result]:
    shards = {split: load_shards(folder / "out1.0" / "default", split) for split in DRAWN_SPLITS}
    steps = sum(shard.size for shard in shards.values())

    def bare() -> None:
        for split, shard in shards.items():
            (folder / "bare" / split).mkdir(parents=True, exist_ok=True)
            for name in ARRAYS:
                np.save(folder / "bare" / split / f"{name}.npy", getattr(shard, name)[:])

    (plain,) = alternating(bare)
    said = f"np.save of the same arrays {steps / plain:,.0f}/s"
    spec = _another_spec(folder)
    with Store(folder / "1.0.duckdb") as store:
        store.con.execute("SET threads = 1")

        def again() -> BuildReport:
            return build_dataset(store, spec, out=folder / "out1.0", config=CONFIG)

        with patch.object(KnownStates, "find", return_value=None):
            made = _timed(again, "made")
        reused = _timed(again, "reused")
    for (spent, _), how, target in ((reused, "cached", 0.05), (made, "made", None)):
        ratio = plain / sum(spent.values())
        shares = ", ".join(f"{name.strip('_')} {seconds:.2f} s" for name, seconds in spent.items())
        what = f"rewards, returns, {how} states, write of {steps:,} steps ({shares})"
        asked, met = (f"≥ {target} ×", ratio >= target) if target else ("", None)
        yield Result(what, f"{steps / sum(spent.values()):,.0f}/s", said, ratio, asked, met)
    for (_, whole), how in ((reused, "cached"), (made, "made")):
        yield Result(
            f"the whole build, states {how}", f"{steps / whole:,.0f}/s", said, plain / whole, "", None
        )


def _another_spec(folder: Path) -> Path:
    """SPEC with another discount and other weights."""
    told = load_spec(SPEC).model_dump(mode="json", exclude_defaults=True)
    file = folder / "another.yaml"
    file.write_text(
        json.dumps({**told, "gamma": 0.9, "terms": {**told["terms"], "step_price": {"value": -0.25}}})
    )
    return file


def _timed(call: Callable[[], BuildReport], states: str) -> tuple[dict[str, float], float]:
    """CPU seconds of the PARTS within a build, and of the whole; its states must come about so."""
    spent: dict[str, float] = {}
    with ExitStack() as stack:
        for owner, name in PARTS:
            stack.enter_context(patch.object(owner, name, counting(getattr(owner, name), name, spent)))
        start = time.process_time()
        found = call().states
        if found != states:
            raise RuntimeError(f"states were {found}, not {states}")
        return spent, time.process_time() - start


def counting(real: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    """A call that adds the CPU seconds it takes to those spent under a name."""

    def counted(*args: Any, **more: Any) -> Any:
        start = time.process_time()
        try:
            return real(*args, **more)
        finally:
            spent[name] = spent.get(name, 0.0) + time.process_time() - start

    return counted
