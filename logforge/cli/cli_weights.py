"""The options of a build that say what to learn from: sample weights, and the stages of a curriculum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def weight_options(command: F) -> F:
    """Add `--weights`, `--curriculum` and `--replay-fraction`."""
    for option in (
        click.option(
            "--replay-fraction",
            default=0.1,
            show_default=True,
            type=click.FloatRange(0, 1, max_open=True),
            help="The share of a stage's episodes that are of earlier stages (curriculum).",
        ),
        click.option(
            "--curriculum",
            is_flag=True,
            help="Write stages.json: the episodes of each stage, easy ones first.",
        ),
        click.option(
            "--weights",
            "weight_files",
            multiple=True,
            type=click.Path(),
            help="Settings of sample weights (YAML), or the up-weight.yaml of `badcases`; may be given again.",
        ),
    ):
        command = option(command)
    return command


def read_weights(options: dict[str, Any]) -> None:
    """Put what the named files say in the place of their names."""
    from logforge.dataset.weights.files import load_weights

    options["weights"] = load_weights(options.pop("weight_files"))
