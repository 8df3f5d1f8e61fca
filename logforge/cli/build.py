"""`logforge build-dataset`, and the options of a build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from logforge.cli.conflicts import conflict_options
from logforge.cli.options import JSON, STORE, WAIT, say, show

F = TypeVar("F", bound=Callable[..., Any])


def action_options(command: F) -> F:
    """Add `--action-alias`, `--min-action-count`, `--action-level` and `--estimate-propensity`."""
    for option in (
        click.option(
            "--estimate-propensity",
            is_flag=True,
            help="Estimate the propensities that the log lacks, by a calibrated model of who chose what (docs/actions.md).",
        ),
        click.option(
            "--action-level",
            type=click.Choice(["tool", "tool+template"]),
            default="tool",
            show_default=True,
            help="tool+template adds each call's argument template and its numeric arguments as arrays.",
        ),
        click.option(
            "--min-action-count",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            metavar="N",
            help="Tools that the train split calls less often share the action `<other>`, which no policy chooses.",
        ),
        click.option(
            "--action-alias",
            "action_aliases",
            multiple=True,
            metavar="OLD=NEW",
            help="A tool that was renamed and keeps one id, or a YAML file of such pairs; may be given again.",
        ),
    ):
        command = option(command)
    return command


def read_action_options(options: dict[str, Any]) -> None:
    """Put the mapping of names in the place of the aliases as they were written."""
    from logforge.dataset.actions.names import read_aliases

    options["action_aliases"] = read_aliases(options["action_aliases"])


def state_options(command: F) -> F:
    """Add `--without`, `--goal` and the sizes of a state."""
    for option in (
        click.option(
            "--step-budget",
            type=click.IntRange(min=1),
            default=30,
            show_default=True,
            help="Steps an episode is taken to have: what is left of them is part of a state.",
        ),
        click.option(
            "--history",
            type=click.IntRange(min=1),
            default=5,
            show_default=True,
            help="How many of the latest tool calls a state holds, a slot each.",
        ),
        click.option(
            "--window-turns",
            type=click.IntRange(min=1),
            default=10,
            show_default=True,
            help="How many of the latest messages a state holds.",
        ),
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
    from logforge.dataset.states.builder import BLOCKS, StateConfig
    from logforge.schemas.errors import UnknownName

    without = options.pop("without")
    for name in without:
        if name not in BLOCKS:
            raise UnknownName("state block", name, BLOCKS)
    kept = tuple(name for name in BLOCKS if name not in without)
    sizes = {name: options.pop(name) for name in ("window_turns", "history", "step_budget")}
    options["state"] = StateConfig(blocks=kept, goal=options.pop("goal"), **sizes)


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


def weight_options(command: F) -> F:
    """Add `--weights`, `--curriculum` and `--replay-fraction`."""
    for option in (
        click.option(
            "--replay-fraction",
            default=0.1,
            show_default=True,
            type=click.FloatRange(0, 1, max_open=True),
            help="The share of a stage's episodes that are of earlier stages (curriculum).",
        ),
        click.option(
            "--curriculum",
            is_flag=True,
            help="Write stages.json: the episodes of each stage, easy ones first.",
        ),
        click.option(
            "--weights",
            "weight_files",
            multiple=True,
            type=click.Path(),
            help="Settings of sample weights (YAML), or the up-weight.yaml of `badcases`; may be given again.",
        ),
    ):
        command = option(command)
    return command


def read_weights(options: dict[str, Any]) -> None:
    """Put what the named files say in the place of their names."""
    from logforge.dataset.weights.files import load_weights

    options["weights"] = load_weights(options.pop("weight_files"))


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


@click.command("build-dataset")
@click.option("--reward", "reward_spec", required=True, type=click.Path(), help="The reward spec (YAML).")
@STORE
@click.option("--name", default="default", show_default=True, help="The dataset's name.")
@click.option(
    "--out", default="datasets", show_default=True, help="Folder that the dataset's folder goes into."
)
@click.option(
    "--encoder",
    default="minilm-onnx",
    show_default=True,
    help="minilm-onnx, minilm, hashing, a local sentence-transformers folder, onnx:FOLDER, or openai:MODEL@URL.",
)
@click.option("--text-size", default=32, show_default=True, help="Size of a text's vector after PCA.")
@click.option("--seed", default=0, show_default=True, help="Seed of splits and augmenters.")
@click.option("--augment", multiple=True, help="An augmenter (paraphrase, tool_failure); may be given again.")
@click.option("--retryable", multiple=True, help="A tool that tool_failure may let fail; may be given again.")
@conflict_options
@click.option(
    "--exclude-flag",
    "exclude_flags",
    multiple=True,
    metavar="FLAG",
    help="Leave out episodes with such a message (injection, unicode:bidi); may be given again.",
)
@click.option(
    "--exclude-where",
    multiple=True,
    metavar="CONDITION",
    help="Leave out episodes that meet an SQL condition on the columns of `episodes`; may be given again.",
)
@click.option(
    "--hold-out",
    multiple=True,
    metavar="CONDITION",
    help="Put episodes that meet a condition, with their groups, into a split of their own; may be given again.",
)
@click.option("--vocabulary", type=click.Path(), help="An earlier dataset folder whose action ids must stay.")
@click.option(
    "--like",
    type=click.Path(),
    help="An earlier dataset folder whose action ids and text columns must stay, so that its policies can go on.",
)
@action_options
@click.option(
    "--split-by",
    type=click.Choice(["group", "time"]),
    default="group",
    show_default=True,
    help="group (a hash of its key), or time: train is over before what is tested begins.",
)
@weight_options
@state_options
@shard_options
@stop_options
@WAIT
@JSON
def build_dataset(
    reward_spec: str,
    store: str,
    name: str,
    out: str,
    vocabulary: str | None,
    like: str | None,
    max_quarantine: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Build a validated, split, encoded dataset from the store.

    \b
    Example: logforge build-dataset --reward reward.yaml
    """
    from logforge.core.progress import bar
    from logforge.dataset.build.earlier_dataset import earlier_arguments, earlier_reduction
    from logforge.dataset.build.pipeline import BuildConfig, build_dataset, earlier_vocabulary
    from logforge.store.store import open_store

    wait, gates = options.pop("wait"), given_gates(options)
    read_weights(options)
    read_part_size(options)
    read_action_options(options)
    read_state_options(options)
    config = BuildConfig(**options)
    with open_store(store, create=False, wait=wait, waiting=say) as opened, bar("encode") as tick:
        report = build_dataset(
            opened,
            reward_spec,
            name=name,
            out=out,
            config=config,
            vocabulary=earlier_vocabulary(vocabulary or like),
            arguments=earlier_arguments(vocabulary or like),
            reduction=earlier_reduction(like, config.encoder),
            gates=gates,
            max_quarantine=max_quarantine,
            progress=tick,
        )
    show(report, as_json)
