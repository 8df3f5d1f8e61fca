"""`logforge simulate`."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, show


@click.command()
@click.argument("name")
@click.option("--episodes", default=500, show_default=True, type=click.IntRange(1), help="How many to write.")
@click.option(
    "--policy",
    default="mix",
    show_default=True,
    metavar="MIX",
    help="mix, no-expert, rule, rule-N (errs in N percent), lazy, random, or shares as rule-10:0.5,random:0.5.",
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="The same seed, the same bytes."
)
@click.option("--out", required=True, type=click.Path(), help="The folder to write NAME.jsonl into.")
@click.option("--tool-failure", type=float, help="Share of calls that fail. Default: 0.15.")
@click.option("--goal-change", type=float, help="Chance, at each step, that the user changes the goal.")
@click.option("--missing-knowledge", type=float, help="Share of problems that the tools know nothing of.")
@click.option("--impatience", type=float, help="Chance, at each step, that the user leaves for good.")
@click.option(
    "--trap",
    type=float,
    help="it-ops: chance that an unchecked restart costs the case; support: vague openings.",
)
@click.option(
    "--kinds",
    type=int,
    help="How many kinds of problem occur, the first ones: it-ops has 6, support 4. Default: all.",
)
@JSON
def simulate(name: str, episodes: int, policy: str, seed: int, out: str, as_json: bool, **knobs: Any) -> None:
    """Write raw logs of a behaviour policy in a built-in simulator: it-ops or support-escalation.

    \b
    Example: logforge simulate it-ops --episodes 2000 --policy mix --seed 0 --out logs
    """
    from logforge.core import bar
    from logforge.envs import make
    from logforge.envs import simulate as run

    world = make(name, **{knob: value for knob, value in knobs.items() if value is not None})
    with bar("simulate") as tick:
        report = run(world, policy, episodes, seed, out, progress=tick)
    show(report, as_json)
