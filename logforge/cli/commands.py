"""The command line: options in, one call, the report out. Data goes to stdout, talk to stderr; no logic lives here.

Nothing heavy is imported at the top: `logforge --help` loads click alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from logforge.cli.badcases import badcases
from logforge.cli.check import check
from logforge.cli.cli_actions import action_options, read_action_options
from logforge.cli.cli_credit_agreement import credit_agreement
from logforge.cli.cli_gates import given_gates, stop_options
from logforge.cli.cli_shards import read_part_size, shard_options
from logforge.cli.cli_states import read_state_options, state_options
from logforge.cli.cli_weights import read_weights, weight_options
from logforge.cli.conflicts import conflict_options, conflicts
from logforge.cli.credit import credit
from logforge.cli.diff import diff
from logforge.cli.evaluate import evaluate
from logforge.cli.export import export
from logforge.cli.forget import forget
from logforge.cli.options import JSON, STORE, WAIT, say
from logforge.cli.options import show as _print
from logforge.cli.policy import policy
from logforge.cli.quarantine import quarantine
from logforge.cli.report import report
from logforge.cli.reward import reward
from logforge.cli.simulate import simulate
from logforge.cli.train import doctor, sweep, train
from logforge.core.progress import printable
from logforge.schemas.errors import LogforgeError, UsageError

F = TypeVar("F", bound=Callable[..., Any])


class Commands(click.Group):
    """Turns logforge's errors into messages and exit codes, and the config file into option defaults."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the defaults of the nearest config file before any option is parsed."""
        from logforge.cli.config import default_map

        options = {
            name: {parameter.opts[0].lstrip("-"): str(parameter.name) for parameter in command.params}
            for name, command in self.commands.items()
        }
        try:
            if not {"-h", "--help", "--version"} & set(args):
                extra["default_map"] = default_map(Path.cwd(), options)
        except LogforgeError as error:
            _fail(error, "--json" in args)
        as_json = "--json" in args
        context = super().make_context(info_name, args, parent, **extra)
        context.obj = as_json
        return context

    def main(self, *args: Any, **extra: Any) -> Any:
        """As click's own, but a usage error under `--json` is a JSON document too."""
        given = extra.get("args") or (args[0] if args else None) or sys.argv[1:]
        try:
            return super().main(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            _fail(_as_ours(error), "--json" in given)
        except click.Abort:
            click.echo("aborted", err=True)
            sys.exit(130)
        except BrokenPipeError:  # whoever read our output has enough of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of ours becomes a message and its exit code."""
        try:
            return super().invoke(ctx)
        except LogforgeError as error:
            _fail(error, bool(ctx.obj))


def _fail(error: LogforgeError, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(error.as_dict(), default=str, ensure_ascii=False))
    click.echo(printable(f"error ({error.rule}): {error.message}\nremedy: {error.remedy}"), err=True)
    sys.exit(error.exit_code)


def _as_ours(error: click.ClickException) -> UsageError:
    """A wrong option or argument as an error with a remedy, like any other."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "logforge"
    message = error.format_message().rstrip(".")
    return UsageError(" ".join(message.split()), f"`{command} --help` says what it takes")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="logforge")
def main() -> None:
    """Turn raw LLM-agent logs into offline-RL datasets and a measured tool-choice controller.

    \b
    Example:
      logforge ingest ./logs
      logforge build-dataset --reward reward.yaml
      logforge train datasets/default
      logforge evaluate runs/default
    """


@main.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@JSON
def init(folder: str, as_json: bool) -> None:
    """Write a runnable project: a sample log, a reward spec and a config file.

    \b
    Example: logforge init my-project && cd my-project && logforge ingest logs
    """
    from logforge.cli.project import init_project

    _print(init_project(folder), as_json)


@main.command()
@click.argument("paths", nargs=-1, required=True)
@STORE
@click.option("--format", "format_name", help="Read every file as this format instead of detecting it.")
@click.option("--mapping", type=click.Path(), help="A YAML mapping that describes a shape of your own.")
@click.option(
    "--name", help="What the source is called that `-` (standard input) reads. Default: by its bytes."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Reading processes. Default: one per core for large inputs."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when anything was quarantined.")
@click.option(
    "--strict-arguments", is_flag=True, help="Mend no arguments and no tool names; damaged ones are invalid."
)
@click.option(
    "--redact/--no-redact",
    default=True,
    show_default=True,
    help="Take secrets out of all text before it is stored.",
)
@click.option(
    "--pii",
    "--redact-pii",
    multiple=True,
    metavar="KIND",
    help="Take personal data out too: email, phone, card, iban, ip, ssn or all; may be given again.",
)
@click.option(
    "--allow-secret",
    multiple=True,
    metavar="PATTERN",
    help="A known sample key that stays, as AKIA*EXAMPLE, or its SHA-256; may be given again.",
)
@click.option(
    "--flag-with",
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="A function of yours that flags messages, by toxicity say. It is run.",
)
@click.option(
    "--danger",
    multiple=True,
    metavar="KIND=PATTERN",
    help="Tools that are dangerous, as pay=buy_*; `none` leaves the built-in list out; may be given again.",
)
@click.option(
    "--dry-run", is_flag=True, help="Say what would read each file and what it would keep; store nothing."
)
@click.option("--max-unpacked", default="16GB", show_default=True, help="Bytes a packed file may unfold to.")
@click.option(
    "--max-ratio", type=click.IntRange(1), default=500, show_default=True, help="And times its own size."
)
@click.option("--max-record", default="256MB", show_default=True, help="Bytes a line or document may have.")
@click.option("--watch", is_flag=True, help="Go on following the paths, until Ctrl-C.")
@click.option("--interval", default=2.0, show_default=True, help="Seconds between two looks of --watch.")
@WAIT
@JSON
def ingest(
    paths: tuple[str, ...],
    store: str,
    format_name: str | None,
    mapping: str | None,
    name: str | None,
    workers: int | None,
    strict: bool,
    strict_arguments: bool,
    redact: bool,
    pii: tuple[str, ...],
    allow_secret: tuple[str, ...],
    flag_with: tuple[str, ...],
    danger: tuple[str, ...],
    dry_run: bool,
    max_unpacked: str,
    max_ratio: int,
    max_record: str,
    watch: bool,
    interval: float,
    wait: float,
    as_json: bool,
) -> None:
    """Read agent logs and demonstrations into the store; `-` is standard input. A second run changes nothing.

    \b
    Example: logforge ingest ./logs
             zcat today.jsonl.gz | logforge ingest -
    """
    from logforge.core.progress import bar
    from logforge.ingestion.dry_runs import dry_run as plan
    from logforge.ingestion.pipeline import ingest as run
    from logforge.ingestion.pipeline import read_options
    from logforge.ingestion.sources.containers import Limits, bytes_of
    from logforge.ingestion.sources.pipes import apart
    from logforge.ingestion.watching import until_told
    from logforge.ingestion.watching import watch as follow
    from logforge.store.store import open_store

    apart(paths, name)
    limits = Limits(bytes_of(max_unpacked), max_ratio, record=bytes_of(max_record))
    hygiene = (redact, danger, pii, allow_secret, flag_with)
    options = read_options(paths, format_name, mapping, strict_arguments, limits, *hygiene)
    if dry_run:
        planned = plan(paths, Path(store), options, name)
        _print(planned, as_json)
        sys.exit(planned.exit_code(strict))
    given: dict[str, Any] = {
        "format": format_name,
        "mapping": mapping,
        "strict_arguments": strict_arguments,
        "redact": redact,
        "pii": pii,
        "allow_secret": allow_secret,
        "flag_with": flag_with,
        "danger": danger,
        "limits": limits,
        "workers": workers or os.cpu_count() or 1,
    }
    if watch:
        with until_told() as stop:
            for item in follow(store, paths, interval=interval, stop=stop, say=say, **given):
                _print(item, as_json)
        return
    with open_store(store, wait=wait, waiting=say) as opened, bar("ingest") as tick:
        report = run(opened, paths, name=name, **given, progress=tick)
    _print(report, as_json)
    sys.exit(report.exit_code(strict))


@main.command()
@click.argument("query")
@STORE
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@WAIT
@JSON
def sql(query: str, store: str, as_csv: bool, wait: float, as_json: bool) -> None:
    """Run a query over the store (read-only). `-` reads it from stdin.

    \b
    Example: logforge sql "SELECT action, count(*) FROM transitions_latest GROUP BY 1 ORDER BY 2 DESC"
    """
    from logforge.cli.listings import run_query
    from logforge.store.store import open_store

    text = sys.stdin.read() if query == "-" else query
    with open_store(store, read_only=True, wait=wait, waiting=say) as opened:
        result = run_query(opened, text)
    click.echo(result.csv(), nl=False) if as_csv else _print(result, as_json)


main.add_command(badcases)
main.add_command(check)
main.add_command(conflicts)
main.add_command(credit)
main.add_command(credit_agreement)
main.add_command(diff)
main.add_command(doctor)
main.add_command(evaluate)
main.add_command(export)
main.add_command(forget)
main.add_command(policy)
main.add_command(quarantine)
main.add_command(report)
main.add_command(reward)
main.add_command(simulate)
main.add_command(sweep)
main.add_command(train)


@main.command("build-dataset")
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
    _print(report, as_json)


@main.command()
@click.argument("episode")
@STORE
@click.option("--dataset", help="The dataset. Default: the newest.")
@JSON
def explain(episode: str, store: str, dataset: str | None, as_json: bool) -> None:
    """Show each step of an episode with its reward terms and source lines. EPISODE is an id (or its beginning), or ID:STEP.

    \b
    Example: logforge explain 4f2a:3
    """
    from logforge.lineage.explanation import explain as run
    from logforge.store.store import open_store

    with open_store(store, read_only=True) as opened:
        _print(run(opened, episode, dataset), as_json)


@main.command()
@JSON
def formats(as_json: bool) -> None:
    """List the log formats that can be read.

    \b
    Example: logforge formats
    """
    from logforge.cli.listings import known_formats

    _print(known_formats(), as_json)


if __name__ == "__main__":
    main()
