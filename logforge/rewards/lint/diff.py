"""What changes when one reward spec takes another's place: rewards, returns and the ranking of the logged episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logforge.core import BaseReport, Lines, Tick, auc, silent, table, tables_of
from logforge.rewards import RewardModel, load_spec, returns_to_go
from logforge.schemas import Episode, RewardSpec, UsageError
from logforge.splits import assign_splits, near_duplicates
from logforge.store import Store

MOVERS = 10


class Mover(NamedTuple):
    """An episode whose place in the ranking changed; rank 1 is the highest return."""

    episode_id: str
    rank_a: int
    rank_b: int
    return_a: float
    return_b: float
    success: bool | None
    locator: str


class TermMean(NamedTuple):
    """A term's mean over the episodes of its sum in one, under each spec; null where the spec lacks it."""

    term: str
    mean_a: float | None
    mean_b: float | None


@dataclass(frozen=True)
class RewardDiff(BaseReport):
    """Two specs over the same episodes. `tau` is Kendall's τ-b of their returns: 1 is the same ranking, −1 the reverse."""

    spec_a: str
    spec_b: str
    episodes: int
    null_a: int
    null_b: int
    changed_rewards: int
    steps: int
    mean_return_a: float
    mean_return_b: float
    tau: float | None
    auc_a: float | None
    auc_b: float | None
    terms: tuple[TermMean, ...]
    movers: tuple[Mover, ...]

    def lines(self) -> Lines:
        """How rewards, returns and their ranking differ, by term and by the episodes that moved most."""
        equal = "one of the specs ranks nothing (all returns are equal)"
        without = f"({self.null_a} without a reward under A, {self.null_b} under B)"
        yield f"{self.episodes} episodes rewarded by both {without}"
        yield f"rewards: {self.changed_rewards:,} of {self.steps:,} steps changed"
        yield f"mean return: {self.mean_return_a:.4g} → {self.mean_return_b:.4g}"
        yield f"ranking of episodes: {equal if self.tau is None else f'Kendall τ {self.tau:.3f}'}"
        yield f"return against logged success (AUC): {_shown(self.auc_a)} → {_shown(self.auc_b)}\n"
        terms = [(item.term, _shown(item.mean_a), _shown(item.mean_b)) for item in self.terms]
        yield table(("term, mean per episode", "A", "B"), terms)
        yield "\n" + mover_table(self.movers) if self.movers else None


def _shown(number: float | None) -> str:
    return "—" if number is None else f"{number:.3f}"


def reward_diff(
    store: Store,
    a: str | Path | RewardSpec,
    b: str | Path | RewardSpec,
    *,
    seed: int = 0,
    progress: Tick = silent,
) -> RewardDiff:
    """Score the stored episodes under both specs. `seed` is that of the splits, on whose train part scales are fitted.

    Raises SpecError for a wrong spec and UsageError when the store holds no decision.
    """
    first, second = (spec if isinstance(spec, RewardSpec) else load_spec(spec) for spec in (a, b))
    logged = stored_decisions(store)
    frames = [rewarded(store, spec, logged, seed, progress) for spec in (first, second)]
    totals = [episode_returns(frame, spec.gamma) for frame, spec in zip(frames, (first, second), strict=True)]
    both = (
        totals[0]
        .join(totals[1], on="episode_id", suffix="_b")
        .filter(pl.col("total").is_not_nan() & pl.col("total_b").is_not_nan())
    )
    facts = {episode.episode_id: episode for episode in logged}
    pair = frames[0].join(frames[1], on=["episode_id", "step"], suffix="_b")
    success = [facts[identifier].success for identifier in both["episode_id"]]
    return RewardDiff(
        spec_a=first.hash,
        spec_b=second.hash,
        episodes=both.height,
        null_a=int(totals[0]["total"].is_nan().sum()),
        null_b=int(totals[1]["total"].is_nan().sum()),
        changed_rewards=int((~pair["reward"].eq_missing(pair["reward_b"])).sum()),
        steps=pair.height,
        mean_return_a=float(np.mean(both["total"].to_numpy())) if both.height else float("nan"),
        mean_return_b=float(np.mean(both["total_b"].to_numpy())) if both.height else float("nan"),
        tau=kendall(both["total"].to_numpy(), both["total_b"].to_numpy()),
        auc_a=auc(both["total"].to_numpy(), success),
        auc_b=auc(both["total_b"].to_numpy(), success),
        terms=term_means(*frames),
        movers=movers(
            both.with_columns(
                success=pl.Series(success, dtype=pl.Boolean),
                locator=pl.Series([facts[i].locator for i in both["episode_id"]], dtype=pl.String),
            )
        ),
    )


