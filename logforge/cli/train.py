"""`logforge train`, `sweep` and `doctor`: policies from a dataset's train split, which settings, and what went wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from logforge.cli.options import JSON, is_set, options, say, show, taken
from logforge.evaluation.tuning import SweepConfig
from logforge.learning.training import TrainConfig


@click.command()
@click.argument("dataset", type=click.Path())
@options(TrainConfig, "algo", "backend", "preset")
@click.option("--out", help="The run's folder. Default: runs/NAME.")
@options(TrainConfig, "seed", ..., "learning_rate", "anneal", "target_rate", "alpha", ..., "beta")
@options(TrainConfig, "clip_targets", ..., "step_cost", "heads")
@options(TrainConfig, "policy_conditioned", "warm_start", ..., "replay_share")
@JSON
def train(dataset: str, out: str | None, as_json: bool, **settings: Any) -> None:
    """Train a policy on a dataset's train split, with behaviour cloning beside it.

    A member that runs away is stopped, its best checkpoint is kept, and the exit code is 1.

    \b
    Example: logforge train datasets/default --out runs/default
             logforge train datasets/default --algo iql --members 10
             logforge train datasets/march --warm-start runs/february --replay datasets/february
    """
    from logforge.core import bar
    from logforge.learning.training import train as run

    target = out or f"runs/{Path(dataset).name}"
    with bar("train") as tick:
        report = run(dataset, out=target, progress=tick, **_given(settings))
    show(report, as_json)
    for note in report.fresh:
        say(note)
    if report.alarm:
        say(report.alarm)
        sys.exit(1)


@click.command()
@click.argument("dataset", type=click.Path())
@options(SweepConfig)
@click.option("--algo", default="cql", show_default=True, help="cql, dqn, bcq, iql or text_q.")
@click.option("--preset", default="default", show_default=True, help="Of the settings that are not varied.")
@click.option("--updates", default=2000, show_default=True, help="Gradient steps of each.")
@click.option("--out", help="The folder of the chosen run. Default: runs/NAME.")
@JSON
def sweep(dataset: str, out: str | None, as_json: bool, **given: Any) -> None:
    """Train all combinations at once, choose one, and write its run.

    Chosen by the lower bound of fitted Q evaluation on validation, or of success in a simulator, among those that keep to what
    the log supports; where none is measurably better, the default stays. Exit code 1 where none solved any case, so that nothing can be
    chosen, or where the chosen run was stopped.

    \b
    Example: logforge sweep datasets/default --alpha 0.3,1,3 --gamma 0.95,0.99
    """
    from logforge.core import bar
    from logforge.evaluation.tuning import sweep as run

    target, varied = out or f"runs/{Path(dataset).name}", taken(SweepConfig, given)
    with bar("sweep") as tick:
        report = run(dataset, out=target, progress=tick, **varied, **_given(given))
    show(report, as_json)
    sys.exit(int(report.failed))


@click.command()
@click.argument("run", type=click.Path())
@click.option("--dataset", type=click.Path(), help="The dataset. Default: the one the run was trained on.")
@JSON
def doctor(run: str, dataset: str | None, as_json: bool) -> None:
    """Name what went wrong in a training run, why, and what to do. Exit code 1 when something is wrong.

    \b
    Example: logforge doctor runs/default
    """
    from logforge.evaluation.tuning import diagnose

    report = diagnose(run, dataset_path=dataset)
    show(report, as_json)
    sys.exit(report.exit_code)


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Those set by the user or a config file: they go before a preset's."""
    return {name: value for name, value in settings.items() if is_set(name)}
