"""`logforge export`: options in, one call, the report out."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, show
from logforge.exports.catalogue import FORMATS

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
@click.option(
    "--uncertain",
    is_flag=True,
    help="Also contrasts whose interval holds 0 or cannot be given (trl-dpo, preference-pairs).",
)
@click.option("--successes", is_flag=True, help="Only episodes that succeeded (trl-sft).")
@click.option(
    "--weigh",
    default="return",
    show_default=True,
    metavar="return|METHOD",
    help="By the return to go, or by a method of credit that the store keeps (weighted-sft).",
)
@click.option(
    "--keep",
    default="positive",
    show_default=True,
    metavar="positive|all|top=SHARE",
    help="Which turns, by their weight (weighted-sft).",
)
@click.option(
    "--credit",
    default="counterfactual",
    show_default=True,
    metavar="METHOD",
    help="The method of credit that the store keeps: logforge credit RUN --split SPLIT (credit-text).",
)
@click.option(
    "--key-share",
    default=0.1,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Which share of the steps are key steps, those of the largest |credit| (credit-text).",
)
@click.option(
    "--least-support",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Credit of a step with less support in the train split counts as unknown; 1 takes out what is unsupported (credit-text).",
)
@click.option(
    "--key-steps",
    type=click.Path(),
    help="Key steps as people judged them, a judgement a line: docs/returns.md (credit-text).",
)
@STORE
@JSON
def export(
    dataset: str, format_name: str, out: str, split: str | None, store: str, as_json: bool, **options: Any
) -> None:
    """See _HELP."""
    from logforge.core.progress import bar
    from logforge.exports.job import Options
    from logforge.exports.pipeline import export as run

    with bar("export") as tick:
        report = run(dataset, format_name, out, split, store=store, options=Options(**options), progress=tick)
    show(report, as_json)
