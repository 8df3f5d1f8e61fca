"""`logforge train`: policies from a dataset's train split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from logforge.cli_options import JSON, show


@click.command()
@click.argument("dataset", type=click.Path())
@click.option(
    "--algo",
    default="cql",
    show_default=True,
    help="cql, dqn, bcq, iql or bc; cloning is always trained beside it.",
)
@click.option(
    "--backend",
    default="torch",
    show_default=True,
    help="torch: masked learners, all members at once. d3rlpy: its own, without masks in training.",
)
@click.option("--out", help="The run's folder. Default: runs/NAME.")
@click.option("--seed", default=0, show_default=True, help="Of the first member.")
@click.option(
    "--members", default=1, show_default=True, help="Policies trained of each learner, one seed each."
)
@click.option("--updates", default=2000, show_default=True, help="Gradient steps.")
@click.option("--batch-size", default=128, show_default=True)
@click.option("--learning-rate", default=1e-3, show_default=True)
@click.option(
    "--target-rate",
    default=0.005,
    show_default=True,
    help="How fast target networks follow (torch).",
)
@click.option("--alpha", default=1.0, show_default=True, help="CQL's weight of conservatism.")
@click.option(
    "--threshold",
    default=0.3,
    show_default=True,
    help="BCQ: an action competes above this share of the likeliest one's chance.",
)
@click.option("--expectile", default=0.9, show_default=True, help="IQL's.")
@click.option("--beta", default=3.0, show_default=True, help="IQL's weight of the advantage.")
@JSON
def train(dataset: str, out: str | None, as_json: bool, **settings: Any) -> None:
    """Train a policy on a dataset's train split, with behaviour cloning beside it.

    \b
    Example: logforge train datasets/default --out runs/default
             logforge train datasets/default --algo iql --members 10
    """
    from logforge.progress import bar
    from logforge.training import train as run

    with bar("train") as tick:
        report = run(dataset, out=out or f"runs/{Path(dataset).name}", progress=tick, **settings)
    show(report, as_json)
