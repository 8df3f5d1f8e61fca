"""`logforge report`: the quality of a dataset, as a page, as JSON and on the terminal."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show


@click.command()
@click.argument("dataset", default="default")
@STORE
@click.option(
    "--section", "sections", multiple=True, help="Only this section, on the terminal; may be given again."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    help="Folder of report.html and report.json. Default: NAME-report, beside the dataset.",
)
@click.option("--reference", help="The dataset that SACo is relative to. Default: this one.")
@click.option("--seed", default=0, show_default=True, help="Seed of the samples and probes.")
@click.option(
    "--sample",
    default=10_000,
    show_default=True,
    type=click.IntRange(1),
    help="Decisions of a split that a probe looks at.",
)
@WAIT
@JSON
def report(dataset: str, store: str, wait: float, as_json: bool, **given: Any) -> None:
    """Measure a dataset's quality: coverage, leaks, conflicts, drift, … with the query behind every number.

    \b
    Example: logforge report default
             logforge report default --section sufficiency --section drift
    """
    from logforge.core import bar
    from logforge.report import report as measure
    from logforge.store import open_store

    with open_store(store, read_only=True, wait=wait, waiting=say) as opened, bar("report") as tick:
        found = measure(opened, dataset, progress=tick, **given)
    show(found, as_json)
