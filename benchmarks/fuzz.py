"""Damaged logs of every shape through the reading path: what breaks a law, how many are read a second, in how much memory.

python -m benchmarks.fuzz                            # FUZZ_INPUTS (20,000) of each shape, in two processes
python -m benchmarks.fuzz --shape trl --number 17    # one again, with what was done to it and what is wrong
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Result
from logforge.core.tabulate import table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

INPUTS = int(os.environ.get("FUZZ_INPUTS", "20000"))
PROCESSES = 2
MEMORY_MB = 1500
"""More than a process may hold after all inputs of its shapes, 1 MB of text in some of them."""
ADDRESS_SPACE = 16 << 30
"""A reader that wants more fails instead of taking the machine down."""
KEPT = Path(tempfile.gettempdir()) / "logforge-fuzz"
"""Where inputs that break a law are kept."""


class Shape(NamedTuple):
    """What came of the inputs of one shape; `failures` are texts for people."""

    name: str
    inputs: int
    seconds: float
    failures: list[str]
    slowest_ms: float
    slowest: int
    peak_mb: float


def run() -> list[Result]:
    """All shapes, as one figure."""
    shapes = measure(None, INPUTS)
    print(report(shapes), file=sys.stderr)
    inputs, failures = sum(s.inputs for s in shapes), sum(len(s.failures) for s in shapes)
    seconds, peak = sum(s.seconds for s in shapes), max(s.peak_mb for s in shapes)
    return [
        Result(
            f"{len(shapes)} shapes fuzzed",
            f"{failures} failures in {inputs:,} inputs, {inputs / seconds:,.0f} inputs/s and core",
            f"peak {peak:.0f} MB",
            None,
            f"0 failures, ≤ {MEMORY_MB} MB",
            failures == 0 and peak <= MEMORY_MB,
        )
    ]


def measure(names: list[str] | None, inputs: int) -> list[Shape]:
    """Fuzz the shapes named, or all."""
    from support import fuzzed_shapes

    names = names or sorted(fuzzed_shapes.shapes())
    with ProcessPoolExecutor(PROCESSES, get_context("fork")) as pool:
        waiting = [pool.submit(fuzz, name, inputs) for name in names]
        done = []
        for future in waiting:
            done.append(future.result())
            print(_line(done[-1]), file=sys.stderr, flush=True)
        return done


def fuzz(name: str, inputs: int) -> Shape:
    """Read the inputs of one shape."""
    from support import fuzzed_shapes, fuzzing

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    failures: list[str] = []
    slowest = (0.0, 0)
    KEPT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=KEPT))
    begin = time.perf_counter()
    with fuzzing.Fuzz(fuzzed_shapes.shapes()[name], folder) as reader:
        for number in range(inputs):
            start = time.process_time()
            if (failure := reader.failure(number)) is not None:
                failures.append(str(failure))
            slowest = max(slowest, (time.process_time() - start, number))
    if not failures:
        shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Shape(name, inputs, time.perf_counter() - begin, failures, slowest[0] * 1000, slowest[1], peak)


def report(shapes: list[Shape]) -> str:
    """For people: a line for each shape, then the first failures."""
    names = ("shape", "inputs", "inputs/s", "failures", "slowest, CPU ms", "its number", "peak MB")
    rows = [
        (
            s.name,
            s.inputs,
            round(s.inputs / s.seconds),
            len(s.failures),
            round(s.slowest_ms),
            s.slowest,
            round(s.peak_mb),
        )
        for s in shapes
    ]
    return "\n".join([table(names, rows, limit=200), *(text for s in shapes for text in s.failures[:5])])


def _line(shape: Shape) -> str:
    return f"… {shape.name}: {shape.inputs / shape.seconds:,.0f} inputs/s, {len(shape.failures)} failures"


def main() -> None:
    """All shapes, one shape, or one input again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--shape", help="only this shape")
    parser.add_argument("--number", type=int, help="only this input of the shape")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="inputs of each shape")
    given = parser.parse_args()
    if given.number is not None:
        if given.shape is None:
            parser.error("--number needs --shape")
        sys.exit(again(given.shape, given.number))
    shapes = measure([given.shape] if given.shape else None, given.inputs)
    print(report(shapes))
    sys.exit(any(shape.failures for shape in shapes))


def again(name: str, number: int) -> int:
    """Read one input again and say what is wrong; 0 when nothing is."""
    from support import fuzzed_shapes, fuzzing

    given = fuzzed_shapes.shapes()[name].make(number)
    print(f"{given.name}, {len(given.data)} bytes", *given.notes, sep="\n  ")
    with fuzzing.Fuzz(fuzzed_shapes.shapes()[name], Path(tempfile.mkdtemp(prefix="fuzz-"))) as reader:
        failure = reader.failure(number)
    print("every law holds" if failure is None else failure)
    return int(failure is not None)


if __name__ == "__main__":
    main()
