"""`logforge inspect`: what an unknown log is, and a mapping that reads it."""

from __future__ import annotations

import sys

import click

from logforge.cli.options import JSON, show


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--write-mapping",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a mapping that reads the shape, with comments where it is unsure.",
)
@JSON
def inspect(paths: tuple[str, ...], write_mapping: str | None, as_json: bool) -> None:
    """Say what logs are: keys, samples without secrets, the connectors that came near, and a mapping that reads them.

    \b
    Example: logforge inspect ./logs
             logforge inspect chats.csv --write-mapping chats.yaml
    """
    from logforge.inspecting import inspect as run

    report = run(paths, write_mapping)
    show(report, as_json)
    sys.exit(report.exit_code())
