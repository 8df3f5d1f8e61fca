"""`logforge ingest`: logs into the store."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from logforge.cli.options import JSON, STORE, WAIT, options, say, show, taken
from logforge.ingestion import IngestConfig


@click.command()
@click.argument("paths", nargs=-1, required=True)
@STORE
@options(IngestConfig, "format", "mapping")
@click.option(
    "--name", help="What the source is called that `-` (standard input) reads. Default: by its bytes."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Reading processes. Default: one per core for large inputs."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when anything was quarantined.")
@options(IngestConfig, "strict_arguments", ..., "danger")
@click.option(
    "--dry-run", is_flag=True, help="Say what would read each file and what it would keep; store nothing."
)
@options(IngestConfig, "limits")
@click.option("--watch", is_flag=True, help="Go on following the paths, until Ctrl-C.")
@click.option("--interval", default=2.0, show_default=True, help="Seconds between two looks of --watch.")
@WAIT
@JSON
def ingest(
    paths: tuple[str, ...],
    store: str,
    name: str | None,
    workers: int | None,
    strict: bool,
    dry_run: bool,
    watch: bool,
    interval: float,
    wait: float,
    as_json: bool,
    **given: Any,
) -> None:
    """Read agent logs and demonstrations into the store; `-` is standard input. A second run changes nothing.

    \b
    Example: logforge ingest ./logs
             zcat today.jsonl.gz | logforge ingest -
    """
    from logforge.api import ingest as run
    from logforge.api import watch as follow
    from logforge.core import bar
    from logforge.ingestion import dry_run as plan
    from logforge.ingestion import read_options, until_told
    from logforge.ingestion.sources import apart
    from logforge.store import open_store

    apart(paths, name)
    config = taken(IngestConfig, given)
    read = read_options(paths, **config)
    if dry_run:
        planned = plan(paths, Path(store), read, name)
        show(planned, as_json)
        sys.exit(planned.exit_code(strict))
    config["workers"] = workers or os.cpu_count() or 1
    if watch:
        with until_told() as stop:
            for item in follow(store, paths, interval=interval, stop=stop, say=say, **config):
                show(item, as_json)
        return
    with open_store(store, wait=wait, waiting=say) as opened, bar("ingest") as tick:
        report = run(opened, paths, name=name, progress=tick, **config)
    show(report, as_json)
    sys.exit(report.exit_code(strict))
