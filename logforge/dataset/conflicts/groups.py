"""States in which the logs disagree with themselves, found by grouping and told by kind.

    outcome        the same action in the same state came out differently: noise, or a hidden cause
    contrast       different actions in the same state came out differently: the learning signal, never a flaw
    label          equal trajectories bear contradicting labels: their success differs, or their logged score
    demonstration  in the state of a demonstration the agent did what no demonstrator did there

Outcomes differ when success differs, or returns (for labels: scores) are more than epsilon apart. A demonstration needs
no difference in outcome: it says what to do. Where demonstrator and agent did the same and it came out differently,
that is an `outcome`.

Levels: `exact` (one state_key), `canonical` (one state_key_canonical: equal but for numbers, ids, dates, names) and `near`
(near.py); trajectories have the first two. A conflict is left out when a finer level already shows one of its
kind and pair of actions within it; its detail says how many exact states (or trajectories) it spans. What differs only
among equal trajectories of contradicting labels is told once, as `label`, and not at each of their steps.

Side a is the better one: for an outcome its successes (where success does not differ, the returns nearer to the best),
for a contrast the action with the higher success rate, then mean return, then the first name, for a demonstration the
demonstrator's. Its example is its best row, that of side b its worst. A label's rows are whole episodes, shown by their
first step.
"""

from __future__ import annotations

import polars as pl

from logforge.dataset.conflicts.rows import LEVELS, TRAJECTORIES
from logforge.schemas import CONFLICTS, UsageError

KINDS: tuple[str, ...] = ("outcome", "contrast", "label", "demonstration")
"""The kinds of conflicts."""

_COLUMNS = [column.name for column in CONFLICTS.columns if column.name != "dataset"]
_GROUP = ["key", "action"]
_SIDE = ("action", "count", "known", "succeeded", "mean_return", "episode", "step")
_PAIRED = ["kind", "key", *(f"{name}_{side}" for side in "ab" for name in _SIDE)]


