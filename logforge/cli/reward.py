"""`logforge reward`: show, lint and compare reward specs."""

from __future__ import annotations

import sys

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show


@click.group()
def reward() -> None:
    """Look at reward specs before training on them."""


@reward.command("show")
@click.argument("spec", type=click.Path())
@JSON
def reward_show(spec: str, as_json: bool) -> None:
    """Print the DuckDB query that a spec compiles to.

    \b
    Example: logforge reward show reward.yaml
    """
    from logforge.cli.listings import compiled

    show(compiled(spec), as_json)


@reward.command("lint")
@click.argument("spec", type=click.Path())
@click.option("--store", help="A store: judge the spec on its episodes too.")
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the splits, on whose train part scales are fitted."
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@WAIT
@JSON
def reward_lint(spec: str, store: str | None, seed: int, strict: bool, wait: float, as_json: bool) -> None:
    """Say how a spec could be gamed or misread, before anyone trains on it. Exits with 1 when something is an error.

    \b
    Example: logforge reward lint reward.yaml
             logforge reward lint reward.yaml --store logforge.duckdb
    """
    from logforge.core import bar
    from logforge.rewards import load_spec
    from logforge.rewards.lint import lint
    from logforge.store import open_store

    loaded = load_spec(spec)
    if store is None:
        report = lint(loaded)
    else:
        with open_store(store, create=False, wait=wait, waiting=say) as opened, bar("score") as tick:
            report = lint(loaded, opened, seed=seed, progress=tick)
    show(report, as_json)
    sys.exit(report.exit_code(strict))


@reward.command("diff")
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@STORE
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the splits, on whose train part scales are fitted."
)
@WAIT
@JSON
def reward_diff(a: str, b: str, store: str, seed: int, wait: float, as_json: bool) -> None:
    """Say how rewards, returns and the ranking of the stored episodes change from spec A to spec B.

    \b
    Example: logforge reward diff reward.yaml other.yaml
    """
    from logforge.core import bar
    from logforge.rewards.lint import reward_diff as compare
    from logforge.store import open_store

    with open_store(store, create=False, wait=wait, waiting=say) as opened, bar("score") as tick:
        report = compare(opened, a, b, seed=seed, progress=tick)
    show(report, as_json)
