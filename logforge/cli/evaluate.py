"""`logforge evaluate`: what a run's policies are worth, estimated on held-out episodes or counted in a simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from logforge.cli.options import JSON, show

if TYPE_CHECKING:
    from logforge.evaluation.playing import PlayReport

F = TypeVar("F", bound=Callable[..., Any])


def play_options(command: F) -> F:
    """Add `--simulator` and what belongs to it."""
    for option in (
        click.option("--held-out-wording", is_flag=True, help="Play in wordings that no log has."),
        click.option(
            "--baselines",
            default="none",
            show_default=True,
            help="all: also what was logged, the rule by hand, and online RL in the simulator. Needs --simulator.",
        ),
        click.option(
            "--episodes",
            type=click.IntRange(min=2),
            default=1000,
            show_default=True,
            help="Played of each policy. Needs --simulator.",
        ),
        click.option("--simulator", metavar="NAME", help="Play there: it-ops or support-escalation."),
    ):
        command = option(command)
    return command


_PLAYED = ("episodes", "baselines", "held_out_wording")
_ESTIMATED = ("dataset", "split", "fqe_members", "fqe_updates")


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def played_report(
    run: str, seed: int, simulator: str | None, episodes: int, baselines: str, held_out_wording: bool
) -> PlayReport | None:
    """What was played; None without a simulator. Raises UsageError for options that would be ignored."""
    from logforge.core.progress import bar
    from logforge.evaluation.playing import play
    from logforge.schemas.errors import UsageError

    ignored = [name for name in (_PLAYED if simulator is None else _ESTIMATED) if _is_given(name)]
    if ignored:
        option = "--" + ignored[0].replace("_", "-")
        if simulator is None:
            raise UsageError(f"{option} needs a simulator to play in", "name one: --simulator it-ops")
        raise UsageError(
            f"{option} says how to estimate, and with --simulator nothing is", "leave out one of them"
        )
    if simulator is None:
        return None
    with bar("play") as tick:
        return play(
            run,
            simulator,
            episodes=episodes,
            baselines=baselines,
            held_out=held_out_wording,
            seed=seed,
            progress=tick,
        )


@click.command()
@click.argument("run", type=click.Path())
@click.option("--dataset", type=click.Path(), help="The dataset. Default: the one the run was trained on.")
@click.option("--split", default="test", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--fqe-members", default=20, show_default=True, help="Of its bootstrap; a learner's seeds share them."
)
@click.option(
    "--fqe-updates", default=300, show_default=True, help="Of a round of it. The time grows with both."
)
@play_options
@JSON
def evaluate(
    run: str,
    dataset: str | None,
    split: str,
    seed: int,
    fqe_members: int,
    fqe_updates: int,
    as_json: bool,
    **playing: Any,
) -> None:
    """Estimate a run's policies on held-out episodes, beside the logged behaviour and cloning: by fitted Q evaluation (FQE), and by
    importance sampling where the log has propensities. With --simulator they are played, and nothing is estimated.

    \b
    Example: logforge evaluate runs/default
             logforge evaluate runs/default --simulator it-ops --baselines all
    """
    from logforge.core.progress import bar
    from logforge.evaluation.pipeline import evaluate as estimate

    if (played := played_report(run, seed, **playing)) is not None:
        return show(played, as_json)
    with bar("evaluate") as tick:
        report = estimate(
            run,
            dataset_path=dataset,
            split=split,
            members=fqe_members,
            updates=fqe_updates,
            seed=seed,
            progress=tick,
        )
    show(report, as_json)
