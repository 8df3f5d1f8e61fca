"""`logforge ingest`: logs into the store."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show


@click.command()
@click.argument("paths", nargs=-1, required=True)
@STORE
@click.option("--format", "format_name", help="Read every file as this format instead of detecting it.")
@click.option("--mapping", type=click.Path(), help="A YAML mapping that describes a shape of your own.")
@click.option(
    "--name", help="What the source is called that `-` (standard input) reads. Default: by its bytes."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Reading processes. Default: one per core for large inputs."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when anything was quarantined.")
@click.option(
    "--strict-arguments", is_flag=True, help="Mend no arguments and no tool names; damaged ones are invalid."
)
@click.option(
    "--redact/--no-redact",
    default=True,
    show_default=True,
    help="Take secrets out of all text before it is stored.",
)
@click.option(
    "--pii",
    "--redact-pii",
    multiple=True,
    metavar="KIND",
    help="Take personal data out too: email, phone, card, iban, ip, ssn or all; may be given again.",
)
@click.option(
    "--allow-secret",
    multiple=True,
    metavar="PATTERN",
    help="A known sample key that stays, as AKIA*EXAMPLE, or its SHA-256; may be given again.",
)
@click.option(
    "--flag-with",
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="A function of yours that flags messages, by toxicity say. It is run.",
)
@click.option(
    "--danger",
    multiple=True,
    metavar="KIND=PATTERN",
    help="Tools that are dangerous, as pay=buy_*; `none` leaves the built-in list out; may be given again.",
)
@click.option(
    "--dry-run", is_flag=True, help="Say what would read each file and what it would keep; store nothing."
)
@click.option("--max-unpacked", default="16GB", show_default=True, help="Bytes a packed file may unfold to.")
@click.option(
    "--max-ratio", type=click.IntRange(1), default=500, show_default=True, help="And times its own size."
)
@click.option("--max-record", default="256MB", show_default=True, help="Bytes a line or document may have.")
@click.option("--watch", is_flag=True, help="Go on following the paths, until Ctrl-C.")
@click.option("--interval", default=2.0, show_default=True, help="Seconds between two looks of --watch.")
@WAIT
@JSON
def ingest(
    paths: tuple[str, ...],
    store: str,
    format_name: str | None,
    mapping: str | None,
    name: str | None,
    workers: int | None,
    strict: bool,
    strict_arguments: bool,
    redact: bool,
    pii: tuple[str, ...],
    allow_secret: tuple[str, ...],
    flag_with: tuple[str, ...],
    danger: tuple[str, ...],
    dry_run: bool,
    max_unpacked: str,
    max_ratio: int,
    max_record: str,
    watch: bool,
    interval: float,
    wait: float,
    as_json: bool,
) -> None:
    """Read agent logs and demonstrations into the store; `-` is standard input. A second run changes nothing.

    \b
    Example: logforge ingest ./logs
             zcat today.jsonl.gz | logforge ingest -
    """
    from logforge.core.progress import bar
    from logforge.ingestion.dry_runs import dry_run as plan
    from logforge.ingestion.pipeline import ingest as run
    from logforge.ingestion.pipeline import read_options
    from logforge.ingestion.sources.limits import Limits, bytes_of
    from logforge.ingestion.sources.pipes import apart
    from logforge.ingestion.watching import until_told
    from logforge.ingestion.watching import watch as follow
    from logforge.store.store import open_store

    apart(paths, name)
    limits = Limits(bytes_of(max_unpacked), max_ratio, record=bytes_of(max_record))
    hygiene = (redact, danger, pii, allow_secret, flag_with)
    options = read_options(paths, format_name, mapping, strict_arguments, limits, *hygiene)
    if dry_run:
        planned = plan(paths, Path(store), options, name)
        show(planned, as_json)
        sys.exit(planned.exit_code(strict))
    given: dict[str, Any] = {
        "format": format_name,
        "mapping": mapping,
        "strict_arguments": strict_arguments,
        "redact": redact,
        "pii": pii,
        "allow_secret": allow_secret,
        "flag_with": flag_with,
        "danger": danger,
        "limits": limits,
        "workers": workers or os.cpu_count() or 1,
    }
    if watch:
        with until_told() as stop:
            for item in follow(store, paths, interval=interval, stop=stop, say=say, **given):
                show(item, as_json)
        return
    with open_store(store, wait=wait, waiting=say) as opened, bar("ingest") as tick:
        report = run(opened, paths, name=name, **given, progress=tick)
    show(report, as_json)
    sys.exit(report.exit_code(strict))
