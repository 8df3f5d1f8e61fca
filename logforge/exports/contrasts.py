"""Contrasts as preference pairs: in one state, the action that did better and the one that did worse, as lines of JSON.

Sides are compared by episodes, the independent trials: an episode that comes through a state twice counts once, with its
mean return from there. The 95 % interval of the difference of mean returns is Welch's (Biometrika 34, 1947) with
Satterthwaite's degrees of freedom. A side's variance is taken to be at least the mean variance within sides of the whole
split: two trials that happened to earn the same do not make a certainty. With one episode on a side there is no interval.

Pairs come from one split, so none leaks, and from the levels exact and canonical: near states have different texts, and no
prompt would be right for both. A canonical pair's prompt is the one that the chosen action answered.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from logforge.core import BaseReport, Lines, replaced_file
from logforge.dataset.conflicts import comparable, decisions_of, find_conflicts
from logforge.exports.job import check_build
from logforge.schemas import SPLIT_NAMES, UnknownName, UsageError
from logforge.shards import read_manifest
from logforge.store import Store

CONFIDENCE = 0.95
"""What share of such intervals hold the true difference."""

NO_CONTRAST = (
    "contrasts need two actions in one state; name another --split, or gather more trials of the same tasks"
)
"""The remedy where a split has none."""

_SIDE = ["level", "state_key", "action"]


@dataclass(frozen=True)
class PairsReport(BaseReport):
    """What was written, and how many contrasts were left out because their interval holds 0 or cannot be given."""

    dataset: str
    split: str
    out: str
    pairs: int
    uncertain: int

    def lines(self) -> Lines:
        """A line."""
        more = f"; {self.uncertain} uncertain ones left out" if self.uncertain else ""
        yield f"{self.split} of {self.dataset} → {self.out} ({self.pairs} preference pairs{more})"


def export_pairs(
    store: Store, folder: str | Path, out: str | Path, split: str = "train", uncertain: bool = False
) -> PairsReport:
    """Write the contrasts of one split of the dataset in `folder` to `out`, one JSON object a line, the widest gap first.

    Without `uncertain`, only those whose interval excludes 0. The store must hold the same build. Raises Mismatch when it
    holds another, UsageError when there is no pair to write.
    """
    if split not in SPLIT_NAMES:
        raise UnknownName("split", split, SPLIT_NAMES)
    manifest = read_manifest(folder)
    check_build(store, manifest, folder)
    found = pairs_of(store, manifest.dataset, split)
    chosen = found if uncertain else found.filter("certain")
    if not chosen.height:
        reason = f"{split} of {folder} has no preference pair" + (" that is certain" if found.height else "")
        told = f"--uncertain writes all {found.height}; more trials of the same tasks make them certain"
        raise UsageError(reason, told if found.height else NO_CONTRAST)
    with replaced_file(Path(out)) as fresh, fresh.open("w", encoding="utf-8", newline="\n") as stream:
        for row in _with_texts(store, chosen):
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    return PairsReport(str(folder), split, str(out), chosen.height, found.height - chosen.height)


def pairs_of(store: Store, name: str, split: str) -> pl.DataFrame:
    """The contrasts of a split with their intervals: a row per pair, the widest gap of mean returns first.

    Columns: level, state_key; action, episodes, mean and example (episode, step) of side a (the better) and b; gap, low and
    high (null without an interval) and certain.
    """
    settings, transitions = _split(store, name, split)
    rows = comparable(transitions, decisions_of(store.con))
    conflicts = find_conflicts(rows, settings["epsilon"]).filter(pl.col("kind") == "contrast")
    pairs = conflicts.select(
        "level",
        "state_key",
        *(f"{column}_{side}" for side in "ab" for column in ("action", "episode", "step")),
    )
    sides = _sides(rows, pairs)
    for side in "ab":
        own = sides.rename({c: f"{c}_{side}" for c in sides.columns if c not in ("level", "state_key")})
        pairs = pairs.join(own, on=["level", "state_key", f"action_{side}"])
    return _with_interval(pairs).sort(
        "gap", "level", "state_key", "action_a", "action_b", descending=[True, False, False, False, False]
    )


def _split(store: Store, name: str, split: str) -> tuple[dict[str, Any], pl.DataFrame]:
    ((config,),) = store.con.sql("SELECT config FROM datasets WHERE dataset = ?", params=[name]).fetchall()
    rows = store.con.sql(
        "SELECT * FROM transitions WHERE dataset = ? AND split = ? ORDER BY episode_id, step",
        params=[name, split],
    ).pl()
    return json.loads(config), rows


def _sides(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Each side once: how many episodes it has, their mean return and variance, and the share of successes."""
    ends = [pairs.select("level", "state_key", action=f"action_{side}") for side in "ab"]
    parts = []
    for (level,), keys in pl.concat(ends).unique().group_by("level"):
        keyed = rows.with_columns(state_key=pl.col(str(level)))
        parts.append(keyed.join(keys, on=["state_key", "action"]))
    if not parts:
        schema = {"level": pl.String, "state_key": pl.String, "action": pl.String, "episodes": pl.UInt32}
        return pl.DataFrame(
            schema={**schema, "mean": pl.Float64, "variance": pl.Float64, "success_rate": pl.Float64}
        )
    trials = (
        pl.concat(parts)
        .sort("episode_id", "step")
        .group_by(*_SIDE, "episode_id", maintain_order=True)
        .agg(pl.col("value").mean(), pl.col("success").first())
    )
    return trials.group_by(_SIDE, maintain_order=True).agg(
        episodes=pl.len(),
        mean=pl.col("value").mean(),
        variance=pl.col("value").var(),
        success_rate=pl.col("success").mean(),
    )


