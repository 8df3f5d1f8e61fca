"""`python -m benchmarks [NAME ...]`: run the benchmarks and print one table."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks.measure import Result
from logforge.core.tabulate import table


def main() -> None:
    """Run those named, or all; each row is said as soon as it is measured."""
    names = sys.argv[1:] or sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    rows = []
    for name in names:
        run = getattr(importlib.import_module(f"benchmarks.{name}"), "run", None)
        if run is None and sys.argv[1:]:
            sys.exit(f"benchmarks.{name} writes a page of its own: python -m benchmarks.{name}")
        for item in run() if run else ():
            rows.append(_row(item))
            print("…", *(cell for cell in rows[-1] if cell is not None), file=sys.stderr)
    print(table(("what", "figure", "reference", "ratio", "target", "met"), rows, limit=80))


def _row(item: Result) -> tuple[object, ...]:
    ratio = None if item.ratio is None else round(item.ratio, 3)
    met = {True: "yes", False: "NO", None: "—"}[item.met]
    return item.name, item.figure, item.reference, ratio, item.target, met


main()
