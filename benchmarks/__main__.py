"""`python -m benchmarks [NAME ...]`: run the benchmarks and print one table."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from logforge.tabulate import table


def main() -> None:
    """Run those named, or all."""
    here = Path(__file__).parent
    names = sys.argv[1:] or sorted(
        p.stem
        for p in here.glob("*.py")
        if p.stem
        not in (
            "__init__",
            "__main__",
            "measure",
            "made",
            "reward_loops",
            "closed_loop",
            "divergence",
            "forgetting",
            "held_out",
        )
    )
    rows = []
    for name in names:
        print(f"… {name}", file=sys.stderr)
        for item in importlib.import_module(f"benchmarks.{name}").run():
            ratio = None if item.ratio is None else round(item.ratio, 3)
            rows.append(
                (
                    item.name,
                    item.figure,
                    item.reference,
                    ratio,
                    item.target,
                    {True: "yes", False: "NO", None: "—"}[item.met],
                )
            )
    print(table(("what", "figure", "reference", "ratio", "target", "met"), rows, limit=80))


main()
