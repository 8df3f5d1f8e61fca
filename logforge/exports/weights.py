"""Weights for cloning what did better than the rest, from returns or from credit.

Every decision has an amount: its return to go, or what a method of credit gave it (table `credit`). Amounts become scores:
a return's is (G − mean) / deviation over the split's logged decisions; credit's is c / deviation, for credit already says by
its sign whether a decision did well. A turn's amount is the mean of its decisions'. `--keep` says what scores become:

* `positive`: turns with a score above 0, weighted by it (self-imitation, Oh et al., arXiv 1806.05635);
* `all`: every turn, weighted by exp(score), at most 20 (AWR with β = 1, Peng et al., arXiv 1910.00177);
* `top=SHARE`: the turns with the highest scores, that share of all of them at least (ties included), each with weight 1
  (filtered cloning; Chen et al., arXiv 2106.01345, call it %BC, there by whole episodes).

The weights of `positive` and `all` are divided by their mean, so that a learning rate means what it means without weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from logforge.exports.job import Job
from logforge.exports.kept_credit import kept_credit
from logforge.schemas import UnknownName, UsageError
from logforge.shards import Array

RETURN: Final = "return"
MOST: Final = 20.0
BELOW: Final = "not among those kept"
TurnKey = tuple[str, int]
"""An episode and the first step of a turn in it."""

_RETURNS = """
SELECT episode_id, s.position, step, t.return_to_go AS amount FROM transitions t JOIN steps s USING (episode_id, step)
WHERE t.dataset = ? AND t.split = ? ORDER BY episode_id, step
"""
_CREDIT = """
SELECT episode_id, s.position, step, c.credit AS amount FROM credit c JOIN steps s USING (episode_id, step)
WHERE c.dataset = ? AND c.split = ? AND c.hash = ? AND c.method = ? ORDER BY episode_id, step
"""


@dataclass(frozen=True)
class Keep:
    """Which turns are kept: `name` is positive, all or top; `share` that of top."""

    name: str
    share: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Keep:
        """`positive`, `all` or `top=SHARE` with 0 < SHARE <= 1."""
        name, _, share = text.partition("=")
        if name == "top" and share:
            try:
                value = float(share)
            except ValueError:
                value = math.nan
            if 0 < value <= 1:
                return cls(name, value)
            raise UsageError(
                f"--keep {text}: {share!r} is no share", "write a number above 0 and up to 1: --keep top=0.2"
            )
        if text not in ("positive", "all"):
            raise UnknownName("--keep", text, ["positive", "all", "top=SHARE"])
        return cls(text)


def weights_of(job: Job) -> Mapping[TurnKey, float]:
    """The weight of every turn of the split that is kept."""
    keep = Keep.parse(job.options.keep)
    turns, amounts = _amounts(job)
    scores = _scores(amounts, centred=job.options.weigh != RETURN)
    kept, weights = weighted(scores, keep)
    return {turns[index]: float(weight) for index, weight in zip(np.flatnonzero(kept), weights, strict=True)}


def weighted(scores: Array, keep: Keep) -> tuple[Array, Array]:
    """Which scores are kept (one truth value each), and the weights of those."""
    if keep.name == "top":
        number = max(1, math.ceil(keep.share * len(scores)))
        kept = scores >= np.sort(scores)[-number]
        return kept, np.ones(int(kept.sum()))
    kept = scores > 0 if keep.name == "positive" else np.ones(len(scores), bool)
    raw = scores[kept] if keep.name == "positive" else np.minimum(np.exp(np.minimum(scores, 9.0)), MOST)
    return kept, raw / raw.mean() if len(raw) else raw


def _scores(amounts: Array, *, centred: bool) -> Array:
    deviation = float(amounts.std())
    if deviation == 0:
        return np.zeros(len(amounts)) if not centred else np.sign(amounts)
    return (amounts if centred else amounts - amounts.mean()) / deviation


def _amounts(job: Job) -> tuple[list[TurnKey], Array]:
    place, method = [job.manifest.dataset, job.shard.split], job.options.weigh
    if method == RETURN:
        found = job.store.con.sql(_RETURNS, params=place)
    else:
        kept_credit(job, method, "--weigh", (RETURN,))
        found = job.store.con.sql(_CREDIT, params=[*place, job.manifest.hash, method])
    decisions: pl.DataFrame = found.pl()
    if unknown := decisions["amount"].null_count():
        raise UsageError(
            f"--weigh {method}: {unknown:,} of {decisions.height:,} steps have unknown credit",
            f"take a method that gives all of them some, or --weigh {RETURN}",
        )
    turns = decisions.group_by("episode_id", "position", maintain_order=True).agg(
        pl.col("step").first(), pl.col("amount").mean()
    )
    return list(turns.select("episode_id", "step").iter_rows()), turns["amount"].to_numpy()
