"""`logforge credit-agreement`: options in, one call, the report out."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, show


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
