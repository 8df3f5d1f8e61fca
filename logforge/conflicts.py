"""States in which the logs disagree with themselves, found by grouping and shown with both sides.

    outcome   the same action in the same state came out differently: noise, or a hidden cause
    contrast  different actions in the same state came out differently: the learning signal, never a flaw

Levels: `exact` (one state_key) and `canonical` (one state_key_canonical: equal but for numbers, ids, dates, names). A
canonical conflict is left out when an exact state below it already has one of that kind and pair of actions; its
detail says how many exact states it spans. Only logged rows with whole returns count: augmented rows and truncated
episodes say nothing of outcomes.

Side a is the better one: for an outcome its successes (where success does not differ, the returns nearer to the best),
for a contrast the action with the higher success rate, then mean return, then the first name. Its example is its
best row, that of side b its worst.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import polars as pl

from logforge.schemas.errors import UnknownName, UsageError
from logforge.schemas.tables import CONFLICTS

LEVELS: dict[str, str] = {"exact": "state_key", "canonical": "state_key_canonical"}
"""The levels, each with the column that holds its key."""
KINDS: tuple[str, ...] = ("outcome", "contrast")
"""The kinds of conflicts."""

_COLUMNS = [column.name for column in CONFLICTS.columns if column.name != "dataset"]
_GROUP = ["key", "action"]


def find_conflicts(transitions: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    """The conflicts among a dataset's transitions, one row per kind, level, state and pair of actions.

    Returns differ when they are more than `epsilon` apart. The frame has the columns of the table `conflicts`.
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon {epsilon} is no distance", "give a number that is not negative")
    rows = _comparable(transitions)
    exact = _conflicts(rows.with_columns(key="exact"), epsilon, "exact")
    canonical = _conflicts(rows.with_columns(key="canonical"), epsilon, "canonical")
    found = pl.concat([exact, _without(canonical, exact, rows)])
    return found.sort("kind", "level", "state_key", "action_a", "action_b")


def _comparable(transitions: pl.DataFrame) -> pl.DataFrame:
    """Logged rows with whole returns; `merit` ranks success over unknown over failure."""
    whole = (
        pl.col("parent_id").is_null() & ~pl.col("return_is_partial") & pl.col("return_to_go").is_not_null()
    )
    keys = {level: pl.col(column) for level, column in LEVELS.items()}
    merit = pl.when("success").then(1).when(~pl.col("success")).then(-1).otherwise(0).cast(pl.Int8)
    columns = ("episode_id", "step", "action", "success")
    return transitions.filter(whole).select(*columns, value="return_to_go", merit=merit, **keys)


def _conflicts(rows: pl.DataFrame, epsilon: float, level: str) -> pl.DataFrame:
    value = pl.col("value")
    groups = rows.group_by(_GROUP).agg(
        low=value.min(),
        high=value.max(),
        mean=value.mean(),
        rate=pl.col("success").mean(),
    )
    found = pl.concat([_outcomes(rows, groups, epsilon), _contrasts(rows, groups, epsilon)])
    detail = _detail()
    if level != "exact":
        spans = (
            rows.join(found.select("key"), on="key", how="semi")
            .group_by("key")
            .agg(pl.col("exact").n_unique())
        )
        found = found.join(spans, on="key")
        detail = pl.concat_str(detail, pl.format("; spans {} exact states", "exact"))
    found = found.with_columns(state_key="key", level=pl.lit(level), detail=detail)
    return found.select(_COLUMNS)


