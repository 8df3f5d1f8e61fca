"""`logforge credit` and `logforge credit-agreement`."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, options, show
from logforge.evaluation.credit import CreditConfig


@click.command()
@click.argument("run", type=click.Path())
@STORE
@options(CreditConfig)
@JSON
def credit(run: str, store: str, as_json: bool, **given: Any) -> None:
    """Say which steps the episodes of a split owe their outcome to. RUN is a folder that `train` made.

    With each amount: its spread over the members of the fit of values, and its support, in how many of the nearest train decisions
    the action was taken. With 0 it is unsupported.

    \b
    Example: logforge credit runs/default --method all --out credit.parquet
    """
    from logforge.core import bar
    from logforge.evaluation.credit import credit_of
    from logforge.store import open_store

    with open_store(store, read_only=not given["keep"], create=False) as opened, bar("credit") as tick:
        report = credit_of(opened, run, progress=tick, **given)
    show(report, as_json)


@click.command("credit-agreement")
@click.argument("run", type=click.Path())
@click.argument("key_steps", type=click.Path())
@STORE
@click.option("--split", default="test", show_default=True, help="The split that holds the judged episodes.")
@click.option("--method", default="all", show_default=True, help="A method of `logforge credit`, or all.")
@options(CreditConfig, "policy", "dataset", "seed", "members", "updates")
@JSON
def credit_agreement(run: str, key_steps: str, store: str, as_json: bool, **given: Any) -> None:
    """Say how far credit agrees with the steps that people hold to be decisive, and people with one another.

    RUN is a folder that `train` made. KEY_STEPS has one judgement a line: {"episode_id": …, "step": 2, "annotator": "ana",
    "key": true}, or a number from 0 to 1 (docs/returns.md). Steps that are not named are not key.

    \b
    Example: logforge credit-agreement runs/default key_steps.jsonl --method counterfactual
    """
    from logforge.core import bar
    from logforge.evaluation.credit import credit_agreement as agreement
    from logforge.store import open_store

    with open_store(store, read_only=True, create=False) as opened, bar("credit") as tick:
        report = agreement(opened, run, key_steps, progress=tick, **given)
    show(report, as_json)
