"""`logforge policy`: look at a trained policy, and write it for other runtimes."""

from __future__ import annotations

import click

from logforge.cli_options import JSON, show


@click.group()
def policy() -> None:
    """Look at trained policies and write them for other runtimes."""


@policy.command("show")
@click.argument("folder", type=click.Path())
@JSON
def policy_show(folder: str, as_json: bool) -> None:
    """Check a policy's folder and say what it was made for, and what it needs to serve.

    \b
    Example: logforge policy show runs/default/cql
    """
    from logforge.policy_about import about

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
    from logforge.policy_onnx import export_onnx

    show(export_onnx(folder, out), as_json)