def _with_interval(pairs: pl.DataFrame) -> pl.DataFrame:
    """Low and high, where both sides have at least two episodes."""
    from scipy.stats import t

    sides = (
        pl.concat([_renamed(pairs, side) for side in "ab"]).unique(_SIDE).drop_nulls("variance").sort(_SIDE)
    )
    within = ((pl.col("episodes") - 1) * pl.col("variance")).sum() / (pl.col("episodes") - 1).sum()
    pooled = sides.select(within).item() if sides.height else 0.0
    error = {s: pl.max_horizontal(f"variance_{s}", pl.lit(pooled)) / pl.col(f"episodes_{s}") for s in "ab"}
    known = pl.col("variance_a").is_not_null() & pl.col("variance_b").is_not_null()
    table = pairs.select(
        gap=pl.col("mean_a") - pl.col("mean_b"),
        a=pl.when(known).then(error["a"]),
        b=pl.when(known).then(error["b"]),
        n_a="episodes_a",
        n_b="episodes_b",
    )
    halves = [_half_width(row["a"], row["b"], row["n_a"], row["n_b"], t.ppf) for row in table.to_dicts()]
    half, gap = pl.Series(halves, dtype=pl.Float64), table["gap"]
    return pairs.with_columns(gap=gap, low=gap - half, high=gap + half).with_columns(
        certain=((pl.col("low") > 0) | (pl.col("high") < 0)).fill_null(False)
    )


def _renamed(pairs: pl.DataFrame, side: str) -> pl.DataFrame:
    columns = {c: f"{c}_{side}" for c in ("action", "episodes", "variance")}
    return pairs.select("level", "state_key", **columns)


def _half_width(a: float | None, b: float | None, n_a: int, n_b: int, quantile: Any) -> float | None:
    """Half of Welch's interval; `a` and `b` are the squared standard errors of the two means."""
    if a is None or b is None:
        return None
    if a + b == 0:
        return 0.0
    share = a / (a + b)
    freedom = 1 / (share**2 / (n_a - 1) + (1 - share) ** 2 / (n_b - 1))
    return float(quantile(0.5 + CONFIDENCE / 2, freedom)) * math.sqrt(a + b)


def _with_texts(store: Store, pairs: pl.DataFrame) -> list[dict[str, Any]]:
    ends = [pairs.select(episode_id=f"episode_{side}", step=f"step_{side}") for side in "ab"]
    wanted = pl.concat(ends).unique().sort("episode_id", "step")
    texts = {
        (row["episode_id"], row["step"]): row
        for row in store.con.sql(_TEXTS, params=[wanted["episode_id"].to_list(), wanted["step"].to_list()])
        .pl()
        .to_dicts()
    }
    return [_line(row, texts) for row in pairs.to_dicts()]


_TEXTS = """
WITH wanted AS (SELECT unnest($1::VARCHAR[]) AS episode_id, unnest($2::INTEGER[]) AS step),
decisions AS (
    SELECT s.episode_id, s.step, s.arguments, s.locator,
        CASE WHEN s.kind <> 'tool' THEN own.content END AS answer,
        (SELECT min(g.position) FROM steps g WHERE g.episode_id = s.episode_id
         AND (g.step = s.step OR g.parallel_group = s.parallel_group)) AS cut
    FROM wanted JOIN steps s USING (episode_id, step)
    LEFT JOIN messages own ON own.episode_id = s.episode_id AND own.position = s.position
)
SELECT d.episode_id, d.step, d.arguments, d.locator, d.answer,
    (SELECT to_json(list({'role': m.role, 'content': m.content} ORDER BY m.position)) FROM messages m
     WHERE m.episode_id = d.episode_id AND m.position < d.cut) AS prompt
FROM decisions d ORDER BY d.episode_id, d.step
"""


def _line(row: dict[str, Any], texts: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    example = {side: texts[row[f"episode_{side}"], row[f"step_{side}"]] for side in "ab"}
    prompt = example["a"]["prompt"]
    return {
        "level": row["level"],
        "state_key": row["state_key"],
        "prompt": json.loads(prompt) if prompt else [],
        "chosen": _end(row, "a", example["a"]),
        "rejected": _end(row, "b", example["b"]),
        "gap": row["gap"],
        "interval": None if row["low"] is None else [row["low"], row["high"]],
        "certain": row["certain"],
    }


def _end(row: dict[str, Any], side: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "action": row[f"action_{side}"],
        "arguments": example["arguments"],
        "answer": example["answer"],
        "episodes": row[f"episodes_{side}"],
        "mean_return": row[f"mean_{side}"],
        "success_rate": row[f"success_rate_{side}"],
        "episode_id": row[f"episode_{side}"],
        "step": row[f"step_{side}"],
        "locator": example["locator"],
    }
