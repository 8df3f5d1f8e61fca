"""`logforge badcases`: what fails most dearly, and the files that follow from it."""

from __future__ import annotations

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show


@click.command()
@click.argument("dataset", default="default")
@STORE
@click.option("--limit", default=10, show_default=True, type=click.IntRange(0), help="Clusters to show.")
@click.option("--seed", default=0, show_default=True, help="Seed of the topics.")
@click.option(
    "--out", type=click.Path(file_okay=False), help="Write topic.jsonl, rules.md and up-weight.yaml there."
)
@click.option(
    "--cluster",
    "ranks",
    multiple=True,
    default=(1,),
    show_default=True,
    type=click.IntRange(1),
    help="A cluster that the files are about, by its rank; may be given again.",
)
@click.option(
    "--factor",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0),
    help="What up-weight.yaml multiplies weights by.",
)
@WAIT
@JSON
def badcases(
    dataset: str,
    store: str,
    limit: int,
    seed: int,
    out: str | None,
    ranks: tuple[int, ...],
    factor: float,
    wait: float,
    as_json: bool,
) -> None:
    """Cluster the failed train episodes by topic and kind of failure, the costliest (count × regret) first.

    \b
    Example: logforge badcases default --out bad-cases
             logforge build-dataset --reward reward.yaml --weights bad-cases/up-weight.yaml
    """
    from logforge.report import bad_cases, write_bad_cases
    from logforge.store import open_store

    with open_store(store, read_only=True, wait=wait, waiting=say) as opened:
        found = bad_cases(opened, dataset, limit=limit, seed=seed)
    if out is not None and found.cases:
        found = write_bad_cases(found, out, ranks, factor)
    show(found, as_json)
