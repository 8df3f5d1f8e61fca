"""The options of `build-dataset` that say when it stops: how many broken episodes it may set aside, and its gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_GATES = {
    "min_failure_share": "Fail unless this share of the known outcomes, or more, are failures.",
    "max_conflict_rate": "Fail when a larger share of decisions lies in states whose logs contradict each other.",
    "min_coverage": "Fail unless this share of the states seen twice, or more, saw two actions.",
    "max_leak_auc": "Fail when the first state predicts success better than this (AUC).",
}


def gate_options(command: F) -> F:
    """Add an option for each gate; one without a threshold is not looked at."""
    for name, text in reversed(_GATES.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, type=click.FloatRange(0, 1), metavar="SHARE", help=text)(command)
    return command


def stop_options(command: F) -> F:
    """Add the gates, and `--max-quarantine`."""
    return click.option(
        "--max-quarantine",
        default="0",
        show_default=True,
        metavar="N|SHARE",
        help="Set aside so many episodes with rows that break a rule (3, 2%); beyond, stop.",
    )(gate_options(command))


def given_gates(options: dict[str, Any]) -> dict[str, float]:
    """Take the thresholds out of a command's options."""
    given = {name: options.pop(name) for name in _GATES}
    return {name: threshold for name, threshold in given.items() if threshold is not None}
