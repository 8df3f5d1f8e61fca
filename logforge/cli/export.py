"""`logforge export`: options in, one call, the report out."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, options, show
from logforge.exports import FORMATS, Options

_WIDTH = max(map(len, FORMATS))
_LISTED = "\n".join(f"      {name:{_WIDTH}}  {form.writes}" for name, form in FORMATS.items())
_HELP = f"""Write a dataset's split in another tool's form. docs/exports.md says what each keeps and loses, and how to load it.

    \b
    Example: logforge export datasets/default --out train.h5
             logforge export datasets/default --format trl-dpo --out pairs.jsonl

    \b
    Formats:
{_LISTED}
    """


@click.command(help=_HELP)
@click.argument("dataset", type=click.Path())
@click.option(
    "--format",
    "format_name",
    default="d3rlpy",
    show_default=True,
    metavar="NAME",
    help="One of the formats above.",
)
@click.option("--out", required=True, type=click.Path(), help="The file or folder to write.")
@click.option("--split", help="Default: train; for huggingface, every split.")
@options(Options)
@STORE
@JSON
def export(
    dataset: str, format_name: str, out: str, split: str | None, store: str, as_json: bool, **chosen: Any
) -> None:
    """See _HELP."""
    from logforge.core import bar
    from logforge.exports import export as run

    with bar("export") as tick:
        report = run(dataset, format_name, out, split, store=store, options=Options(**chosen), progress=tick)
    show(report, as_json)