def _outcomes(rows: pl.DataFrame, groups: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    both = pl.col("rate").is_between(0, 1, closed="none")
    mixed = groups.filter(both.fill_null(False) | (pl.col("high") - pl.col("low") > epsilon))
    near_best = pl.col("high") - pl.col("value") < pl.col("value") - pl.col("low")
    better = pl.when(both).then("success").otherwise(near_best).alias("better")
    # a row of unknown success belongs to neither side where success is what differs
    sided = rows.join(mixed, on=_GROUP).with_columns(better).drop_nulls("better")
    a = _side(sided.filter("better"), "a")
    b = _side(sided.filter(~pl.col("better")), "b")
    pairs = a.join(b, left_on=["key", "action_a"], right_on=["key", "action_b"])
    return pairs.with_columns(action_b="action_a", kind=pl.lit("outcome")).select(_PAIRED)


def _contrasts(rows: pl.DataFrame, groups: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    rivals = groups.filter(pl.len().over("key") > 1).select(*_GROUP, "mean", "rate")
    success = pl.col("rate") != pl.col("rate_b")
    gap = pl.col("mean") - pl.col("mean_b")
    better = (
        pl.when(success)
        .then(pl.col("rate") > pl.col("rate_b"))
        .otherwise((gap > 0) | ((gap == 0) & (pl.col("action") < pl.col("action_b"))))
    )
    # of the two orders of a pair, `better` lets exactly one through
    pairs = (
        rivals.join(rivals, on="key", suffix="_b")
        .filter(
            pl.col("action") != pl.col("action_b"), better, success.fill_null(False) | (gap.abs() > epsilon)
        )
        .select("key", "action_b", action_a="action")
    )
    a = _side(rows.join(pairs, left_on=_GROUP, right_on=["key", "action_a"], how="semi"), "a")
    b = _side(rows.join(pairs, left_on=_GROUP, right_on=["key", "action_b"], how="semi"), "b")
    pairs = pairs.join(a, on=["key", "action_a"]).join(b, on=["key", "action_b"])
    return pairs.with_columns(kind=pl.lit("contrast")).select(_PAIRED)


_SIDE = ("action", "count", "known", "succeeded", "mean_return", "episode", "step")
_PAIRED = ["kind", "key", *(f"{name}_{side}" for side in "ab" for name in _SIDE)]


def _side(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    """One row per group with its size, outcome and example: the best row of side a, the worst of side b."""
    best = side == "a"
    order = rows.sort("merit", "value", "episode_id", "step", descending=[best, best, False, False])
    example = order.unique(_GROUP, keep="first").select(*_GROUP, "step", episode="episode_id")
    sizes = rows.group_by(_GROUP).agg(
        count=pl.len().cast(pl.UInt64),
        known=pl.col("success").count(),
        succeeded=pl.col("success").sum(),
        mean_return=pl.col("value").mean(),
    )
    both = sizes.join(example, on=_GROUP)
    return both.select("key", *(pl.col(name).alias(f"{name}_{side}") for name in _SIDE))


def _detail() -> pl.Expr:
    known = (pl.col("known_a") > 0) & (pl.col("known_b") > 0)
    success = pl.format(
        "success {} of {} against {} of {}; ", "succeeded_a", "known_a", "succeeded_b", "known_b"
    )
    means = (pl.col(f"mean_return_{side}").round(6) for side in "ab")
    return pl.concat_str(
        pl.when(known).then(success).otherwise(pl.lit("")), pl.format("mean return {} against {}", *means)
    )


def _without(canonical: pl.DataFrame, exact: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The canonical conflicts that no exact conflict of the same kind and actions shows already."""
    above = rows.select(state_key="exact", above="canonical").unique()
    pair = (pl.min_horizontal("action_a", "action_b"), pl.max_horizontal("action_a", "action_b"))
    named = {"first": pair[0], "second": pair[1]}
    seen = exact.join(above, on="state_key").select("kind", state_key="above", **named)
    keys = ["kind", "state_key", *named]
    return canonical.with_columns(**named).join(seen, on=keys, how="anti").select(_COLUMNS)


class Said(NamedTuple):
    """A message before a decision, cut to what a reader can take in."""

    role: str
    text: str


@dataclass(frozen=True)
class Side:
    """One side of a conflict: how many rows and their mean return, and its example with what the agent had seen."""

    count: int
    mean_return: float
    action: str
    arguments: str
    return_to_go: float
    success: bool | None
    said: tuple[Said, ...]
    episode_id: str
    step: int
    locator: str


@dataclass(frozen=True)
class ConflictView:
    """A conflict with an example on each side; `a` is the better one."""

    kind: str
    level: str
    state_key: str
    detail: str
    a: Side
    b: Side


def sides(
    con: duckdb.DuckDBPyConnection,
    dataset: str,
    kind: str | None = None,
    level: str | None = None,
    limit: int = 20,
) -> list[ConflictView]:
    """The conflicts of a dataset in a store with both sides: exact ones first, then by difference of mean returns."""
    for what, name, valid in (("kind", kind, KINDS), ("level", level, tuple(LEVELS))):
        if name is not None and name not in valid:
            raise UnknownName(f"conflict {what}", name, valid)
    rows = con.execute(_SIDES, {"dataset": dataset, "kind": kind, "level": level, "most": limit}).fetchall()
    return [_view(list(row)) for row in rows]


def _view(row: list[Any]) -> ConflictView:
    kind, level, state_key, detail, *both = row
    half = len(both) // 2
    return ConflictView(kind, level, state_key, detail, _read(both[:half]), _read(both[half:]))


_TEXT = 400


def _read(values: list[Any]) -> Side:
    count, mean, action, arguments, value, success, said, episode_id, step, locator = values
    texts = tuple(Said(item["role"], _cut(item["text"])) for item in said or ())
    return Side(count, mean, action, arguments, value, success, texts, episode_id, step, locator)


def _cut(text: str | None) -> str:
    return "(no text)" if not text else text if len(text) <= _TEXT else text[:_TEXT] + "…"


_HALF = """c.count_{0}, c.mean_return_{0}, c.action_{0}, {0}.arguments, {0}.return_to_go, {0}.success, {0}.said,
       c.episode_{0}, c.step_{0}, {0}.locator"""

_SIDES = f"""
WITH chosen AS (
    SELECT * FROM conflicts
    WHERE dataset = $dataset AND kind = coalesce($kind, kind) AND level = coalesce($level, level)
    ORDER BY level <> 'exact', abs(mean_return_a - mean_return_b) DESC, kind, level, state_key, action_a, action_b
    LIMIT $most
), ends AS (
    SELECT episode_a AS episode_id, step_a AS step FROM chosen UNION SELECT episode_b, step_b FROM chosen
), decisions AS (
    SELECT e.*, s.arguments, s.position, t.return_to_go, t.success, t.locator FROM ends e
    JOIN steps s USING (episode_id, step)
    JOIN transitions t ON t.dataset = $dataset AND t.episode_id = e.episode_id AND t.step = e.step
), before AS (
    SELECT d.episode_id, d.step, list({{'role': m.role, 'text': left(m.content, {_TEXT + 1})}} ORDER BY m.position) AS said
    FROM decisions d JOIN messages m ON m.episode_id = d.episode_id AND m.position BETWEEN d.position - 2 AND d.position - 1
    GROUP BY ALL
), example AS (SELECT * FROM decisions LEFT JOIN before USING (episode_id, step))
SELECT c.kind, c.level, c.state_key, c.detail, {_HALF.format("a")}, {_HALF.format("b")}
FROM chosen c
JOIN example a ON a.episode_id = c.episode_a AND a.step = c.step_a
JOIN example b ON b.episode_id = c.episode_b AND b.step = c.step_b
ORDER BY c.level <> 'exact', abs(mean_return_a - mean_return_b) DESC, c.kind, c.level, c.state_key, action_a, action_b
"""


WIDTH = 100
"""The columns that `render` keeps to."""
_LABEL = 11
_LINES = 4


def render(view: ConflictView) -> str:
    """A conflict for the terminal, at most WIDTH columns wide: what disagrees, then both sides under each other."""
    head = f"{view.kind} ({view.level}) in state {view.state_key}: {view.detail}"
    blocks = (_block(name, side) for name, side in (("a", view.a), ("b", view.b)))
    return "\n".join([*_wrap(head, WIDTH), *(line for block in blocks for line in block)])


def _block(name: str, side: Side) -> Iterator[str]:
    outcome = {True: "success", False: "failure", None: "unknown"}[side.success]
    rows = "1 row" if side.count == 1 else f"{side.count} rows"
    fields = (
        ("action", side.action),
        ("arguments", side.arguments),
        (
            "outcome",
            f"{outcome}, return {side.return_to_go:.4g} ({rows}, mean return {side.mean_return:.4g})",
        ),
        *side.said,
        ("decided", f"{side.locator} (episode {side.episode_id}, step {side.step})"),
    )
    for index, (label, text) in enumerate(fields):
        lead = f"  {name if index == 0 else ' '}  {_plain(label)[: _LABEL - 1]:{_LABEL}}"
        lines = _wrap(text, WIDTH - len(lead))
        if label not in ("outcome", "decided") and len(lines) > _LINES:
            lines = [*lines[: _LINES - 1], _wrap(lines[_LINES - 1], WIDTH - len(lead) - 1)[0] + "…"]
        for line in lines:
            yield (lead + line).rstrip()
            lead = " " * len(lead)


def _plain(text: str) -> str:
    """On one line, and without what could steer a terminal: log text is data."""
    text = " ".join(text.split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") else c for c in text)


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at spaces where there are some; wide characters count twice."""
    lines = [""]
    used = 0
    for word in _plain(text).split(" "):
        for piece in _pieces(word, width):
            size = _columns(piece)
            if used and used + 1 + size > width:
                lines.append("")
                used = 0
            lines[-1] += (" " if used else "") + piece
            used += (1 if used else 0) + size
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    start = used = 0
    for index, char in enumerate(word):
        size = _columns(char)
        if used + size > width:
            yield word[start:index]
            start, used = index, 0
        used += size
    yield word[start:]


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
