"""Conflicts among 1 million transitions on one core, and near states by the index against exact search.

`LOGFORGE_BENCH_SCALE=0.1` takes a tenth of both.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import polars as pl

from benchmarks.measure import Result, alternating
from logforge.dataset.conflicts.neighbours import F32, leaders, unit

SCALE = float(os.environ.get("LOGFORGE_BENCH_SCALE", "1"))
ROWS = int(1_000_000 * SCALE)
STATES = int(100_000 * SCALE)
TEXTS, TEXT_SIZE = 6, 32
"""Task, last message, three windows and thought, as in a dataset's observations with the usual text size."""
STEPS = 10
THRESHOLD = 0.98
PER_SECOND = 30_000


def run() -> list[Result]:
    """Exact and canonical in a process of its own, which polars gives one thread; near with all cores on both sides."""
    script = "from benchmarks.conflicts import exact_and_canonical as go; go()"
    one_core = {**os.environ, "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=one_core, capture_output=True, text=True, check=True
    )
    seconds, conflicts = done.stdout.split()
    rate = ROWS / float(seconds)
    return [
        Result(
            "conflicts, exact + canonical, one core",
            f"{rate:,.0f} transitions/s ({ROWS:,} in {float(seconds):.1f} CPU s, {int(conflicts):,} found)",
            f"{PER_SECOND:,}/s",
            rate / PER_SECOND,
            "≥ 1",
            rate >= PER_SECOND,
        ),
        near(),
    ]


def exact_and_canonical() -> None:
    """Print the CPU seconds that all of it takes (keys, trajectories, four kinds), and how many conflicts there are."""
    from logforge.dataset.conflicts.groups import find_conflicts
    from logforge.dataset.conflicts.rows import Decisions, comparable

    transitions, rows = made_transitions(ROWS)
    decisions = Decisions.of(rows)
    found: list[int] = []
    (seconds,) = alternating(
        lambda: found.append(find_conflicts(comparable(transitions, decisions), 0.5).height), repeats=1
    )
    print(seconds, found[0])


def made_transitions(rows: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Episodes of ten steps over a tenth as many states, with every kind of conflict; one in fifty comes twice."""
    rng = np.random.default_rng(0)
    episodes = rows // 10
    source = np.where(rng.random(episodes) < 0.02, rng.integers(0, episodes, episodes), np.arange(episodes))
    states = rng.integers(0, rows // 10, (episodes, 10))[source].ravel()
    actions = (states % 7 + (rng.random((episodes, 10)) < 0.2)[source].ravel()) % 8
    success = np.repeat(rng.random(episodes) < 0.5, 10)
    step = np.tile(np.arange(10, dtype=np.int32), episodes)
    number = pl.Series("n", np.repeat(np.arange(episodes), 10))
    frame = pl.DataFrame({"episode_id": number, "step": step, "s": states, "a": actions, "success": success})
    transitions = frame.select(
        pl.col("episode_id").cast(pl.String).str.zfill(32),
        "step",
        pl.col("s").cast(pl.String).str.zfill(32).alias("state_key"),
        (pl.col("s") // 3).cast(pl.String).str.zfill(32).alias("state_key_canonical"),
        pl.format("tool_{}", "a").alias("action"),
        "success",
        return_to_go=pl.col("success").cast(pl.Float64) * 0.99 ** (9 - pl.col("step")),
        return_is_partial=pl.lit(False),
        parent_id=pl.lit(None, pl.String),
        source_kind=pl.when(pl.col("s") % 50 == 0).then(pl.lit("human_demo")).otherwise(pl.lit("agent_log")),
    )
    decisions = transitions.select(
        "episode_id",
        "step",
        said=pl.concat_str(pl.lit('{"order": "'), "state_key", pl.lit('"}')),
        score=pl.lit(None, pl.Float64),
    )
    return transitions, decisions


def made_states(rows: int, seed: int = 0) -> F32:
    """Unit vectors of states as episodes of ten steps show them: every text is part its task and part its own, windows are
    weighted means of it (logforge/dataset/states/features.py), no thoughts are logged, and half of the episodes are others reworded."""
    rng = np.random.default_rng(seed)
    spectrum = np.sqrt(1.0 / np.arange(1, TEXT_SIZE + 1)).astype(np.float32)  # of real texts, after PCA
    episodes, steps = -(-rows // STEPS), STEPS

    def texts(*shape: int) -> F32:
        drawn: F32 = rng.normal(size=(*shape, TEXT_SIZE)).astype(np.float32) * spectrum
        return drawn

    task = texts(episodes)
    said = task[:, None, None] + texts(episodes, steps, 3)
    copies = np.flatnonzero(rng.random(episodes) < 0.5)
    source = rng.integers(0, episodes, len(copies))
    amount = rng.uniform(0, 0.4, len(copies)).astype(np.float32)
    task[copies] = task[source] + amount[:, None] * texts(len(copies))
    said[copies] = said[source] + amount[:, None, None, None] * texts(len(copies), steps, 3)
    age = np.arange(steps)[:, None] - np.arange(steps)
    weight = np.where(age >= 0, 0.8 ** np.maximum(age, 0), 0).astype(np.float32)
    windows = np.einsum("ts,esrd->etrd", weight / weight.sum(axis=1, keepdims=True), said)
    blocks = np.zeros((episodes, steps, TEXTS, TEXT_SIZE), np.float32)
    blocks[:, :, 0], blocks[:, :, 1], blocks[:, :, 2:5] = task[:, None], said[:, :, 2], windows
    return unit(blocks.reshape(episodes * steps, -1)[:rows])


def near() -> Result:
    """Groups by the index against the exact search for all neighbours, and whether it found what that finds."""
    vectors = made_states(STATES)
    grouped: list[object] = []
    exact: list[int] = []
    indexed, searched = alternating(
        lambda: grouped.append(leaders(vectors, THRESHOLD)),
        lambda: exact.append(neighbours(vectors)),
        repeats=1,
    )
    recall = _recall(vectors, STATES // 50)
    ratio = searched / indexed
    return Result(
        f"near states, {STATES:,} × {vectors.shape[1]}",
        f"{indexed:.1f} CPU s, recall {recall:.4f}",
        f"exact search {searched:.1f} CPU s ({exact[0]:,} pairs)",
        ratio,
        "≥ 3, recall ≥ 0.99",
        ratio >= 3 and recall >= 0.99,
    )


def neighbours(vectors: F32) -> int:
    """How many ordered pairs are near, by products of matrices."""
    found = 0
    for start in range(0, len(vectors), 2048):
        found += int(np.count_nonzero(vectors[start : start + 2048] @ vectors.T >= THRESHOLD))
    return found - len(vectors)


def _recall(vectors: F32, sample: int) -> float:
    """The share of the true neighbours of some states that the index proposes."""
    from logforge.dataset.conflicts.neighbours import proposals

    rows = np.linspace(0, len(vectors) - 1, sample).astype(np.int64)
    truth = vectors[rows] @ vectors.T >= THRESHOLD
    hits = sum(int(truth[n, ids].sum()) for n, ids in enumerate(proposals(vectors, THRESHOLD)(rows)))
    return hits / int(truth.sum())
