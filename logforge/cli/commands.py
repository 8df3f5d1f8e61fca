"""The command line: options in, one call, the report out. Data goes to stdout, talk to stderr; no logic lives here.

Nothing heavy is imported at the top: `logforge --help` loads click alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from logforge.cli.badcases import badcases
from logforge.cli.build import build_dataset
from logforge.cli.check import check
from logforge.cli.conflicts import conflicts
from logforge.cli.credit import credit, credit_agreement
from logforge.cli.diff import diff
from logforge.cli.evaluate import evaluate
from logforge.cli.export import export
from logforge.cli.forget import forget
from logforge.cli.ingest import ingest
from logforge.cli.inspect import inspect
from logforge.cli.options import JSON, STORE, WAIT, say, show
from logforge.cli.outcomes import outcomes
from logforge.cli.policy import policy
from logforge.cli.quarantine import quarantine
from logforge.cli.report import report
from logforge.cli.reward import reward
from logforge.cli.simulate import simulate
from logforge.cli.train import doctor, sweep, train
from logforge.core import printable
from logforge.schemas import LogforgeError, UsageError


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
        except click.exceptions.NoArgsIsHelpError as error:  # a group without a command: what it is for
            click.echo(error.format_message())
            sys.exit(0)
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
@click.version_option(package_name="logforge-rl", prog_name="logforge")
def main() -> None:
    """Turn raw LLM-agent logs into offline-RL datasets and a measured tool-choice controller.

    \b
    Example:
      logforge ingest ./logs
      logforge build-dataset --reward reward.yaml
      logforge train datasets/default
      logforge evaluate runs/default
    """


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@JSON
def init(folder: str, as_json: bool) -> None:
    """Write a runnable project: a sample log, a reward spec and a config file.

    \b
    Example: logforge init my-project && cd my-project && logforge ingest logs
    """
    from logforge.cli.project import init_project

    show(init_project(folder), as_json)


@click.command()
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
    from logforge.store import open_store

    text = sys.stdin.read() if query == "-" else query
    with open_store(store, read_only=True, wait=wait, waiting=say) as opened:
        result = run_query(opened, text)
    click.echo(result.csv(), nl=False) if as_csv else show(result, as_json)


@click.command()
@click.argument("episode")
@STORE
@click.option("--dataset", help="The dataset. Default: the newest.")
@JSON
def explain(episode: str, store: str, dataset: str | None, as_json: bool) -> None:
    """Show each step of an episode with its reward terms and source lines. EPISODE is an id (or its beginning), or ID:STEP.

    \b
    Example: logforge explain 4f2a:3
    """
    from logforge.lineage import explain as run
    from logforge.store import open_store

    with open_store(store, read_only=True) as opened:
        show(run(opened, episode, dataset), as_json)


@click.command()
@JSON
def formats(as_json: bool) -> None:
    """List the log formats that can be read.

    \b
    Example: logforge formats
    """
    from logforge.cli.listings import known_formats

    show(known_formats(), as_json)


for _command in (
    init,
    ingest,
    sql,
    badcases,
    check,
    conflicts,
    credit,
    credit_agreement,
    diff,
    doctor,
    evaluate,
    export,
    forget,
    inspect,
    outcomes,
    policy,
    quarantine,
    report,
    reward,
    simulate,
    sweep,
    train,
    build_dataset,
    explain,
    formats,
):
    main.add_command(_command)

if __name__ == "__main__":
    main()
