"""What the commands share: common options, and how a report is shown. Loads click and nothing heavy."""

from __future__ import annotations

import json

import click

from logforge.core.progress import printable
from logforge.core.report import BaseReport

STORE = click.option(
    "--store",
    default="logforge.duckdb",
    show_default=True,
    envvar="LOGFORGE_STORE",
    help="The store: one DuckDB file.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
WAIT = click.option(
    "--wait",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="While another process has the store open, try again for so long.",
)


def show(report: BaseReport, as_json: bool) -> None:
    """Print a report to stdout: one JSON document, or text that is safe for a terminal."""
    text = json.dumps(report.as_dict(), default=str, ensure_ascii=False) if as_json else report.render()
    click.echo(printable(text))


def say(text: str) -> None:
    """A word to the user, on stderr."""
    click.echo(printable(text), err=True)
