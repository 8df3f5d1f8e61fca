"""The options of a build that say what a state holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def state_options(command: F) -> F:
    """Add `--without` and `--goal`."""
    for option in (
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
    from logforge.schemas.errors import UnknownName
    from logforge.states import BLOCKS, StateConfig

    without = options.pop("without")
    for name in without:
        if name not in BLOCKS:
            raise UnknownName("state block", name, BLOCKS)
    kept = tuple(name for name in BLOCKS if name not in without)
    options["state"] = StateConfig(blocks=kept, goal=options.pop("goal"))
