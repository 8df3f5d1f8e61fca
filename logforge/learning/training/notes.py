"""What a reader of a run has to know beside its numbers: what is suspect in it (findings.py), and what its settings left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from logforge.core import Span
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.findings import NOTES, RISKY, alpha_off, few_episodes, few_updates
from logforge.learning.training.learners import CONSERVATIVE
from logforge.learning.training.monitors import one_outcome
from logforge.learning.training.observed_mdp import clone_share, observed
from logforge.rewards import unusual
from logforge.schemas import Manifest
from logforge.shards import Shard, SplitArrays


def notes(
    config: TrainConfig,
    shard: Shard,
    held: SplitArrays | None,
    span: Span,
    trained: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    """Remarks on the settings, the data and the outcome, in whole sentences."""
    if config.algo in CONSERVATIVE:
        yield from _alpha(config.alpha, shard.manifest.return_range)
        yield from clone_risks(config.alpha, shard)
        yield from _q(trained[config.algo], span)
    if told := unusual("gamma", shard.manifest.gamma):
        yield told
    if config.algo != "bc":
        yield from brief(config, shard)
    if fit := trained[config.algo].get("policy_fit"):
        yield _policies(**fit)
    if config.backend == "d3rlpy":
        yield from _d3rlpy(shard)
    elif not config.clip_targets:
        yield "targets were not clipped: watch max Q"
    if held is not None and "soft_opc" in trained[config.algo] and (why := one_outcome(held)):
        yield f"soft_opc is unknown: {why}"
    if held is None:
        yield "there is no validation split, so no validation metrics: only losses can raise an alarm"


def brief(config: TrainConfig, train: SplitArrays) -> Iterator[str]:
    """That a run had too few updates or episodes, where it had."""
    if few := few_updates(config):
        yield NOTES["too_few_updates"].tell(**few).words
    if few := few_episodes(train):
        yield NOTES["few_episodes"].tell(**few).words


def fresh_starts(origin: str | None, started: Mapping[str, str | None]) -> Iterator[str]:
    """Beside a warm start from `origin`: the policies that began afresh, or with an earlier policy of another name."""
    for name, earlier in started.items():
        if earlier is None:
            yield f"{name} began afresh: there is no such policy in {origin}"
        elif Path(earlier).name != name:
            yield f"{name} began with {earlier}: the earlier run has no policy of its seed"


def clone_risks(alpha: float, shard: Shard) -> Iterator[str]:
    """Whether CQL would clone the log: by the MDP that the log shows, and by the spec in the small world of reward lint."""
    mdp = observed(shard, shard.manifest.gamma)
    found = clone_share(mdp, alpha) if mdp else None
    if found and found.astray >= RISKY:
        yield NOTES["clone"].tell(alpha=alpha, **found._asdict()).words
    limit = _spec_limit(shard.manifest) if mdp is None else None
    if limit is not None and limit < alpha:
        yield NOTES["clone"].tell("spec", alpha=alpha, limit=limit).words


def _spec_limit(manifest: Manifest) -> float | None:
    """The largest α for even logs; None where there is no spec to try, or no limit."""
    from logforge.rewards.lint import clone_risk, recorded_trial

    trial = recorded_trial(manifest)
    risk = clone_risk(trial) if trial else None
    return risk.even if risk else None


def _alpha(alpha: float, seen: tuple[float, float] | None) -> Iterator[str]:
    if off := alpha_off(alpha, seen):
        yield NOTES["alpha_scale"].tell(**off).words


def _q(facts: Mapping[str, Any], span: Span) -> Iterator[str]:
    highest = facts.get("validation_max_q")
    if highest is not None and highest > span.high:
        yield NOTES["runs_away"].tell(max_q=highest, high=span.high).words


def _policies(decisions: int, own: float, others: float) -> str:
    """What the vectors of policies are worth."""
    found = (
        f"Q goes with the returns of {decisions:,} validation decisions by r = {own:.2f} under the vector of the policy that decided, "
        f"and by {others:.2f} under those of others"
    )
    return (
        found if own > others else f"{found}: the vectors tell nothing here, leave out --policy-conditioned"
    )


def _d3rlpy(shard: Shard) -> Iterator[str]:
    if (shard.weights != 1).any():
        yield "sample weights were not used: d3rlpy has no place for them"
    if not np.delete(shard.masks, shard.manifest.vocabulary.invalid, axis=1).all():
        yield "masks hold when a policy acts; d3rlpy's training does not know them"
    yield "d3rlpy does not clip targets: watch max Q"
