"""What a build says of its splits: the proof that nothing leaks, the balance, what moved since the earlier build, and how much
a random split by episode would have leaked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from logforge.core import BaseReport, Lines, plural, rest, table
from logforge.schemas import HELD_OUT, SPLIT_NAMES, CheckFailed, Problem
from logforge.splits.assign import PROOF, assign_splits, crossing
from logforge.store import Store

RANDOM_TRAIN = 0.8
"""The share of episodes that the random split, which ours is compared with, would train on."""
_MOVES_SHOWN = 8


class TaskLeak(NamedTuple):
    """The shares of tasks of the test episodes that train has episodes of, too: under a random 80/20 split by episode (as
    expected over all such splits), and under ours. None without a task that is tested."""

    tasks: int
    random: float | None
    ours: float | None


@dataclass(frozen=True)
class SplitReport(BaseReport):
    """What the functions below find. `near_joins` counts by how many groups fewer there are for near-duplicates; `crossing`
    counts the keys in two splits by the query `proof`: none, for a build with any is refused. `held_out` counts the episodes that
    met a condition of --hold-out, `held_out_with_groups` those of their groups."""

    by: str
    groups: int
    near_pairs: int
    near_joins: int
    crossing: int
    proof: str
    leak: TaskLeak
    balance: list[dict[str, Any]]
    moved: list[dict[str, Any]]
    held_out: int = 0
    held_out_with_groups: int = 0

    def lines(self) -> Lines:
        """The splits, the proof, and what moved between them."""
        yield table(BALANCE, [list(row.values()) for row in self.balance])
        yield f"\nsplit proof: {plural(self.crossing, 'key')} in two splits ({self.groups:,} groups)"
        joined = f"; they join {self.near_joins:,} groups to others" if self.near_joins else ""
        yield f"near-duplicates: {plural(self.near_pairs, 'pair')}{joined}"
        if self.leak.random is not None and self.leak.ours is not None:
            yield (
                f"test tasks that are in train too: {self.leak.ours:.0%} of {self.leak.tasks:,} "
                f"(a random split by episode: {self.leak.random:.0%})"
            )
        if self.held_out:
            along = self.held_out_with_groups - self.held_out
            yield f"held out: {plural(self.held_out, 'episode')}, and {along:,} more that share a group with one"
        if self.moved:
            episodes = sum(row["episodes"] for row in self.moved)
            yield f"\n{plural(episodes, 'episode')} changed group or split since the earlier build"
            yield table(MOVES, [list(row.values()) for row in self.moved[:_MOVES_SHOWN]])
            yield rest(self.moved, _MOVES_SHOWN)


BALANCE = ("split", "source_kind", "episodes", "transitions", "success", "failure", "unknown")
"""The columns of `balance`."""
MOVES = ("group_before", "group_after", "split_before", "split_after", "episodes", "cause")
"""The columns of `moves`."""


def prove(episodes: pl.DataFrame, splits: pl.DataFrame, near: pl.DataFrame) -> None:
    """Raise CheckFailed naming every key, pair and episode that lies in two splits or in none."""
    found = crossing(episodes, splits, near)
    if len(found):
        problems = [
            Problem(f"{row['link']} {row['key']} lies in {', '.join(row['splits'] or ['no split'])}")
            for row in found.to_dicts()
        ]
        raise CheckFailed(
            f"the splits leak: {plural(len(found), 'key')} in two splits or in none",
            problems,
            "report it with these lines: logforge must never do that",
        )


class Earlier(NamedTuple):
    """The splits of a dataset's earlier build (none: no rows), and whether a new one has its settings."""

    splits: pl.DataFrame
    same_settings: bool


def earlier_splits(store: Store, name: str, config: Mapping[str, Any]) -> Earlier:
    """Those of the dataset of that name; `config` is the new build's, as plain values."""
    splits = store.con.sql(
        "SELECT episode_id, group_key, split FROM splits WHERE dataset = ?", params=[name]
    ).pl()
    found = store.con.sql("SELECT config FROM datasets WHERE dataset = ?", params=[name]).fetchall()
    mine = json.loads(json.dumps(config))  # tuples become lists
    before = json.loads(found[0][0]) if found else mine
    same = all(before.get(key) == mine[key] for key in ("seed", "fractions", "split_by", "hold_out"))
    return Earlier(splits, same)


