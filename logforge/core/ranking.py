"""How well a number ranks successes above failures: AUC, with an interval from a bootstrap over whole groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logforge.core.intervals import MIN_EPISODES, Estimate, resamples

F64 = NDArray[np.float64]
RESAMPLES = 1000


def auc(scores: NDArray[Any], success: Sequence[bool | None]) -> float | None:
    """The chance that a success has the higher score than a failure, ties counting half; None without both kinds."""
    known = np.array([item is not None for item in success], dtype=bool)
    won = np.array([bool(item) for item in success], dtype=bool)[known]
    found = float(_aucs(np.asarray(scores)[known], won, np.ones((1, len(won))))[0]) if len(won) else np.nan
    return None if np.isnan(found) else found


def auc_estimates(
    scores: Sequence[NDArray[Any]], won: NDArray[np.bool_], groups: Sequence[str], seed: int = 0
) -> tuple[list[Estimate], Estimate]:
    """The AUC of each score with its 95 % interval, and that of the first less the second: all on the same resamples of
    whole groups (episodes of one task are no independent evidence)."""
    owners = np.unique(np.asarray(groups), return_inverse=True)[1]
    count = int(owners.max()) + 1 if len(owners) else 0
    if count < MIN_EPISODES or won.all() or not won.any():
        reason = (
            f"only {count} independent episodes, {MIN_EPISODES} are needed" if count < MIN_EPISODES
            else "all known outcomes are the same"
        )  # fmt: skip
        return [Estimate(None, reason=reason) for _ in scores], Estimate(None, reason=reason)
    weights = resamples(np.arange(count), RESAMPLES, seed)
    points = [float(_aucs(score, won, np.ones((1, len(won))))[0]) for score in scores]
    parts = np.array_split(weights, max(1, RESAMPLES * len(owners) // 10**7))  # a part fits in memory
    drawn = [np.concatenate([_aucs(score, won, part[:, owners]) for part in parts]) for score in scores]
    found = [_estimate(point, sample) for point, sample in zip(points, drawn, strict=True)]
    return found, _estimate(points[0] - points[1], drawn[0] - drawn[1])


def _estimate(point: float, drawn: F64) -> Estimate:
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Estimate(point, float(low), float(high))


def _aucs(scores: NDArray[Any], won: NDArray[np.bool_], weights: NDArray[Any]) -> F64:
    """The AUC under each row of weights; NaN where one kind has no weight."""
    codes = np.unique(scores, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    wins = np.add.reduceat((weights * won)[:, order], starts, axis=1)
    losses = np.add.reduceat((weights * ~won)[:, order], starts, axis=1)
    below = np.cumsum(losses, axis=1) - losses / 2
    total = wins.sum(axis=1) * losses.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: F64 = np.where(total > 0, (wins * below).sum(axis=1) / total, np.nan)
    return found
