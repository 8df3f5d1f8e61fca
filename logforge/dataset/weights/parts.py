"""The sample weights of a dataset: one product of named parts, each beside the weight in `weight_parts`.

    part           what it multiplies                                                            by, and when
    conflict       rows that conflicts among train rows contradict                               the dataset's conflict policy
    demonstration  rows of human demonstrations                                                  `demonstration`, default 1
    episode        rows of the episodes that a file names (`logforge badcases` writes some)      the file's factor
    lazy_episode   rows of episodes in which at least half of the calls brought nothing new      `lazy_episode`, default 1
    no_progress    steps where the detector `no_progress` fires                                  `no_progress`, default 1
    off_task       steps that leave the task (off_task.py)                                       `off_task`, default 0.5
    recency        all rows, 0.5 ^ (age of the episode / half-life), from the newest in train    `half_life_days`, off

Only train rows have parts: weights say what to learn from, and held-out rows weigh 1. A part is computed from the row's own
episode and the train split alone. Augmented copies have the parts of the rows they were made from.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import duckdb
import numpy as np
import polars as pl

from logforge.core import POLARS_TYPES, Tick
from logforge.dataset.conflicts import DEMONSTRATION
from logforge.dataset.quality import in_order_of_names
from logforge.dataset.weights.off_task import THRESHOLD, pollution
from logforge.rewards.sql import input_stages
from logforge.schemas import Detectors, Episode, UsageError, digest
from logforge.shards import SplitArrays
from logforge.texts import Encoder, embed

LAZY: Final = 0.5
"""The share of calls without news from which an episode is lazy."""
_DAY = 86_400e6
_KEY = ["episode_id", "step"]
_PART = {"episode_id": pl.String, "step": pl.Int32, "factor": pl.Float64}


@dataclass(frozen=True)
class Weights:
    """What weights are multiplied by; 1 leaves a part out. `episodes` are factors by episode id. Raises UsageError for a
    factor that is negative or not finite, and for a half-life that is not above 0."""

    half_life_days: float | None = None
    no_progress: float = 1.0
    lazy_episode: float = 1.0
    off_task: float = 0.5
    demonstration: float = 1.0
    episodes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain = {name: getattr(self, name) for name in SETTINGS if name != "episodes"}
        for name, number in {**self.episodes, **plain}.items():
            if wrong := wrong_number(name if name in plain else "episodes", number):
                raise UsageError(f"weight {name} is {number!r}", wrong)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values. Of the episodes only how many and a digest: a manifest must not name who may be forgotten."""
        plain = {name: getattr(self, name) for name in SETTINGS if name != "episodes"}
        named = {"count": len(self.episodes), "digest": digest(dict(self.episodes))}
        return {**plain, "episodes": named if self.episodes else None}

    def unknown(self, rows: pl.DataFrame) -> int:
        """How many of the episodes named are not in the train split of these transitions."""
        train = rows.filter(pl.col("split") == "train")["episode_id"]
        return len(set(self.episodes) - set(train))


SETTINGS: Final = tuple(item.name for item in fields(Weights))
"""The names of the settings."""


def wrong_number(setting: str, number: float | None) -> str:
    """What to give for a setting instead of this number; nothing where it is fine."""
    if setting == "half_life_days":
        fine = number is None or (math.isfinite(number) and number > 0)
        return "" if fine else "give a number of days above 0, or none"
    fine = number is not None and math.isfinite(number) and number >= 0
    return "" if fine else "give a number of at least 0"


def weight_parts(
    con: duckdb.DuckDBPyConnection,
    rows: pl.DataFrame,
    episodes: Collection[Episode],
    conflicts: pl.DataFrame,
    detectors: Detectors,
    encoder: Encoder,
    settings: Weights,
    progress: Tick | None = None,
) -> pl.DataFrame:
    """The parts of the train split's logged rows that are not 1: episode_id, step, part, factor.

    `rows` are the dataset's transitions, `episodes` the logged ones of its train split, and `conflicts` the factors
    (episode_id, step, factor) that logforge.dataset.conflicts.policy.factors gives.
    """
    logged = rows.filter((pl.col("split") == "train") & pl.col("parent_id").is_null())
    detected = _detected(con, detectors) if settings.no_progress != 1 or settings.lazy_episode != 1 else None
    found = {
        "conflict": conflicts,
        "demonstration": _given(logged, pl.col("source_kind") == DEMONSTRATION, settings.demonstration),
        "episode": _named(logged, settings.episodes),
        "recency": _recency(logged, episodes, settings.half_life_days),
    }
    if detected is not None:
        seen = logged.join(detected, on=_KEY, how="left")
        found["no_progress"] = _given(seen, pl.col("no_progress").fill_null(False), settings.no_progress)
        found["lazy_episode"] = _given(seen, _lazy(detectors.no_progress.calls), settings.lazy_episode)
    if settings.off_task != 1:
        found_out = pollution(episodes, lambda texts: embed(con, encoder, texts, progress))
        stray = found_out.filter(pl.col("pollution") >= THRESHOLD)
        found["off_task"] = _given(stray, pl.lit(True), settings.off_task)
    parts = [frame.select(list(_PART)).with_columns(part=pl.lit(name)) for name, frame in found.items()]
    return (
        pl.concat(parts)
        .filter(pl.col("factor") != 1)
        .join(logged.select(_KEY), on=_KEY, how="semi")
        .sort(*_KEY, "part")
    )


