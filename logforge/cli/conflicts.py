"""`logforge conflicts`."""

from __future__ import annotations

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show

_KINDS = ("outcome", "contrast", "label", "demonstration")
_LEVELS = ("exact", "canonical", "near")


@click.command()
@click.argument("dataset", default="default")
@STORE
@click.option("--kind", type=click.Choice(_KINDS), help="Only this kind.")
@click.option("--level", type=click.Choice(_LEVELS), help="Only this level.")
@click.option("--split", help="Only with an example in this split.")
@click.option("--tool", metavar="ACTION", help="Only with this action on a side.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(0), help="Conflicts to show.")
@WAIT
@JSON
def conflicts(dataset: str, store: str, limit: int, wait: float, as_json: bool, **only: str | None) -> None:
    """Show decisions that disagree in the same state, both sides with text and source lines.

    \b
    Example: logforge conflicts --kind contrast
    """
    from logforge.cli.listings import conflict_views
    from logforge.dataset.conflicts import Narrowed
    from logforge.store import open_store

    with open_store(store, read_only=True, wait=wait, waiting=say) as opened:
        show(conflict_views(opened, dataset, Narrowed(**only), limit), as_json)
