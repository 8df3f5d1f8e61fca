"""A dataset far larger than memory, written in pieces: how much memory the process that writes it holds, and how fast it is.

LOGFORGE_BENCH_LARGE_ROWS sets how many rows of 448 numbers are written: 1,000,000 by default; 10,000,000 are 18 GB, on the disk of
LOGFORGE_BENCH_FOLDER (default: where temporary files lie), and gone afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Result

ROWS = int(os.environ.get("LOGFORGE_BENCH_LARGE_ROWS", "1000000"))
FOLDER = os.environ.get("LOGFORGE_BENCH_FOLDER")
PIECE = 20_000
MOST_MB = 1_000

_WRITE = """
import re, sys, time
from pathlib import Path
from benchmarks.large_write import PIECE
from benchmarks.shards import made, manifest
from logforge.shards import ShardWriter, load_shards
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
folder, pieces = sys.argv[1], int(sys.argv[2])
piece = made(PIECE)
start = time.process_time()
with ShardWriter.replacing(folder, manifest()) as writer:
    split = writer.split("train", transitions=piece.size * pieces, episodes=piece.episode_count * pieces)
    for number in range(pieces):
        split.append(piece)
spent, most = time.process_time() - start, peak()
shard = load_shards(folder, "train", verify=False)
assert shard.size == piece.size * pieces
assert (shard.observations[-piece.size - piece.episode_count:][:100] == piece.observations[:100]).all()
print(most, spent)
"""


def run() -> list[Result]:
    """One dataset, in a process of its own."""
    pieces = max(1, ROWS // PIECE)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        done = subprocess.run(
            [sys.executable, "-c", _WRITE, str(Path(folder, "large")), str(pieces)],
            capture_output=True,
            text=True,
            check=True,
        )
    most, seconds = map(float, done.stdout.split())
    rows = pieces * PIECE
    what = f"peak memory of writing {rows:,} × 448 in pieces of {PIECE:,}"
    said = f"{rows * 448 * 4 / 1e9:.1f} GB, {rows / seconds:,.0f} rows per CPU s"
    return [Result(what, f"{most:,.0f} MB", said, None, f"< {MOST_MB:,} MB", most < MOST_MB)]
