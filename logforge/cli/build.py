"""`logforge build-dataset`."""

from __future__ import annotations

from typing import Any

import click

from logforge.cli.options import JSON, STORE, WAIT, options, say, show, stated, taken
from logforge.dataset.build import BuildConfig, Gates
from logforge.dataset.states import StateConfig


@click.command("build-dataset")
@click.option("--reward", "reward_spec", required=True, type=click.Path(), help="The reward spec (YAML).")
@STORE
@click.option("--name", default="default", show_default=True, help="The dataset's name.")
@click.option(
    "--out", default="datasets", show_default=True, help="Folder that the dataset's folder goes into."
)
@options(BuildConfig, "encoder", "text_size", "seed", "augment", ..., "hold_out")
@click.option("--vocabulary", type=click.Path(), help="An earlier dataset folder whose action ids must stay.")
@click.option(
    "--like",
    type=click.Path(),
    help="An earlier dataset folder whose action ids and text columns must stay, so that its policies can go on.",
)
@options(
    BuildConfig, "action_aliases", ..., "estimate_propensity", "split_by", "weights", ..., "replay_fraction"
)
@options(StateConfig, "blocks", "goal", "window_turns", "history", "step_budget")
@options(BuildConfig, "observation_dtype", ..., "licences")
@click.option(
    "--max-quarantine",
    default="0",
    show_default=True,
    metavar="N|SHARE",
    help="Set aside so many episodes with rows that break a rule (3, 2%); beyond, stop.",
)
@click.option(
    "--max-missing",
    default="50%",
    show_default=True,
    metavar="N|SHARE",
    help="Leave out so many complete episodes because their reward is missing (3, 100%); beyond, stop.",
)
@options(Gates)
@WAIT
@JSON
def build_dataset(
    reward_spec: str,
    store: str,
    vocabulary: str | None,
    like: str | None,
    wait: float,
    as_json: bool,
    **given: Any,
) -> None:
    """Build a validated, split, encoded dataset from the store.

    \b
    Example: logforge build-dataset --reward reward.yaml
    """
    from logforge.core import bar
    from logforge.dataset.build import build_dataset, earlier_arguments, earlier_reduction, earlier_vocabulary
    from logforge.store import open_store

    config = BuildConfig(**taken(BuildConfig, given))
    gates = stated(taken(Gates, given))
    with open_store(store, create=False, wait=wait, waiting=say) as opened, bar("encode") as tick:
        report = build_dataset(
            opened,
            reward_spec,
            config=config,
            vocabulary=earlier_vocabulary(vocabulary or like),
            arguments=earlier_arguments(vocabulary or like),
            reduction=earlier_reduction(like, config.encoder),
            gates=gates,
            progress=tick,
            **given,
        )
    show(report, as_json)
