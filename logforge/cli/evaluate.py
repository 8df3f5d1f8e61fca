"""`logforge evaluate`: what a run's policies are worth, estimated on held-out episodes or counted in a simulator."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, flag, is_given, options, show, taken
from logforge.evaluation import EstimateConfig, PlayConfig


@click.command()
@click.argument("run", type=click.Path())
@options(EstimateConfig)
@options(PlayConfig)
@JSON
def evaluate(run: str, as_json: bool, **given: Any) -> None:
    """Estimate a run's policies on held-out episodes, beside the logged behaviour and cloning: by fitted Q evaluation (FQE), and by
    importance sampling where the log has propensities. With --simulator they are played, and nothing is estimated.

    \b
    Example: logforge evaluate runs/default
             logforge evaluate runs/default --simulator it-ops --baselines all
    """
    from logforge.core import bar
    from logforge.evaluation import evaluate as estimate
    from logforge.evaluation import play

    playing, estimating = taken(PlayConfig, given), taken(EstimateConfig, given)
    _refuse_ignored(playing["simulator"])
    if playing["simulator"] is not None:
        with bar("play") as tick:
            return show(play(run, **playing, seed=estimating["seed"], progress=tick), as_json)
    with bar("evaluate") as tick:
        report = estimate(run, **estimating, progress=tick)
    show(report, as_json)


def _refuse_ignored(simulator: str | None) -> None:
    """Raises UsageError for an option that would be ignored."""
    from logforge.schemas import UsageError

    if simulator is None:
        if ignored := _first_given(PlayConfig, "episodes", "baselines", "held_out"):
            raise UsageError(f"{ignored} needs a simulator to play in", "name one: --simulator it-ops")
    elif ignored := _first_given(EstimateConfig, "dataset_path", "split", "members", "updates"):
        raise UsageError(
            f"{ignored} says how to estimate, and with --simulator nothing is", "leave out one of them"
        )


def _first_given(struct: type, *names: str) -> str | None:
    return next((flag(struct, name) for name in names if is_given(name)), None)
