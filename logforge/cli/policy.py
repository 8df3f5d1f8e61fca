"""`logforge policy`: look at a trained policy, compare it with others, and write it for other runtimes."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, show


@click.group()
def policy() -> None:
    """Look at trained policies, compare them, and write them for other runtimes."""


@policy.command("show")
@click.argument("folder", type=click.Path())
@JSON
def policy_show(folder: str, as_json: bool) -> None:
    """Check a policy's folder and say what it was made for, and what it needs to serve.

    \b
    Example: logforge policy show runs/default/cql
    """
    from logforge.learning.policies import about

    show(about(folder), as_json)


@policy.command("export")
@click.argument("folder", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="The ONNX file to write.")
@JSON
def policy_export(folder: str, out: str, as_json: bool) -> None:
    """Write a policy as ONNX: the scores of all actions, the choice under a mask, and its support.

    \b
    Example: logforge policy export runs/default/cql --out cql.onnx
    """
    from logforge.learning.policies import export_onnx

    show(export_onnx(folder, out), as_json)


@policy.command("fingerprint")
@click.argument("folder", type=click.Path())
@click.option("--dataset", required=True, type=click.Path(), help="Whose states are the probes.")
@click.option("--against", multiple=True, type=click.Path(), help="Another policy's folder. Repeatable.")
@click.option(
    "--behaviour",
    "behaviours",
    multiple=True,
    metavar="POLICY_ID",
    help="A policy of the log, as its steps of the train split are cloned. Repeatable.",
)
@click.option("--split", default="train", show_default=True, help="Where the probes are from.")
@click.option("--probes", default=256, show_default=True, type=click.IntRange(1), help="How many states.")
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="Of the chances. Default: 0 (the best action) for Q, 1 for a clone.",
)
@JSON
def policy_fingerprint(folder: str, dataset: str, as_json: bool, **options: Any) -> None:
    """Say what a policy does in fixed states of a dataset, as one vector's hash, and how alike other policies are by it.

    \b
    Example: logforge policy fingerprint runs/default/cql --dataset datasets/default --against runs/other/cql
    """
    from logforge.learning.training import compare

    show(compare(folder, dataset, **options), as_json)