def weigh(
    rows: pl.DataFrame, arrays: Mapping[str, SplitArrays], parts: pl.DataFrame
) -> tuple[pl.DataFrame, dict[str, SplitArrays]]:
    """Rows with `weight_parts` and their product as `weight`, and arrays with the same weights.

    `parts` is what `weight_parts` gives; a row made from a logged one (augmented) has that one's.
    """
    listed = (
        parts.sort(*_KEY, "part")
        .group_by(_KEY, maintain_order=True)
        .agg(weight_parts=pl.struct(key="part", value="factor"))
        .select(pl.format("{}/{}", *_KEY).alias("made_from"), "weight_parts")
    )
    own = pl.coalesce("parent_id", pl.format("{}/{}", *_KEY))
    weighed = (
        rows.drop("weight_parts")
        .with_columns(made_from=own)
        .join(listed, on="made_from", how="left", maintain_order="left")
        .with_columns(pl.col("weight_parts").fill_null(pl.lit([], POLARS_TYPES["MAP(VARCHAR, DOUBLE)"])))
    )
    weighed = weighed.with_columns(weight=in_order_of_names(weighed, "weight_parts", 1.0, pl.Expr.mul))
    weights = {name: weighed.filter(pl.col("split") == name)["weight"].to_numpy() for name in arrays}
    bearing = {name: replace(part, weights=weights[name].astype(np.float32)) for name, part in arrays.items()}
    return weighed.select(rows.columns), bearing


def _given(rows: pl.DataFrame, chosen: pl.Expr, factor: float) -> pl.DataFrame:
    return rows.filter(chosen).select(*_KEY, factor=pl.lit(float(factor)))


def _named(rows: pl.DataFrame, factors: Mapping[str, float]) -> pl.DataFrame:
    named = pl.DataFrame(
        {"episode_id": list(factors), "factor": [float(factor) for factor in factors.values()]},
        schema={"episode_id": pl.String, "factor": pl.Float64},
    )
    return rows.select(_KEY).join(named, on="episode_id")


def _recency(rows: pl.DataFrame, episodes: Collection[Episode], half_life: float | None) -> pl.DataFrame:
    """Ages count from the newest episode of the train split, not from today: the same logs give the same weights."""
    if half_life is None:
        return pl.DataFrame(schema=_PART)
    begun = {episode.episode_id: episode.started_at for episode in episodes}
    undated = sum(time is None for time in begun.values())
    if undated:
        what = f"{undated} of {len(begun)} train episodes have no start time, and recency needs one"
        raise UsageError(what, "leave their logs out, or leave out half_life_days")
    newest = max((time for time in begun.values() if time is not None), default=0)
    factors = {
        name: 0.5 ** ((newest - time) / _DAY / half_life) for name, time in begun.items() if time is not None
    }
    return _named(rows, factors)


def _detected(con: duckdb.DuckDBPyConnection, detectors: Detectors) -> pl.DataFrame:
    """What the detectors say of every stored step: episode_id, step, is_tool, is_news, no_progress."""
    stages, last = input_stages(("no_progress",), detectors, final=False)
    listed = ",\n".join(stages)
    query = f"WITH {listed}\nSELECT episode_id, step, is_tool, is_news, no_progress FROM {last}"
    found: pl.DataFrame = con.sql(query).pl()
    return found.with_columns(pl.col("step").cast(pl.Int32))


def _lazy(fewest: int) -> pl.Expr:
    """Rows of episodes with at least so many calls, of which a share of LAZY or more brought nothing new."""
    calls = pl.col("is_tool").sum().over("episode_id")
    idle = (pl.col("is_tool") & ~pl.col("is_news")).sum().over("episode_id")
    return (calls >= fewest) & (idle >= LAZY * calls)


def parts_told(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Each part of the rows' weights with the rows that bear it and its mean there, by name."""
    listed = rows.select("weight_parts").explode("weight_parts").drop_nulls().unnest("weight_parts")
    told: Sequence[dict[str, Any]] = (
        listed.group_by(part="key").agg(rows=pl.len(), mean=pl.col("value").mean()).sort("part").to_dicts()
    )
    return list(told)
