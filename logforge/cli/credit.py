"""`logforge credit`: options in, one call, the report out."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, show


@click.command()
@click.argument("run", type=click.Path())
@STORE
@click.option("--split", default="test", show_default=True)
@click.option(
    "--method",
    default="counterfactual",
    show_default=True,
    help="counterfactual, td, gae, n_step, td_lambda, retrace, decomposition, shaped, return, uniform, discounted, last, or all.",
)
@click.option("--policy", default="bc", show_default=True, help="Whose values: a policy of the run.")
@click.option("--n", default=3, show_default=True, type=click.IntRange(1), help="Steps of n_step.")
@click.option("--lam", default=0.95, show_default=True, type=click.FloatRange(0, 1), help="λ.")
@click.option(
    "--per-seconds",
    type=click.FloatRange(0, min_open=True),
    help="Discount by the clock, γ^(seconds / this); return and discounted only.",
)
@click.option("--dataset", type=click.Path(), help="The dataset. Default: the one the run was trained on.")
@click.option("--keep/--no-keep", default=True, help="Keep it in the store's table `credit` (the default).")
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(), help="Write a row for each step to this Parquet file.")
@JSON
def credit(run: str, store: str, as_json: bool, **options: Any) -> None:
    """Say which steps the episodes of a split owe their outcome to. RUN is a folder that `train` made.

    With each amount: its spread over the members of the fit of values, and its support, in how many of the nearest train decisions
    the action was taken. With 0 it is unsupported.

    \b
    Example: logforge credit runs/default --method all --out credit.parquet
    """
    from logforge.core.progress import bar
    from logforge.evaluation.credit.pipeline import credit_of
    from logforge.store.store import open_store

    with open_store(store, read_only=not options["keep"], create=False) as opened, bar("credit") as tick:
        report = credit_of(opened, run, progress=tick, **options)
    show(report, as_json)


@click.command("credit-agreement")
@click.argument("run", type=click.Path())
@click.argument("key_steps", type=click.Path())
@STORE
@click.option("--split", default="test", show_default=True, help="The split that holds the judged episodes.")
@click.option("--method", default="all", show_default=True, help="A method of `logforge credit`, or all.")
@click.option("--policy", default="bc", show_default=True, help="Whose values: a policy of the run.")
@click.option("--dataset", type=click.Path(), help="The dataset. Default: the one the run was trained on.")
@click.option("--seed", default=0, show_default=True)
@JSON
def credit_agreement(run: str, key_steps: str, store: str, as_json: bool, **options: Any) -> None:
    """Say how far credit agrees with the steps that people hold to be decisive, and people with one another.

    RUN is a folder that `train` made. KEY_STEPS has one judgement a line: {"episode_id": …, "step": 2, "annotator": "ana",
    "key": true}, or a number from 0 to 1 (docs/returns.md). Steps that are not named are not key.

    \b
    Example: logforge credit-agreement runs/default key_steps.jsonl --method counterfactual
    """
    from logforge.core.progress import bar
    from logforge.evaluation.credit.agreement import credit_agreement as agreement
    from logforge.store.store import open_store

    with open_store(store, read_only=True, create=False) as opened, bar("credit") as tick:
        report = agreement(opened, run, key_steps, progress=tick, **options)
    show(report, as_json)
