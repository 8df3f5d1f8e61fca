"""Unpacking: what it costs beside the same bytes decompressed alone, and that memory stays small whatever the size."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Result

SIZE = 300 << 20
BASE = 8 << 20
_CODE = """
import sys, time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from logforge.ingestion.sources.unpacking import unpack
from logforge.ingestion.sources.limits import Limits
before, start = getrusage(RUSAGE_SELF).ru_maxrss, time.process_time()
(found,) = unpack(Path(sys.argv[1]), "L", Path(sys.argv[2]), Limits()).files
assert found.path.stat().st_size == int(sys.argv[3])
print((getrusage(RUSAGE_SELF).ru_maxrss - before) // 1024, time.process_time() - start)
"""


def run() -> list[Result]:
    """Memory and speed for each kind of packed file."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        plain = home / "plain.jsonl"
        block = b"".join(
            json.dumps({"n": n, "text": os.urandom(200).hex()}).encode() + b"\n" for n in range(BASE // 420)
        )
        with plain.open("wb") as file:
            for _ in range(SIZE // len(block)):
                file.write(block)
        return [_measured(kind, path, plain.stat().st_size, home) for kind, path in _packed(plain)]


def _packed(plain: Path) -> list[tuple[str, Path]]:
    zipped, tarred, gzipped, zstd = (plain.with_name(f"a.{s}") for s in ("zip", "tar.gz", "gz", "zst"))
    subprocess.run([sys.executable, "-m", "zipfile", "-c", zipped, plain], check=True)
    with tarfile.open(tarred, "w:gz", compresslevel=1) as archive:
        archive.add(plain, "plain.jsonl")
    with plain.open("rb") as source, gzip.open(gzipped, "wb", 1) as sink:
        while piece := source.read(1 << 20):
            sink.write(piece)
    with plain.open("rb") as source, pa.output_stream(str(zstd), compression="zstd") as stream:
        while piece := source.read(1 << 20):
            stream.write(piece)
    return [("zip", zipped), ("tar.gz", tarred), ("gzip", gzipped), ("zstd", zstd)]


def _measured(kind: str, path: Path, size: int, home: Path) -> Result:
    command = [sys.executable, "-c", _CODE, str(path), str(home / kind / "out"), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, seconds = (float(word) for word in done.stdout.split())
    figure = f"{grown:.0f} MB more memory, {size / seconds / 1e6:.0f} MB/s"
    return Result(
        f"unpack {size >> 20} MB of {kind}", figure, "the content's size", None, "< 64 MB", grown < 64
    )
