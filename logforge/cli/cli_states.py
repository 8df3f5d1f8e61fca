"""The options of a build that say what a state holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def state_options(command: F) -> F:
    """Add `--without`, `--goal` and the sizes of a state."""
    for option in (
        click.option(
            "--step-budget",
            type=click.IntRange(min=1),
            default=30,
            show_default=True,
            help="Steps an episode is taken to have: what is left of them is part of a state.",
        ),
        click.option(
            "--history",
            type=click.IntRange(min=1),
            default=5,
            show_default=True,
            help="How many of the latest tool calls a state holds, a slot each.",
        ),
        click.option(
            "--window-turns",
            type=click.IntRange(min=1),
            default=10,
            show_default=True,
            help="How many of the latest messages a state holds.",
        ),
        click.option(
            "--goal",
            default="whole",
            show_default=True,
            metavar="SUMMARY",
            help="What of the task's text a state holds: whole, or a summary of it (central, lead).",
        ),
        click.option(
            "--without",
            "without",
            multiple=True,
            metavar="BLOCK",
            help="A block that states are to lack (thought, window, …); may be given again.",
        ),
    ):
        command = option(command)
    return command


def read_state_options(options: dict[str, Any]) -> None:
    """Put a StateConfig in the place of the options as they were written. Raises UnknownName and UsageError."""
    from logforge.dataset.states.builder import BLOCKS, StateConfig
    from logforge.schemas.errors import UnknownName

    without = options.pop("without")
    for name in without:
        if name not in BLOCKS:
            raise UnknownName("state block", name, BLOCKS)
    kept = tuple(name for name in BLOCKS if name not in without)
    sizes = {name: options.pop(name) for name in ("window_turns", "history", "step_budget")}
    options["state"] = StateConfig(blocks=kept, goal=options.pop("goal"), **sizes)
