"""Checks every transition against every rule of schemas/transition.py and names each row that breaks one.

Types, nulls, ranges and words are pandera's; what ties rows together is polars'. All failures come in one go, except
that a frame without the table's columns and types cannot be checked any further. What ties the arrays of a split to
its rows is in arrays.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from logforge.core import POLARS_TYPES
from logforge.schemas import ALLOWED, NULLABLE, RULES, TRANSITIONS, UsageError

if TYPE_CHECKING:
    from pandera.polars import DataFrameSchema

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

_LINEAGE = ("parent_id", "augmenter", "augment_seed")
_MAPS = ("reward_terms", "weight_parts", "argument_numbers")


@dataclass(frozen=True)
class Allowance:
    """How many episodes with broken rows a build may set aside: `limit` of them, or that share of all."""

    limit: float = 0.0
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """From a number (`3`) or a share (`2%`, `0.02`). Raises UsageError for anything else."""
        given = text.strip()
        percent, whole = given.endswith("%"), given.isdecimal()
        try:
            number = float(given.removesuffix("%")) / (100 if percent else 1)
        except ValueError:
            number = -1.0
        if not (whole or 0 <= number <= 1):
            raise UsageError(f"{text!r} is neither a number of episodes nor a share", "give 3, 2% or 0.02")
        return cls(number, not whole)

    def allows(self, broken: int, total: int) -> bool:
        """Whether so many broken episodes of so many in all may be set aside."""
        return broken <= self.limit * (total if self.is_share else 1)


def validate(
    transitions: pl.DataFrame,
    gamma: float,
    action_size: int,
    invalid: int | None = None,
    other: int | None = None,
) -> pl.DataFrame:
    """Every failure of every rule, none for a valid frame; columns as in FAILURES.

    `transitions` has the columns of the table without `dataset`, as built or as read from the store, in any order of
    rows. `action_size` is the size of the vocabulary and `invalid` its id for actions outside the mask (None: the
    rules on that id are not checked), `other` that of rare tools, which is taken though no mask allows it.
    """
    # as DuckDB hands them out
    maps = [name for name in _MAPS if isinstance(transitions.schema.get(name), pl.Map)]
    transitions = transitions.cast(dict.fromkeys(maps, POLARS_TYPES["MAP(VARCHAR, DOUBLE)"]))
    cells = _cells(transitions, action_size)
    if cells.filter(pl.col("rule").is_in(["column", "type"])).height:
        return cells
    rows = _with_context(transitions)
    rules = [*_episodes(), *_returns(gamma), *_weights(), *_actions(action_size, invalid, other), *_lineage()]
    found = [cells, *(_failures(rows, rule) for rule in rules)]
    return pl.concat(found).sort("episode_id", "step", "rule", "detail")


# cells: pandera


def _cells(transitions: pl.DataFrame, action_size: int) -> pl.DataFrame:
    """Failures of single cells; only those of columns and types, if there are any."""
    from pandera.errors import SchemaErrors

    try:
        _schema(action_size).validate(transitions, lazy=True)
    except SchemaErrors as error:
        return _cases(transitions, error.failure_cases)
    return FAILURES.to_frame()


def _cases(transitions: pl.DataFrame, cases: pl.DataFrame) -> pl.DataFrame:
    names = {"not_nullable": "null", "column_in_dataframe": "column"}
    check = pl.col("check").str.replace(r"^dtype\(.*", "type").replace(names)
    case = pl.col("failure_case").cast(pl.String).str.head(200)
    found = cases.select("column", rule=check, case=case, row=pl.col("index").cast(pl.Int64))
    shape = found.filter(pl.col("rule").is_in(["column", "type"]))
    if shape.height:
        nowhere = (
            pl.lit(None, dtype=FAILURES[name]).alias(name) for name in ("episode_id", "step", "locator")
        )
        return shape.select(reported(_CASE, *nowhere))
    # pandera counts NaN as null too; here it is a number, and not finite
    found = found.filter((pl.col("rule") != "null") | pl.col("case").is_null() | (pl.col("case") != "NaN"))
    places = transitions.select("episode_id", "step", "locator", row=pl.int_range(pl.len(), dtype=pl.Int64))
    return found.join(places, on="row").select(reported(_CASE, "episode_id", "step", "locator"))


_CASE = pl.concat_str(pl.col("column").fill_null("column"), pl.lit(" is "), pl.col("case").fill_null("null"))


def reported(detail: pl.Expr, *place: str | pl.Expr) -> list[str | pl.Expr]:
    """The columns of FAILURES from rows with a rule: `place` is episode_id, step and locator."""
    reason = pl.col("rule").replace_strict(RULES, return_dtype=pl.String).alias("reason")
    return ["rule", *place, reason, detail.alias("detail")]


@functools.cache
def _schema(action_size: int) -> DataFrameSchema:
    from pandera.polars import Check, Column, DataFrameSchema

    def check(rule: str, holds: Callable[[pl.Expr], pl.Expr]) -> Check:
        return Check(lambda data: data.lazyframe.select(holds(pl.col(data.key))), name=rule)

    def finite(term: pl.Expr) -> pl.Expr:
        return term.list.eval(pl.element().struct.field("value").is_finite().fill_null(False)).list.all()

    checks = {
        "step": [check("range", lambda step: step >= 0)],
        "action_id": [check("range", lambda action: action.is_between(0, action_size - 1))],
        **{name: [check("finite", finite)] for name in _MAPS},
        "weight": [check("range", lambda weight: weight >= 0)],
    }
    for name in ("reward", "return_to_go", "weight", "propensity"):
        checks.setdefault(name, []).append(check("finite", lambda number: number.is_finite()))
    for name, words in ALLOWED.items():
        checks[name] = [check("word", functools.partial(pl.Expr.is_in, other=words))]
    columns = {
        column.name: Column(
            POLARS_TYPES[column.type], checks.get(column.name), nullable=column.name in NULLABLE
        )
        for column in TRANSITIONS.columns
        if column.name != "dataset"
    }
    return DataFrameSchema(columns)


# rows together: polars


class _Rule(NamedTuple):
    """A rule of RULES as the rows that break it. `once`: only the first such row of an episode is worth a failure."""

    name: str
    broken: pl.Expr
    detail: pl.Expr
    once: bool = False


def _failures(rows: pl.DataFrame, rule: _Rule) -> pl.DataFrame:
    found = rows.filter(rule.broken.fill_null(False)).with_columns(rule=pl.lit(rule.name))
    if rule.once:
        found = found.unique("episode_id", keep="first", maintain_order=True)
    return found.select(reported(rule.detail, "episode_id", "step", "locator"))


def _with_context(transitions: pl.DataFrame) -> pl.DataFrame:
    """The rows in order, each with what it needs of its episode and of its parent."""
    rows = transitions.sort("episode_id", "step")
    own = pl.concat_str("episode_id", pl.lit("/"), "step")
    known = rows.select("split", parent_id=own, parent_known=pl.lit(True)).unique()
    return rows.with_columns(
        index=pl.int_range(pl.len(), dtype=pl.Int32).over("episode_id"),
        last=pl.int_range(pl.len()).over("episode_id") == pl.len().over("episode_id") - 1,
        next_return=pl.col("return_to_go").shift(-1).over("episode_id"),
        truncated=pl.col("timeout").any().over("episode_id"),
        first_split=pl.col("split").first().over("episode_id"),
        summed=in_order_of_names(rows, "reward_terms", 0.0, pl.Expr.add),
        product=in_order_of_names(rows, "weight_parts", 1.0, pl.Expr.mul),
    ).join(known, on=["parent_id", "split"], how="left", maintain_order="left")


def in_order_of_names(
    rows: pl.DataFrame, column: str, start: float, fold: Callable[[pl.Expr, pl.Expr], pl.Expr]
) -> pl.Series:
    """The values of a map taken together one by one in the order of their names: another order could round differently.

    `start` is what no value gives, and what `fold` leaves as it is; a null map gives null.
    """
    values = rows.select(
        pl.col(column)
        .list.eval(pl.element().sort_by(pl.element().struct.field("key")).struct.field("value"))
        .alias("terms")
    )
    total = pl.lit(start)
    for place in range(values.select(pl.col("terms").list.len().max()).item() or 0):
        total = fold(total, pl.col("terms").list.get(place, null_on_oob=True).fill_null(start))
    return values.select(total=pl.when(pl.col("terms").is_not_null()).then(total))["total"]


def _episodes() -> Iterator[_Rule]:
    step, ends = pl.col("step"), pl.col("terminal") | pl.col("timeout")
    yield _Rule(
        "steps_contiguous", step != pl.col("index"), pl.format("its row {} is step {}", "index", step), True
    )
    yield _Rule("one_end", ends & ~pl.col("last"), pl.lit("it ends before the last step"))
    yield _Rule("one_end", pl.col("last") & ~ends, pl.lit("the last step is no end"))
    yield _Rule("terminal_xor_timeout", pl.col("terminal") & pl.col("timeout"), pl.lit("both are true"))
    split, first = pl.col("split"), pl.col("first_split")
    yield _Rule("split_constant", split != first, pl.format("{} after {}", split, first), True)


def _returns(gamma: float) -> Iterator[_Rule]:
    reward, value, summed = pl.col("reward"), pl.col("return_to_go"), pl.col("summed")
    expected = reward + gamma * pl.when("last").then(0.0).otherwise("next_return")
    scale = pl.max_horizontal(pl.lit(1.0), value.abs(), expected.abs(), reward.abs())
    finite = value.is_finite() & expected.is_finite()
    wrong = finite & ((value - expected).abs() > TOLERANCE * scale)
    yield _Rule("return_recursion", wrong, pl.format("{} where {} is due", value, expected))
    wrong = reward.is_finite() & summed.is_finite() & (reward != summed)
    yield _Rule("reward_sum", wrong, pl.format("reward {}, sum of terms {}", reward, summed))
    partial, truncated = pl.col("return_is_partial"), pl.col("truncated")
    detail = pl.format("partial {}, episode truncated {}", partial, truncated)
    yield _Rule("return_partial", partial != truncated, detail, True)


def _weights() -> Iterator[_Rule]:
    weight, product = pl.col("weight"), pl.col("product")
    wrong = weight.is_finite() & product.is_finite() & (weight != product)
    yield _Rule("weight_parts", wrong, pl.format("weight {}, product of parts {}", weight, product))
    held = (pl.col("split") != "train") & (pl.col("weight_parts").list.len() > 0)
    yield _Rule("weight_parts", held, pl.format("parts in {}", "split"))


def _actions(action_size: int, invalid: int | None, other: int | None) -> Iterator[_Rule]:
    action, valid, mask = pl.col("action_id"), pl.col("action_valid"), pl.col("mask")
    known = mask.list.drop_nulls().list.len()
    yield _Rule(
        "action_in_mask", known != action_size, pl.format(f"mask of {{}} for {action_size} actions", known)
    )
    taken = mask.list.get(pl.when(action >= 0).then(action), null_on_oob=True)
    masked = valid & ~taken if other is None else valid & ~taken & (action != other)
    yield _Rule("action_in_mask", masked, pl.format("{} (id {}) is masked", "action", action))
    kind, chance = pl.col("propensity_kind"), pl.col("propensity")
    wrong = (chance.is_null() != (kind == "missing")) | (chance <= 0) | (chance > 1)
    given = chance.cast(pl.String).fill_null("null")
    yield _Rule("propensity", wrong, pl.format("{} of kind {}", given, kind))
    if invalid is not None:
        detail = pl.format(f"valid {{}}, id {{}}, invalid id {invalid}", valid, action)
        yield _Rule("invalid_action", valid == (action == invalid), detail)
        allowed = mask.list.get(invalid, null_on_oob=True)
        yield _Rule("action_in_mask", allowed, pl.lit("the mask allows the invalid id"))
    if other is not None:
        allowed = mask.list.get(other, null_on_oob=True)
        yield _Rule("action_in_mask", allowed, pl.lit("the mask allows the id of rare tools"))


def _lineage() -> Iterator[_Rule]:
    given = pl.sum_horizontal(pl.col(name).is_not_null() for name in _LINEAGE)
    split, parent, kind = pl.col("split"), pl.col("parent_id"), pl.col("source_kind")
    yield _Rule("augmented_in_train", (given > 0) & (split != "train"), pl.format("it lies in {}", split))
    names = pl.concat_list(pl.when(pl.col(name).is_null()).then(pl.lit(name)) for name in _LINEAGE)
    missing = names.list.drop_nulls().list.join(", ")
    yield _Rule("augmented_lineage", given.is_between(1, 2), pl.format("without {}", missing))
    made = (given == len(_LINEAGE)) & (kind != "synthetic")
    yield _Rule("augmented_lineage", made, pl.format("of kind {}", kind))
    orphan = parent.is_not_null() & pl.col("parent_known").is_null()
    yield _Rule("parent_known", orphan, pl.format("no row {} in {}", parent, split))
