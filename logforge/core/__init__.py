"""What knows no stage: files, frames, intervals, SQL expressions, progress, extras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.core import extras, intervals, sql, types
    from logforge.core.endpoint import ChatEndpoint, Declined, Endpoint, Reply, Unavailable, check_url, wait_s
    from logforge.core.extras import import_d3rlpy, need, one_thread
    from logforge.core.files import (
        plain_file,
        refuse_foreign,
        replaced_file,
        replaced_folder,
        replacing,
        sync,
    )
    from logforge.core.frames import POLARS_TYPES, Tables, concat, episodes_of, rows_table, tables_of
    from logforge.core.hash_counts import Tally, places_in
    from logforge.core.intervals import (
        MIN_EPISODES,
        Estimate,
        Noise,
        Span,
        bootstrap_mean,
        bracketed,
        difference,
        interval,
        pooled,
        resamples,
        share,
        within,
    )
    from logforge.core.options import KEY, Option, option, told
    from logforge.core.platforms import not_on_windows, peak_megabytes
    from logforge.core.progress import Tick, bar, printable, silent
    from logforge.core.ranking import auc, auc_estimates
    from logforge.core.report import BaseReport, Lines, each, noted, picked, plain, rest, text
    from logforge.core.scratch_files import (
        Episodes,
        EpisodeSpool,
        RowSpool,
        SpoolFile,
        batches,
        some_at_a_time,
    )
    from logforge.core.sql import (
        ALLOWED,
        CASTS,
        FUNCTIONS,
        Expression,
        Language,
        first_line,
        parse,
        sandbox,
        text_literal,
    )
    from logforge.core.stages import Scope, from_all, from_summary, per, per_bucket, per_episode, stage
    from logforge.core.stored_rows import ChosenRows, Part, StoredRows, gather, kept_rows
    from logforge.core.tabulate import LINES, WIDTH, Count, cut, ending, fit, listed, plural, table
    from logforge.core.types import Float32Array, FloatArray, IntArray

__all__ = [
    "ALLOWED", "CASTS", "FUNCTIONS", "KEY", "LINES", "MIN_EPISODES", "POLARS_TYPES", "WIDTH",
    "BaseReport", "ChatEndpoint", "ChosenRows", "Count", "Declined", "Endpoint", "EpisodeSpool",
    "Episodes", "Estimate", "Expression", "Float32Array", "FloatArray", "IntArray", "Language", "Lines",
    "Noise", "Option", "Part", "Reply", "RowSpool", "Scope", "Span", "SpoolFile", "StoredRows", "Tables",
    "Tally", "Tick", "Unavailable", "auc", "auc_estimates", "bar", "batches", "bootstrap_mean",
    "bracketed", "check_url", "concat", "cut", "difference", "each", "ending", "episodes_of", "extras",
    "first_line", "fit", "from_all", "from_summary", "gather", "import_d3rlpy", "interval", "intervals",
    "kept_rows", "listed", "need", "not_on_windows", "noted", "one_thread", "option", "parse",
    "peak_megabytes", "per", "per_bucket", "per_episode", "picked", "places_in", "plain", "plain_file",
    "plural", "pooled", "printable", "refuse_foreign", "replaced_file", "replaced_folder", "replacing",
    "resamples", "rest", "rows_table", "sandbox", "share", "silent", "some_at_a_time", "sql", "stage",
    "sync", "table", "tables_of", "text", "text_literal", "told", "types", "wait_s", "within",
]  # fmt: skip

face(
    __name__,
    endpoint="ChatEndpoint Declined Endpoint Reply Unavailable check_url wait_s",
    extras="import_d3rlpy need one_thread",
    files="plain_file refuse_foreign replaced_file replaced_folder replacing sync",
    frames="POLARS_TYPES Tables concat episodes_of rows_table tables_of",
    hash_counts="Tally places_in",
    intervals="Estimate MIN_EPISODES Noise Span bootstrap_mean bracketed difference interval "
    "pooled resamples share within",
    options="KEY Option option told",
    platforms="not_on_windows peak_megabytes",
    progress="Tick bar printable silent",
    ranking="auc auc_estimates",
    report="BaseReport Lines each noted picked plain rest text",
    scratch_files="EpisodeSpool Episodes RowSpool SpoolFile batches some_at_a_time",
    sql="ALLOWED CASTS Expression FUNCTIONS Language first_line parse sandbox text_literal",
    stages="Scope from_all from_summary per per_bucket per_episode stage",
    stored_rows="ChosenRows Part StoredRows gather kept_rows",
    tabulate="Count LINES WIDTH cut ending fit listed plural table",
    types="Float32Array FloatArray IntArray",
)
