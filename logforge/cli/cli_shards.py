"""The options of a build that say how its shards are stored, and under which licences their sources stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def shard_options(command: F) -> F:
    """Add `--observation-dtype`, `--part-size` and `--licence`."""
    for option in (
        click.option(
            "--licence",
            "licences",
            multiple=True,
            metavar="FORMAT=TEXT",
            help="The licence of the sources of a format, for the dataset card; may be given again.",
        ),
        click.option(
            "--part-size",
            default="2GB",
            show_default=True,
            help="Observations and masks beyond this lie in several files.",
        ),
        click.option(
            "--observation-dtype",
            type=click.Choice(["float32", "float16"]),
            default="float32",
            show_default=True,
            help="How observations are stored; float16 takes half the disk and is read as float32.",
        ),
    ):
        command = option(command)
    return command


def read_part_size(options: dict[str, Any]) -> None:
    """Put the number of bytes in the place of the size as it was written."""
    from logforge.ingestion.sources.containers import bytes_of

    options["part_bytes"] = bytes_of(options.pop("part_size"))
