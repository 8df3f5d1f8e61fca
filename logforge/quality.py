"""Checks every transition against every rule of schemas/transition.py and names each row that breaks one.

Types, nulls, ranges and words are pandera's; what ties rows together is polars'. All failures come in one go, except
that a frame without the table's columns and types cannot be checked any further.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from logforge.schemas.tables import TRANSITIONS
from logforge.schemas.transition import ALLOWED, NULLABLE, RULES

if TYPE_CHECKING:
    from pandera.polars import Check, DataFrameSchema

FAILURES = pl.Schema(
    {
        "rule": pl.String,
        "episode_id": pl.String,
        "step": pl.Int32,
        "locator": pl.String,
        "reason": pl.String,
        "detail": pl.String,
    }
)
"""The columns of what `validate` finds: the rule, where, what it demands and what was found."""

TOLERANCE = 1e-6
"""How far a return may be from its recursion, relative to its size where that is above 1."""

_TYPES: dict[str, pl.DataType] = {
    "VARCHAR": pl.String(),
    "INTEGER": pl.Int32(),
    "BIGINT": pl.Int64(),
    "DOUBLE": pl.Float64(),
    "BOOLEAN": pl.Boolean(),
    "BOOLEAN[]": pl.List(pl.Boolean),
    "MAP(VARCHAR, DOUBLE)": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64})),
}
_LINEAGE = ("parent_id", "augmenter", "augment_seed")
_ONCE_PER_EPISODE = frozenset({"steps_contiguous", "split_constant", "return_partial"})


def validate(
    transitions: pl.DataFrame, gamma: float, action_size: int, invalid: int | None = None
) -> pl.DataFrame:
    """Every failure of every rule, none for a valid frame; columns as in FAILURES.

    `transitions` has the columns of the table without `dataset`, in any order of rows. `action_size` is the size of
    the vocabulary and `invalid` its id for actions outside the mask (None: rules on that id are not checked).
    """
    frame, broken = _cells(transitions, action_size)
    if broken:
        return frame
    rows = _with_context(transitions)
    rules = [*_ends(), *_returns(gamma), *_actions(action_size, invalid), *_lineage()]
    found = [frame, *(_failures(rows, rule) for rule in rules), _orphans(rows)]
    return pl.concat(found).sort("episode_id", "step", "rule", "detail")


# cells: pandera


def _cells(transitions: pl.DataFrame, action_size: int) -> tuple[pl.DataFrame, bool]:
    """Failures of single cells, and whether columns or types are broken."""
    from pandera.errors import SchemaErrors

    try:
        _schema(action_size).validate(transitions, lazy=True)
    except SchemaErrors as error:
        cases = error.failure_cases
    else:
        return FAILURES.to_frame(), False
    check, case = pl.col("check"), pl.col("failure_case").cast(pl.String)
    named = cases.select(
        "column",
        pl.col("index").cast(pl.Int64),
        case=case.str.head(200),
        rule=pl.when(check.str.starts_with("dtype"))
        .then(pl.lit("type"))
        .otherwise(check.replace({"not_nullable": "null", "column_in_dataframe": "column"})),
    )
    # pandera counts NaN as null too; here it is a number that is not finite
    named = named.filter(~((pl.col("rule") == "null") & (pl.col("case") == "NaN").fill_null(False)))
    shape = pl.col("rule").is_in(["column", "type"])
    broken = not named.filter(shape).is_empty()
    if broken:
        named = named.filter(shape).with_columns(index=pl.lit(None, dtype=pl.Int64))
    places = pl.DataFrame(schema=dict.fromkeys(("episode_id", "step", "locator")))
    places = _places(transitions) if not broken else places.cast({"episode_id": pl.String, "step": pl.Int32, "locator": pl.String}).with_columns(index=pl.lit(None, dtype=pl.Int64))
    detail = pl.concat_str(pl.col("column").fill_null("column"), pl.lit(" "), pl.col("case").fill_null("null"))
    return named.join(places, on="index", how="left").select(*_columns(detail)), broken
