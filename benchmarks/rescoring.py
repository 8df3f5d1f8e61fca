"""A new spec over the stored tau-bench logs, against reading and building them from nothing with MiniLM: wall seconds.

`score` is what a new spec costs; `reward diff` scores two; a rebuild takes the vectors of the texts from the store.
The logs are those of ../shared/logs (150 episodes), or the 15 of sample_logs where they are not there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Result
from benchmarks.ranking import DETECTORS, ROOT, SAMPLE, SHARED
from logforge.core.frames import tables_of
from logforge.dataset.build.pipeline import build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.rewards.lint.diff import reward_diff
from logforge.rewards.pipeline import load_spec, score
from logforge.store.store import Store

FIRST = ROOT / "sample_logs" / "reward.yaml"
NEW = ROOT / "logforge" / "templates" / "rewards" / "clarify_fixed.yaml"


def run() -> list[Result]:
    """Each in turn, in one store."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "s.duckdb")) as store:
        read = _seconds(lambda: ingest(store, [SHARED if SHARED.is_dir() else SAMPLE]))
        built = _seconds(lambda: build_dataset(store, FIRST, out=folder))
        again = _seconds(lambda: build_dataset(store, NEW, out=folder))
        diff = _seconds(lambda: reward_diff(store, NEW, DETECTORS))
        stored = _seconds(lambda: score(load_spec(NEW), tables_of(store.episodes())))
    whole = read + built
    reference = f"ingest {read:.1f} s + build {built:.1f} s"
    return [
        Result(
            name, f"{taken:.2f} s", reference, whole / taken, target, whole / taken >= 20 if target else None
        )
        for name, taken, target in (
            ("score the stored logs with a new spec", stored, "≥ 20"),
            ("reward diff of two specs", diff, "≥ 20"),
            ("build again with a new spec", again, ""),
        )
    ]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
