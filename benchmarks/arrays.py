"""Giant arrays, documents and lines: speed against orjson.loads over the same bytes, and the memory of a fresh process.

The arrays hold the sample's tau-bench episodes again and again, and SWE-agent runs full of escapes. Memory is what a
process that reads the records has at its peak above what it has once the reader is imported (Linux only: a child
inherits its parent's peak in getrusage).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from benchmarks.measure import Result, cpu_seconds

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
ARRAY_MB = 128
LINE_MB = 200

_READ = """
import re, sys
from pathlib import Path
from logforge.connectors.records.base import Source
from logforge.connectors.episodes.nested import InnerList, read_inner
used = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
source = Source(Path(sys.argv[1]), "log")
before = used()
inner = InnerList("runs", "info")
items = read_inner(source, inner, lambda *a: iter([0])) if sys.argv[2] == "inner" else source.records()
count = sum(1 for _ in items)
print(count, used() - before)
"""


def run() -> list[Result]:
    """Speed and memory of arrays, of a list within a document, and of one long line."""
    with tempfile.TemporaryDirectory() as folder:
        return list(_results(Path(folder)))


def _results(folder: Path) -> Iterator[Result]:
    for name in ("tau_bench", "swe_agent_traj"):
        elements = _elements(name)
        path = folder / f"{name}.json"
        path.write_bytes(b"[" + b",\n".join(_repeated(elements, ARRAY_MB << 20)) + b"]")
        yield _speed(name, path)
        yield _memory(f"memory over one array of {ARRAY_MB} MB, {name}", path, "array", 64)
    path = folder / "inner.json"
    path.write_bytes(
        b'{"info": {"k": 1},\n"runs": ['
        + b",\n".join(_repeated(_elements("tau_bench"), ARRAY_MB << 20))
        + b"]}"
    )
    yield _memory(f"memory over a list of {ARRAY_MB} MB in a document", path, "inner", 64)
    path = folder / "line.jsonl"
    line = json.dumps({"text": 'text with \n \u00e9 and "quotes" ' * 100}).encode()
    pieces = b",".join(_repeated([line], LINE_MB << 20))
    path.write_bytes(b'{"n": 1}\n{"items": [' + pieces + b']}\n{"n": 2}\n')
    yield _memory(f"memory over a line of {LINE_MB} MB", path, "lines", 6 * LINE_MB)
    path.write_bytes(b'{"n": 1}\n{"items": [' + pieces + b"," + pieces + b']}\n{"n": 2}\n')
    yield _memory(f"memory over a line of {2 * LINE_MB} MB, which is refused", path, "lines", 320)


def _elements(name: str) -> list[bytes]:
    found: list[bytes] = []
    for path in sorted((SAMPLES / name).rglob("*")):
        if path.suffix in (".json", ".traj") and path.is_file():
            value = json.loads(path.read_bytes())
            found += [json.dumps(item).encode() for item in (value if isinstance(value, list) else [value])]
    return found


def _repeated(elements: list[bytes], size: int) -> Iterator[bytes]:
    for element in cycle(elements):
        yield element
        size -= len(element)
        if size <= 0:
            return


def _speed(name: str, path: Path) -> Result:
    import orjson

    from logforge.connectors.records.base import Source

    data = path.read_bytes()
    plain = cpu_seconds(lambda: orjson.loads(data) is None)
    ours = cpu_seconds(lambda: sum(1 for _ in Source(path, "log").records()))
    rate = len(data) / 1e6
    return Result(
        f"one array of {ARRAY_MB} MB, element by element, {name}",
        f"{rate / ours:,.0f} MB/s",
        f"orjson.loads of the whole {rate / plain:,.0f} MB/s",
        plain / ours,
        "≥ 0.5",
        plain / ours >= 0.5,
    )


def _memory(name: str, path: Path, kind: str, most: int) -> Result:
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path), kind], capture_output=True, text=True, check=True
    )
    count, used = done.stdout.split()
    return Result(
        name, f"{float(used):,.0f} MB", f"{int(count):,} records", None, f"≤ {most} MB", float(used) <= most
    )
