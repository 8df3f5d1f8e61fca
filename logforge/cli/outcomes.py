"""`logforge outcomes`: labels from a file or by a rule."""

from __future__ import annotations

import sys

import click

from logforge.cli.options import JSON, STORE, WAIT, say, show


@click.command()
@click.argument("file", required=False, type=click.Path())
@STORE
@click.option("--id", "id_column", metavar="COLUMN", help="The column of ids, where it has another name.")
@click.option(
    "--from",
    "condition",
    metavar="SQL",
    help="Judge by a condition over the columns of `episodes`: true is a success, false none, null unknown.",
)
@click.option(
    "--precedence",
    type=int,
    metavar="N",
    help="What counts where labels disagree: the highest. Default: 10 for a file, -10 for a rule; the log has 0.",
)
@click.option("--remove", is_flag=True, help="Take the labels of FILE, or of the rule, away again.")
@WAIT
@JSON
def outcomes(
    file: str | None,
    store: str,
    id_column: str | None,
    condition: str | None,
    precedence: int | None,
    remove: bool,
    wait: float,
    as_json: bool,
) -> None:
    """Join outcomes that do not stand in the logs to the stored episodes: a CSV, JSON, Parquet or Arrow file, or a rule.

    A row names an episode (episode_id, native_id, session_id, task_id, or id for any of them; trial tells runs of a task
    apart) and says success, score, comment; with step also reward.

    \b
    Example: logforge outcomes labels.csv
             logforge outcomes --from "score >= 0.5"
             logforge outcomes labels.csv --remove
    """
    from logforge.cli.options import stated
    from logforge.outcomes import label_file, label_where
    from logforge.outcomes import remove as take_away
    from logforge.schemas import UsageError
    from logforge.store import open_store

    if (file is None) == (condition is None):
        raise UsageError("name one thing that tells outcomes", 'a FILE, or --from "SQL condition"')
    given = stated({"precedence": precedence})
    with open_store(store, create=False, wait=wait, waiting=say) as opened:
        if remove:
            show(take_away(opened, file or condition or ""), as_json)
            return
        report = (
            label_where(opened, condition, **given)
            if condition is not None
            else label_file(opened, file or "", id_column=id_column, **given)
        )
    show(report, as_json)
    sys.exit(report.exit_code())
