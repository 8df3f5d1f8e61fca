"""Whether a learner is better than cloning, and what makes the numbers weaker than they look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from logforge.core import Estimate, bracketed, from_summary, intervals, stage
from logforge.evaluation.measuring import CLONES, Measured
from logforge.evaluation.report import LOGGED, PolicyRow, Verdict
from logforge.learning.ope import ESTIMATED_CAP
from logforge.learning.training import COLLAPSED, TrainConfig, brief
from logforge.shards import Shard

FEW_EPISODES: Final = 30
UNSUPPORTED: Final = 0.1
LITTLE_OVERLAP: Final = 0.05
"""In the simulators a policy with an effective sample of 55 of 2,000 episodes was overrated by 20 points."""


@stage(from_summary("the difference to the better clone", "values by bootstrap member, of each policy"))
def verdict_of(algo: str, found: Measured) -> Verdict:
    """By the paired difference of values, whatever importance sampling says: it is told beside it."""
    held, fits = found.held, found.fits
    size = f"n = {held.episode_count} episodes, {held.size} decisions"
    if algo in CLONES:
        return Verdict(None, f"the run holds cloning only, there is nothing to compare ({size})")
    unknown = [f"{name}: {fit.unsettled}" for name, fit in fits.items() if fit.unsettled]
    if why := found.reason or "; ".join(unknown):
        text = f"{algo} cannot be compared with cloning: {why} ({size})"
        return Verdict(None, text, difference=Estimate(None, reason=why))
    rival = max((name for name in CLONES if name in fits), key=lambda name: fits[name].values.mean())
    gaps = fits[algo].values - fits[rival].values
    difference = intervals.interval(gaps)
    better = difference.low is not None and difference.low > 0
    told = f"{bracketed(difference, '{:+.2f}')} against {rival}"
    won = int((gaps.mean(axis=1) > 0).sum())
    members = f", higher in {won} of {len(gaps)} members" if len(gaps) > 1 else ""
    text = f"{algo} is {'better' if better else 'no better'} than cloning: {told}{members} ({size})"
    return Verdict(better, text, rival, difference)


def caveats(
    run: Mapping[str, Any], held: Shard, train: Shard, rows: tuple[PolicyRow, ...], split: str
) -> Iterator[str]:
    """What makes the numbers weaker than they look."""
    if split == "train":
        yield "these episodes were trained on: the numbers flatter"
    if held.manifest.hash != run["dataset"]["hash"]:
        yield "this is not the dataset the run was trained on: some of these episodes may have been in its train split"
    if held.episode_count < FEW_EPISODES:
        yield f"few episodes: {held.episode_count}; intervals from fewer than {FEW_EPISODES} are themselves uncertain"
    cut = held.episode_count - int(held.terminals.sum())
    if cut:
        how = f"`{LOGGED}` leaves them out, FQE bootstraps through"
        if any(row.importance and row.importance.known for row in rows):
            how += " (so do dr and wdr; is, wis, pdis and wpdis judge what was logged of them)"
        yield f"{cut} of {held.episode_count} episodes are cut off: {how}"
    yield from brief(TrainConfig(**run["config"]), train)
    for name, reason in run.get("left_out", {}).items():
        yield f"{name} is missing: {reason}"
    for row in rows:
        yield from _row_caveats(row, held)


def _row_caveats(row: PolicyRow, held: Shard) -> Iterator[str]:
    if row.importance and row.importance.cut:
        many = f"{row.importance.cut:.0%} of {row.policy}'s weights"
        yield f"{many} were cut to {ESTIMATED_CAP:g}, for propensities are estimated"
    weighed = row.importance.estimates.values() if row.importance else ()
    sizes = [one.ess for one in weighed if one.ess and one.estimate.value is not None]
    if sizes and min(sizes) < LITTLE_OVERLAP * held.episode_count:
        told = f"{row.policy} shares little with the log: an effective sample of {min(sizes):.0f} of {held.episode_count} episodes"
        yield f"{told}; such policies are often overrated"
    if row.support and sum(row.support) > UNSUPPORTED:
        yield (
            f"{sum(row.support):.0%} of {row.policy}'s decisions are not supported by the log; "
            "FQE tends to overrate such a policy"
        )
    logged = np.bincount(held.actions).max() / held.size if held.size else 1.0
    if row.favourite and row.favourite[1] > COLLAPSED > logged:
        action, share = row.favourite
        yield f"{row.policy} repeats one action, {action!r}, in {share:.0%} of its decisions"