def split_report(
    episodes: pl.DataFrame,
    splits: pl.DataFrame,
    near: pl.DataFrame,
    transitions: pl.DataFrame,
    by: str,
    earlier: Earlier,
    held_out: Collection[str] = (),
) -> SplitReport:
    """The report of splits that hold (see `prove`). `held_out` are the episodes that met a condition of --hold-out."""
    groups, without_near = (
        frame["group_key"].n_unique() for frame in (splits, assign_splits(episodes, seed=0))
    )
    return SplitReport(
        by=by,
        groups=groups,
        near_pairs=near.height,
        near_joins=without_near - groups,
        crossing=0,
        proof=PROOF.strip(),
        leak=task_leak(episodes, splits),
        balance=balance(transitions).to_dicts(),
        moved=moves(earlier.splits, splits, earlier.same_settings).to_dicts(),
        held_out=splits.filter(pl.col("episode_id").is_in(list(held_out))).height,
        held_out_with_groups=splits.filter(pl.col("split") == HELD_OUT).height,
    )


def balance(transitions: pl.DataFrame) -> pl.DataFrame:
    """Episodes and outcomes of each split and source kind, in the order of the splits; columns BALANCE."""
    episodes = transitions.group_by("episode_id").agg(
        pl.col("split", "source_kind", "success").first(), transitions=pl.len()
    )
    success = pl.col("success")
    return (
        episodes.group_by(pl.col("split").cast(pl.Enum(SPLIT_NAMES)), "source_kind")
        .agg(
            episodes=pl.len(),
            transitions=pl.col("transitions").sum(),
            success=success.sum(),
            failure=(~success).sum(),
            unknown=success.null_count(),
        )
        .sort("split", "source_kind")
        .cast({"split": pl.String})
        .select(BALANCE)
    )


def task_leak(episodes: pl.DataFrame, splits: pl.DataFrame) -> TaskLeak:
    """How many tested tasks are trained on. A task is a task id of a format, or without one the task's text.

    Of n episodes of a task, a random split tests some with chance 1 - q^n, and trains on some besides with chance
    1 - q^n - p^n, for q = RANDOM_TRAIN and p = 1 - q: the first share is the ratio of their sums over all tasks.
    """
    given = pl.when(pl.col("task_id") != "").then(pl.col("format") + "/" + pl.col("task_id"))
    tasks = (
        episodes.select("episode_id", task=pl.coalesce(given, pl.when(pl.col("task") != "").then("task")))
        .drop_nulls("task")
        .join(splits, on="episode_id")
        .group_by("task")
        .agg(n=pl.len(), train=(pl.col("split") == "train").any(), test=(pl.col("split") == "test").any())
    )
    if tasks.is_empty():
        return TaskLeak(0, None, None)
    tested, both = 1 - RANDOM_TRAIN ** pl.col("n"), (1 - RANDOM_TRAIN) ** pl.col("n")
    ((chance, shared),) = tasks.select(tested.sum(), (tested - both).sum().alias("both")).rows()
    test = tasks.filter("test")
    ours = float(test["train"].to_numpy().mean()) if test.height else None
    return TaskLeak(test.height, shared / chance, ours)


def moves(before: pl.DataFrame, after: pl.DataFrame, same_settings: bool = True) -> pl.DataFrame:
    """The episodes of both builds whose group or split changed, counted by what changed and why; columns MOVES.

    `same_settings` says that seed, fractions and the way to split are those of the earlier build.
    """
    both = before.select("episode_id", group_before="group_key", split_before="split").join(
        after.select("episode_id", "reason", group_after="group_key", split_after="split"), on="episode_id"
    )
    merged = pl.col("group_before").n_unique().over("group_after") > 1
    apart = pl.col("group_after").n_unique().over("group_before") > 1
    renamed = pl.col("group_before") != pl.col("group_after")
    cause = (
        pl.when(renamed & merged)
        .then(pl.lit("groups merged by ") + pl.col("reason"))
        .when(renamed & apart)
        .then(pl.lit("what joined the group is gone"))
        .when(renamed)
        .then(pl.lit("the group's smallest key changed"))
        .otherwise(pl.lit("the cuts in time moved" if same_settings else "other settings"))
    )
    changed = renamed | (pl.col("split_before") != pl.col("split_after"))
    return (
        both.with_columns(cause=cause)
        .filter(changed)
        .group_by("group_before", "group_after", "split_before", "split_after", "cause")
        .agg(episodes=pl.len())
        .select(MOVES)
        .sort(pl.all())
    )
