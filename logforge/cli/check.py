"""`logforge check`: is a store, or a dataset, still what it must be?"""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, WAIT, options, say, show, stated
from logforge.dataset.build import Gates


@click.command()
@click.argument("dataset", required=False)
@STORE
@click.option(
    "--sources", is_flag=True, help="Also read every source again: are its bytes what was ingested?"
)
@options(Gates)
@WAIT
@JSON
def check(dataset: str | None, store: str, sources: bool, wait: float, as_json: bool, **gates: Any) -> None:
    """Validate a store and its datasets again, or one dataset by name or folder. Exits with 1 when a rule is broken.

    \b
    Example: logforge check
             logforge check default --max-conflict-rate 0.2
             logforge check --sources
    """
    from logforge.checks import check as run
    from logforge.core import bar

    with bar("check") as tick:
        report = run(store, dataset, stated(gates), tick, sources=sources, wait=wait, waiting=say)
    show(report, as_json)
