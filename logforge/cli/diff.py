"""`logforge diff`: what changed between two datasets."""

from __future__ import annotations

import sys
from typing import Any

import click

from logforge.cli.options import JSON, STORE, show


@click.command()
@click.argument("a")
@click.argument("b")
@STORE
@click.option(
    "--sample",
    default=10_000,
    show_default=True,
    type=click.IntRange(1),
    help="Decisions of a split whose features are compared.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of that sample.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when they differ.")
@JSON
def diff(a: str, b: str, store: str, exit_code: bool, as_json: bool, **given: Any) -> None:
    """Say what changed from dataset A to dataset B: names in the store, or dataset folders.

    \b
    Example: logforge diff before after
             logforge diff datasets/default /backup/default --exit-code
    """
    from logforge.core import bar
    from logforge.dataset.diff import diff_datasets

    with bar("diff") as tick:
        report = diff_datasets(a, b, store, progress=tick, **given)
    show(report, as_json)
    sys.exit(report.exit_code(exit_code))
