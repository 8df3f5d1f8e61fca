"""Ingest of tau-bench messages into DuckDB, final checkpoint included, against orjson.loads over the same bytes.

One core (DuckDB too). The reference loads each file and lets go of it again: keeping them all makes it three times as slow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks.made import write_arrays
from benchmarks.measure import Result, alternating

MESSAGES = 200_000
PER_FILE = 4_000
"""About 3 MB."""


def run() -> list[Result]:
    """With and without redaction."""
    import orjson

    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder, "logs")
        messages = write_arrays(logs, MESSAGES, PER_FILE)
        data = [path.read_bytes() for path in sorted(logs.iterdir())]

        def load_all() -> None:
            for item in data:
                orjson.loads(item)

        full, bare, plain = alternating(_ingest(logs, True), _ingest(logs, False), load_all)
    reference = f"orjson.loads {messages / plain:,.0f} messages/s"
    return [
        Result(
            f"ingest tau-bench, one core, {name}",
            f"{messages / taken:,.0f} messages/s ({messages:,} in {taken:.2f} CPU s)",
            reference,
            plain / taken,
            f"≥ {target}",
            plain / taken >= target,
        )
        for name, taken, target in (
            ("validated and redacted", full, 0.10),
            ("--no-redact", bare, 0.125),
        )
    ]


def _ingest(logs: Path, redact: bool) -> Callable[[], None]:
    from logforge.ingestion.pipeline import ingest
    from logforge.store.store import Store

    number = count()

    def call() -> None:
        with Store(logs.parent / f"{redact}{next(number)}.duckdb") as store:
            store.con.execute("SET threads = 1")
            ingest(store, [logs], redact=redact)

    return call
