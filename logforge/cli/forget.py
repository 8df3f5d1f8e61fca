"""`logforge forget`."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show


@click.command()
@STORE
@click.option("--session", metavar="ID", help="A session, by the log's own id.")
@click.option("--source", metavar="PATH", help="A log file, or a folder of them.")
@click.option("--episode", metavar="ID", help="An episode, by its id or the beginning of it.")
@click.option("--user", metavar="ID", help="A user, by the log's own id.")
@click.option(
    "--runs",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="A folder with runs, whose policies are to lose what they hold of it; may be given again.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--revoke", is_flag=True, help="Lift an earlier forget: the next ingest reads it again.")
@WAIT
@JSON
def forget(
    store: str,
    runs: tuple[str, ...],
    dry_run: bool,
    revoke: bool,
    wait: float,
    as_json: bool,
    **names: Any,
) -> None:
    """Remove a session, source, episode or user from the store, its caches and the published datasets, and keep it out.

    Log files are not touched: the report says which of them still hold it. Policies are cleaned below --runs alone.

    \b
    Example: logforge forget --session 7f3a --dry-run
    """
    from logforge.forgetting import pipeline as forgetting
    from logforge.schemas import UsageError
    from logforge.store import open_store

    with open_store(store, create=False, wait=wait, waiting=say) as opened:
        if revoke and runs:
            raise UsageError("what was taken out of runs does not come back", "leave --runs out, or --revoke")
        if revoke:
            show(forgetting.revoke(opened, **names), as_json)
        else:
            report = forgetting.forget(opened, **names, dry_run=dry_run, runs=runs)
            show(report, as_json)
            if report.warning and not runs:
                say(report.warning)
