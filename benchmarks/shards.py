"""Shards on one core: sampling and fitting against d3rlpy's own buffer, writing against a bare np.save and d3rlpy's dump.

LOGFORGE_BENCH_ROWS sets the number of transitions (200,000 by default; 448 numbers each). d3rlpy's dump is measured on a
part of them, since it takes seconds per 10,000. Memory is what a process of its own holds at its peak beyond its imports.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measure import Result, alternating
from logforge.core.extras import import_d3rlpy
from logforge.learning.training.config import TrainConfig
from logforge.schemas.manifest import FeatureSlice, Manifest, Vocabulary
from logforge.shards.arrays import ARRAYS, SplitArrays
from logforge.shards.d3rlpy import to_mdp_dataset
from logforge.shards.fast_buffer import FastBuffer
from logforge.shards.reader import load_shards, write_dataset
from logforge.shards.sides import plain_sides

ROWS = int(os.environ.get("LOGFORGE_BENCH_ROWS", "200000"))
SIZE, STEPS, BATCH = 448, 20, 256
VOCABULARY = Vocabulary.build([f"tool_{number:02}" for number in range(17)])
PIECES = 50

_STREAM = """
import re, sys
from pathlib import Path
from benchmarks.shards import PIECES, made, manifest
from logforge.shards import ShardWriter
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
piece = made(int(sys.argv[2]) // PIECES)
before = peak()
with ShardWriter.replacing(sys.argv[1], manifest(), 64 << 20) as writer:
    split = writer.split("train", transitions=piece.size * PIECES, episodes=piece.episode_count * PIECES)
    for _ in range(PIECES):
        split.append(piece)
print(peak() - before)
"""


def made(rows: int) -> SplitArrays:
    """Episodes of 20 steps, every third cut off."""
    episodes = max(1, rows // STEPS)
    rows = episodes * STEPS
    rng = np.random.default_rng(0)
    ends = np.zeros((episodes, STEPS), bool)
    ends[:, -1] = True
    cut = (np.arange(episodes) % 3 == 0)[:, None]
    offsets = np.arange(episodes + 1, dtype=np.int64)
    masks = np.ones((rows + episodes, VOCABULARY.size), bool)
    masks[:, VOCABULARY.invalid] = False
    actions, propensities = (
        rng.integers(0, VOCABULARY.size - 1, rows).astype(np.int32),
        np.full(rows, np.nan, np.float32),
    )
    return SplitArrays(
        **plain_sides(actions, propensities),
        actions=actions,
        rewards=rng.standard_normal(rows, np.float32),
        terminals=(ends & ~cut).reshape(-1),
        timeouts=(ends & cut).reshape(-1),
        returns=rng.standard_normal(rows, np.float32),
        propensities=propensities,
        weights=np.ones(rows, np.float32),
        success=np.ones(episodes, np.int8),
        groups=np.arange(episodes, dtype=np.int32),
        augmented=np.zeros(episodes, bool),
        episode_offsets=offsets * STEPS,
        observations=rng.standard_normal((rows + episodes, SIZE), np.float32),
        masks=masks,
        observation_offsets=offsets * (STEPS + 1),
    )


def manifest(dtype: str = "float32") -> Manifest:
    """What these arrays mean."""
    return Manifest(
        dataset="bench",
        actions=VOCABULARY.actions,
        layout=(FeatureSlice("all", 0, SIZE),),
        observation_size=SIZE,
        gamma=0.99,
        spec_hash="bench",
        config={},
        observation_dtype=dtype,  # type: ignore[arg-type]
    )


def run() -> list[Result]:
    """All of it, on one thread."""
    import structlog
    import torch

    torch.set_num_threads(1)
    import_d3rlpy()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        return list(_results(Path(folder)))


def _results(folder: Path) -> Iterator[Result]:
    arrays = made(ROWS)
    yield from _writing(folder, arrays)
    write_dataset(folder / "d", {"train": arrays}, manifest())
    write_dataset(folder / "half", {"train": arrays}, manifest("float16"))
    yield from _sampling(folder)
    yield from _fitting(folder)
    yield _memory(folder)


def _writing(folder: Path, arrays: SplitArrays) -> Iterator[Result]:
    def bare() -> None:
        (folder / "bare").mkdir(exist_ok=True)
        for name in ARRAYS:
            np.save(folder / "bare" / f"{name}.npy", getattr(arrays, name))

    def whole() -> None:
        write_dataset(folder / "w", {"train": arrays}, manifest())

    # The page cache grows at first, old dataset and new: a virtual machine pays for each page that it never had.
    alternating(bare, whole, repeats=2)
    plain, ours = alternating(bare, whole, repeats=5)
    rate = arrays.size / ours
    what = f"write {arrays.size:,} × {SIZE} with checks, checksums and fsync"
    yield _ratio(
        what, rate, f"np.save of the same arrays {arrays.size / plain:,.0f}/s", arrays.size / plain, 0.4
    )
    shutil.rmtree(folder / "bare")
    part = made(min(ROWS, 10_000))
    write_dataset(folder / "w", {"train": part}, manifest())
    buffer = to_mdp_dataset(load_shards(folder / "w"))

    def dump() -> None:
        with (folder / "d3rlpy.h5").open("w+b") as stream:
            buffer.dump(stream)

    (theirs,) = alternating(dump, repeats=1)
    stock = part.size / theirs
    yield _ratio(what, rate, f"d3rlpy's dump of {part.size:,} {stock:,.0f}/s", stock, 15)
    shutil.rmtree(folder / "w")


def _sampling(folder: Path) -> Iterator[Result]:
    shard, half = load_shards(folder / "d"), load_shards(folder / "half")
    stock, fast, small = to_mdp_dataset(shard), FastBuffer(shard), FastBuffer(half)

    def pass_over(count: int) -> None:
        for _, _ in zip(range(count), shard.torch_batches(BATCH, 0, "cpu"), strict=False):
            pass

    def draw(buffer: object, count: int) -> None:
        for _ in range(count):
            buffer.sample_transition_batch(BATCH)  # type: ignore[attr-defined]

    many = max(1, min(400, ROWS // BATCH))
    theirs, ours, halved, passed = alternating(
        lambda: draw(stock, 40), lambda: draw(fast, many), lambda: draw(small, many), lambda: pass_over(many),
        repeats=5,
    )  # fmt: skip
    reference = 40 * BATCH / theirs
    said = f"d3rlpy's ReplayBuffer {reference:,.0f}/s"
    yield _ratio(f"batches of {BATCH}, FastBuffer", many * BATCH / ours, said, reference, 15)
    yield _ratio(
        f"batches of {BATCH}, FastBuffer, float16 on disk", many * BATCH / halved, said, reference, None
    )
    yield _ratio(
        f"batches of {BATCH}, torch_batches with masks", many * BATCH / passed, said, reference, None
    )


def _fitting(folder: Path) -> Iterator[Result]:
    """With the network of `logforge train`, and with d3rlpy's default, whose arithmetic leaves less to win."""
    d3rlpy = import_d3rlpy()
    shard = load_shards(folder / "d")

    def fit(buffer: object, hidden: tuple[int, ...]) -> None:
        d3rlpy.seed(0)
        encoder = d3rlpy.models.VectorEncoderFactory(list(hidden))
        algo = d3rlpy.algos.DiscreteCQLConfig(batch_size=BATCH, encoder_factory=encoder).create(
            device="cpu:0"
        )
        algo.fit(
            buffer, n_steps=200, n_steps_per_epoch=200, show_progress=False, save_interval=1000,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )  # fmt: skip

    stock, fast = to_mdp_dataset(shard), FastBuffer(shard)
    for hidden, target in ((TrainConfig().hidden, 1.4), ((256, 256), None)):
        theirs, ours = alternating(partial(fit, stock, hidden), partial(fit, fast, hidden))
        what = f"updates of DiscreteCQL.fit, batch {BATCH}, layers of {hidden}"
        said = f"on d3rlpy's ReplayBuffer {200 / theirs:,.1f}/s"
        yield _ratio(what, 200 / ours, said, 200 / theirs, target)


def _memory(folder: Path) -> Result:
    done = subprocess.run(
        [sys.executable, "-c", _STREAM, str(folder / "stream"), str(ROWS)],
        capture_output=True,
        text=True,
        check=True,
    )
    used = float(done.stdout)
    most = 200
    return Result(
        f"memory of writing {ROWS:,} × {SIZE} beyond a piece", f"{used:,.0f} MB", f"{PIECES} pieces", None,
        f"< {most} MB", used < most,
    )  # fmt: skip


def _ratio(what: str, rate: float, said: str, reference: float, target: float | None) -> Result:
    ratio = rate / reference
    return Result(
        what,
        f"{rate:,.0f}/s",
        said,
        ratio,
        f"≥ {target:g} ×" if target else "",
        ratio >= target if target else None,
    )