def find_conflicts(rows: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    """The conflicts among the rows of `comparable`: one row per kind, level, state and pair of actions.

    Returns (and scores) differ when they are more than `epsilon` apart. The frame has the columns of the table
    `conflicts`, and its order does not depend on that of `rows`.
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon {epsilon} is no distance", "give a number that is not negative")
    labels = {level: _labels(rows, epsilon, level) for level in TRAJECTORIES}
    found: list[pl.DataFrame] = []
    for level in LEVELS:
        at = _at(rows, level)
        told = _told(at, labels, level)
        outcomes = _outcomes(at, epsilon).join(told, left_on=["key", "action_a"], right_on=_GROUP, how="anti")
        pairs = [outcomes, contrasts(at, epsilon), _demonstrations(at)]
        found.append(_without(_described(pl.concat(pairs), at, level), found, rows, level))
    shown = [labels["exact"], _coarser_labels(labels, rows)]
    return pl.concat([*found, *shown]).sort("kind", "level", "state_key", "action_a", "action_b")


def _at(rows: pl.DataFrame, level: str) -> pl.DataFrame:
    """The rows under their key of one level; `measure` is what a difference is measured on."""
    return rows.drop_nulls(level).with_columns(key=pl.col(level), measure="value")


def episodes_at(rows: pl.DataFrame, level: str) -> pl.DataFrame:
    """The first rows of the episodes that share a trajectory at a level, `key`; `measure` is the logged score."""
    first = rows.filter(pl.col("step") == 0).drop_nulls(TRAJECTORIES[level])
    return first.with_columns(key=pl.col(TRAJECTORIES[level]), measure="score")


def sided(rows: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    """The rows of the groups (key, action) that disagree with themselves, each with its side: `better` or not.

    A row of unknown success belongs to neither side where success is what differs.
    """
    measure = pl.col("measure")
    groups = rows.group_by(_GROUP).agg(low=measure.min(), high=measure.max(), rate=pl.col("success").mean())
    mixed = pl.col("rate").is_between(0, 1, closed="none").fill_null(False)
    apart = groups.filter(mixed | (pl.col("high") - pl.col("low") > epsilon))
    near_best = pl.col("high") - measure < measure - pl.col("low")
    better = pl.when(mixed).then("success").otherwise(near_best).alias("better")
    return rows.join(apart, on=_GROUP).with_columns(better).drop_nulls("better")


def _outcomes(rows: pl.DataFrame, epsilon: float, kind: str = "outcome") -> pl.DataFrame:
    both = sided(rows, epsilon)
    a = _side(both.filter("better"), "a")
    b = _side(both.filter(~pl.col("better")), "b")
    pairs = a.join(b, left_on=["key", "action_a"], right_on=["key", "action_b"])
    return pairs.with_columns(action_b="action_a", kind=pl.lit(kind)).select(_PAIRED)


def contrasts(rows: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    """The pairs of actions with different outcomes under one key, the better first, each side with its size and example."""
    groups = rows.group_by(_GROUP).agg(mean=pl.col("value").mean(), rate=pl.col("success").mean())
    rivals = groups.filter(pl.len().over("key") > 1)
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
    return _paired(pairs, rows, rows, "contrast")


def _demonstrations(rows: pl.DataFrame) -> pl.DataFrame:
    shown = rows.filter("demonstrated")
    agents = rows.filter(~pl.col("demonstrated")).join(shown, on="key", how="semi")
    strayed = agents.join(shown, on=_GROUP, how="anti")
    pairs = (
        shown.select("key", action_a="action")
        .unique()
        .join(strayed.select("key", action_b="action").unique(), on="key")
    )
    return _paired(pairs, shown, strayed, "demonstration")


def _paired(pairs: pl.DataFrame, of_a: pl.DataFrame, of_b: pl.DataFrame, kind: str) -> pl.DataFrame:
    a = _side(of_a.join(pairs, left_on=_GROUP, right_on=["key", "action_a"], how="semi"), "a")
    b = _side(of_b.join(pairs, left_on=_GROUP, right_on=["key", "action_b"], how="semi"), "b")
    both = pairs.join(a, on=["key", "action_a"]).join(b, on=["key", "action_b"])
    return both.with_columns(kind=pl.lit(kind)).select(_PAIRED)


def _side(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    """One row per group with its size, outcome and example: the best row of side a, the worst of side b."""
    best = side == "a"
    order = rows.sort(
        "merit", "measure", "value", "episode_id", "step", descending=[best, best, best, False, False]
    )
    example = order.unique(_GROUP, keep="first", maintain_order=True)
    # sorted, so that the sum in a mean is always added up in one order
    sizes = order.group_by(_GROUP, maintain_order=True).agg(
        count=pl.len().cast(pl.UInt64),
        known=pl.col("success").count(),
        succeeded=pl.col("success").sum(),
        mean_return=pl.col("value").mean(),
    )
    both = sizes.join(example.select(*_GROUP, "step", episode="episode_id"), on=_GROUP)
    return both.select("key", *(pl.col(name).alias(f"{name}_{side}") for name in _SIDE))


def _labels(rows: pl.DataFrame, epsilon: float, level: str) -> pl.DataFrame:
    episodes = episodes_at(rows, level)
    pairs = _outcomes(episodes, epsilon, "label")
    sizes = rows.group_by(key=pl.col(TRAJECTORIES[level])).agg(
        steps=pl.len() // pl.col("episode_id").n_unique(),
        spans=pl.col(TRAJECTORIES["exact"]).fill_null(pl.col("episode_id")).n_unique(),
    )
    scores = sided(episodes, epsilon).group_by("key").agg(pl.col("low").first(), pl.col("high").first())
    pairs = pairs.join(sizes, on="key").join(scores, on="key")
    apart = (pl.col("high") - pl.col("low") > epsilon).fill_null(False)
    score = pl.format("score {} against {}; ", pl.col("high").round(6), pl.col("low").round(6))
    parts = [
        pl.format("the same {} decisions; ", "steps"),
        pl.when(apart).then(score).otherwise(pl.lit("")),
        _detail(),
    ]
    if level != "exact":
        parts.append(pl.format("; spans {} exact trajectories", "spans"))
    return pairs.with_columns(state_key="key", level=pl.lit(level), detail=pl.concat_str(parts)).select(
        _COLUMNS
    )


def _coarser_labels(labels: dict[str, pl.DataFrame], rows: pl.DataFrame) -> pl.DataFrame:
    """Canonical labels whose trajectory holds no exact one."""
    exact, canonical = TRAJECTORIES["exact"], TRAJECTORIES["canonical"]
    above = rows.join(labels["exact"], left_on=exact, right_on="state_key", how="semi")
    return labels["canonical"].join(
        above.drop_nulls(canonical), left_on="state_key", right_on=canonical, how="anti"
    )


def _told(rows: pl.DataFrame, labels: dict[str, pl.DataFrame], level: str) -> pl.DataFrame:
    """The groups all of whose rows belong to one trajectory that a label tells of."""
    finest = "exact" if level == "exact" else "canonical"
    trajectory = pl.col(TRAJECTORIES[finest])
    groups = rows.group_by(_GROUP).agg(
        trajectory.first().alias("trajectory"), trajectories=trajectory.n_unique()
    )
    one = groups.filter(pl.col("trajectories") == 1)
    return one.join(labels[finest], left_on="trajectory", right_on="state_key", how="semi").select(_GROUP)


def _described(found: pl.DataFrame, rows: pl.DataFrame, level: str) -> pl.DataFrame:
    detail = _detail()
    if level != "exact":
        within = rows.join(found.select("key"), on="key", how="semi")
        spans = within.group_by("key").agg(spans=pl.col("exact").n_unique())
        found = found.join(spans, on="key")
        detail = pl.concat_str(detail, pl.format("; spans {} exact states", "spans"))
    return found.with_columns(state_key="key", level=pl.lit(level), detail=detail).select(_COLUMNS)


def _detail() -> pl.Expr:
    known = (pl.col("known_a") > 0) & (pl.col("known_b") > 0)
    success = pl.format(
        "success {} of {} against {} of {}; ", "succeeded_a", "known_a", "succeeded_b", "known_b"
    )
    means = (pl.col(f"mean_return_{side}").round(6) for side in "ab")
    return pl.concat_str(
        pl.when(known).then(success).otherwise(pl.lit("")), pl.format("mean return {} against {}", *means)
    )


def _without(coarse: pl.DataFrame, finer: list[pl.DataFrame], rows: pl.DataFrame, level: str) -> pl.DataFrame:
    """The conflicts of a level within which no finer level shows one of the same kind and actions."""
    pair = {
        "first": pl.min_horizontal("action_a", "action_b"),
        "second": pl.max_horizontal("action_a", "action_b"),
    }
    keys = ["kind", "state_key", "first", "second"]
    coarse = coarse.with_columns(**pair)
    for fine, shown in zip(LEVELS, finer, strict=False):
        above = rows.drop_nulls(level).select(state_key=fine, above=level).unique()
        seen = shown.join(above, on="state_key").select("kind", state_key="above", **pair)
        coarse = coarse.join(seen, on=keys, how="anti")
    return coarse.select(_COLUMNS)
