"""The options of a build that say what counts as one action, and whether propensities are estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def action_options(command: F) -> F:
    """Add `--action-alias`, `--min-action-count`, `--action-level` and `--estimate-propensity`."""
    for option in (
        click.option(
            "--estimate-propensity",
            is_flag=True,
            help="Estimate the propensities that the log lacks, by a calibrated model of who chose what (docs/actions.md).",
        ),
        click.option(
            "--action-level",
            type=click.Choice(["tool", "tool+template"]),
            default="tool",
            show_default=True,
            help="tool+template adds each call's argument template and its numeric arguments as arrays.",
        ),
        click.option(
            "--min-action-count",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            metavar="N",
            help="Tools that the train split calls less often share the action `<other>`, which no policy chooses.",
        ),
        click.option(
            "--action-alias",
            "action_aliases",
            multiple=True,
            metavar="OLD=NEW",
            help="A tool that was renamed and keeps one id, or a YAML file of such pairs; may be given again.",
        ),
    ):
        command = option(command)
    return command


def read_action_options(options: dict[str, Any]) -> None:
    """Put the mapping of names in the place of the aliases as they were written."""
    from logforge.dataset.actions.names import read_aliases

    options["action_aliases"] = read_aliases(options["action_aliases"])