def stored_decisions(store: Store) -> list[Episode]:
    """The store's episodes that hold a decision. Raises UsageError when there is none."""
    logged = [episode for episode in store.episodes() if episode.steps]
    if not logged:
        raise UsageError("the store holds no decision", "ingest logs first: `logforge ingest LOGS`")
    return logged


def rewarded(
    store: Store, spec: RewardSpec, logged: list[Episode], seed: int, progress: Tick = silent
) -> pl.DataFrame:
    """The rewards of the episodes, with scales fitted on the train split of this seed."""
    return model_of(store, spec, logged, seed, progress).score(logged)


def model_of(
    store: Store, spec: RewardSpec, logged: list[Episode], seed: int, progress: Tick = silent
) -> RewardModel:
    """The spec made ready for the store, with scales fitted on the train split of this seed."""
    train = dict(groups_of(logged, seed).filter(split="train").select("episode_id", "group_key").iter_rows())
    return RewardModel.fit(spec, logged, train, store.con, progress)


def groups_of(logged: list[Episode], seed: int) -> pl.DataFrame:
    """Which episodes belong together and the split of each (see logforge.splits.assign.assign_splits)."""
    return assign_splits(pl.DataFrame(tables_of(logged).episodes), seed, near=near_duplicates(logged))


def episode_returns(frame: pl.DataFrame, gamma: float) -> pl.DataFrame:
    """Each episode's return from its first step: episode_id, total (NaN where a reward is null)."""
    lengths = frame.group_by("episode_id", maintain_order=True).len()
    offsets = np.concatenate([[0], np.cumsum(lengths["len"].to_numpy())]).astype(np.int64)
    returns = returns_to_go(frame["reward"].fill_null(float("nan")).to_numpy(), offsets, gamma)
    return lengths.select("episode_id").with_columns(total=pl.Series(returns[offsets[:-1]]))


def kendall(
    a: np.ndarray[Any, np.dtype[np.float64]], b: np.ndarray[Any, np.dtype[np.float64]]
) -> float | None:
    """Kendall's τ-b; None where one side does not vary."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    from scipy.stats import kendalltau

    return float(kendalltau(a, b).statistic)


def term_means(a: pl.DataFrame, b: pl.DataFrame) -> tuple[TermMean, ...]:
    """The mean over episodes of each term's sum, under both; the frames hold episode_id and reward_terms."""
    means = [_term_means(frame) for frame in (a, b)]
    return tuple(
        TermMean(name, means[0].get(name), means[1].get(name)) for name in sorted({*means[0], *means[1]})
    )


def _term_means(frame: pl.DataFrame) -> dict[str, float]:
    values = (
        frame.select("episode_id", pl.col("reward_terms").alias("term"))
        .explode("term")
        .unnest("term")
        .drop_nulls("value")
    )
    sums = values.group_by("key", "episode_id", maintain_order=True).agg(pl.col("value").sum())
    ordered = sums.sort("key", "episode_id").group_by("key", maintain_order=True)
    return dict(ordered.agg(pl.col("value").mean()).iter_rows())


def movers(both: pl.DataFrame) -> tuple[Mover, ...]:
    """The episodes whose rank changed most. `both` holds episode_id, total and total_b (the returns), success and locator."""
    ranked = both.with_columns(
        rank_a=pl.col("total").rank("min", descending=True),
        rank_b=pl.col("total_b").rank("min", descending=True),
    ).with_columns(moved=(pl.col("rank_a").cast(pl.Int64) - pl.col("rank_b").cast(pl.Int64)).abs())
    chosen = (
        ranked.filter(pl.col("moved") > 0).sort("moved", "episode_id", descending=[True, False]).head(MOVERS)
    )
    return tuple(
        Mover(row["episode_id"], row["rank_a"], row["rank_b"], row["total"], row["total_b"], row["success"], row["locator"])
        for row in chosen.to_dicts()
    )  # fmt: skip


def mover_table(found: Sequence[Mover]) -> str:
    """Movers for people."""
    rows = [
        (
            m.episode_id[:12],
            f"{m.rank_a} → {m.rank_b}",
            f"{m.return_a:.3g} → {m.return_b:.3g}",
            m.success,
            m.locator,
        )
        for m in found
    ]
    return table(("biggest movers", "rank", "return", "success", "where"), rows, limit=160)
