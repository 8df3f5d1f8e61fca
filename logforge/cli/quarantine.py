"""`logforge quarantine`."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show
from logforge.schemas import UsageError


@click.command()
@STORE
@click.option("--list", "as_list", is_flag=True, help="Show the rows with excerpts, not the rules alone.")
@click.option("--rule", help="Only this rule; shows its rows.")
@click.option("--source", metavar="PATH", help="Only what is at or below this path; shows its rows.")
@click.option("--limit", type=click.IntRange(0), help="Rows to show. Default: 20, with --json all.")
@click.option(
    "--replay", is_flag=True, help="Read the sources again, after what was wrong has been put right."
)
@click.option("--format", "format_name", help="With --replay: read them as this format.")
@click.option(
    "--mapping", type=click.Path(), help="With --replay: a YAML mapping that describes their shape."
)
@WAIT
@JSON
def quarantine(
    store: str,
    as_list: bool,
    rule: str | None,
    source: str | None,
    limit: int | None,
    replay: bool,
    format_name: str | None,
    mapping: str | None,
    wait: float,
    as_json: bool,
) -> None:
    """Say what was set aside, where and what to do about it; and read it again after a fix.

    \b
    Example: logforge quarantine
             logforge quarantine --rule malformed_record
             logforge quarantine --replay --mapping map.yaml
    """
    from logforge.ingestion import ROWS, overview, rows
    from logforge.store import open_store

    if replay:
        _replay(store, wait, as_json, rule=rule, source=source, format=format_name, mapping=mapping)
    if format_name or mapping:
        raise UsageError("--format and --mapping go with --replay", "add --replay")
    with open_store(store, read_only=True, wait=wait, waiting=say) as opened:
        if as_list or rule or source:
            show(rows(opened, rule, source, limit if limit is not None or as_json else ROWS), as_json)
        else:
            show(overview(opened), as_json)


def _replay(store: str, wait: float, as_json: bool, **choice: Any) -> NoReturn:
    from logforge.api import replay
    from logforge.core import bar
    from logforge.store import open_store

    with open_store(store, create=False, wait=wait, waiting=say) as opened, bar("replay") as tick:
        report = replay(opened, **choice, workers=os.cpu_count() or 1, progress=tick)
    show(report, as_json)
    sys.exit(report.exit_code())
