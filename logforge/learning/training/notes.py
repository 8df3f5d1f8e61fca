"""What a reader of a run has to know beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from logforge.core.intervals import Span
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.learners import CONSERVATIVE
from logforge.learning.training.monitors import one_outcome
from logforge.learning.training.observed_mdp import clone_share, observed
from logforge.rewards.returns import unusual
from logforge.schemas.manifest import Manifest
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import Shard

SMALL_TRAIN: Final = 500
"""Below about this many train episodes no gain over cloning was measured (docs/design.md, §9)."""
RANDOM_START: Final = 0.1
"""Target networks that hold more than this share of their random start have not had the updates to learn what follows."""
RISKY: Final = 0.1
"""Share of decisions that CQL at rest gets wrong, from which on it is said."""


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
        yield from filter(None, (few_updates(config), few_episodes(shard)))
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


def few_episodes(train: SplitArrays) -> str:
    """That the log is too small for a gain over cloning; empty where it is not."""
    count = int((~train.augmented).sum())
    if count >= SMALL_TRAIN:
        return ""
    return f"{count} train episodes: below about {SMALL_TRAIN} no gain over cloning was measured"


def few_updates(config: TrainConfig) -> str:
    """That a run was too short to learn what follows a step; empty where it was not, where nothing is learnt of that (cloning), and
    where nothing began at random (warm start)."""
    kept = (1 - config.target_rate) ** config.updates
    if config.algo == "bc" or config.backend != "torch" or config.warm_start or kept <= RANDOM_START:
        return ""
    return (
        f"{config.updates:,} updates are few: the target networks (--target-rate {config.target_rate:g}) still hold {kept:.0%} of their "
        f"random start, so Q knows little of what follows a step ({TrainConfig().updates:,} is the preset)"
    )


def fresh_starts(origin: str | None, started: Mapping[str, str | None]) -> Iterator[str]:
    """Beside a warm start from `origin`: the policies that began afresh, or with an earlier policy of another name."""
    for name, earlier in started.items():
        if earlier is None:
            yield f"{name} began afresh: there is no such policy in {origin}"
        elif Path(earlier).name != name:
            yield f"{name} began with {earlier}: the earlier run has no policy of its seed"


def fitting_alpha(seen: tuple[float, float] | None) -> float | None:
    """The α that was measured to suit returns of this size: 0.3 at ±1, 1 at up to 10; between and beyond, the line through both."""
    scale = max(abs(bound) for bound in seen) if seen else 0.0
    return 0.3 * float(scale ** np.log10(1 / 0.3)) if scale else None


def clone_risks(alpha: float, shard: Shard) -> Iterator[str]:
    """Whether CQL would clone the log: by the MDP that the log shows, and by the spec in the small world of reward lint."""
    mdp = observed(shard, shard.manifest.gamma)
    found = clone_share(mdp, alpha) if mdp else None
    if found and found.astray >= RISKY:
        yield (
            f"clone risk: with alpha {alpha:g} CQL comes to rest at another action than the best in {found.astray:.0%} of this log's "
            f"decisions (at the log's favourite in {found.cloned:.0%}); the best is worth only {found.gap:.2g} more there: pay the "
            "outcome more, lower gamma, or train with a lower --alpha"
        )
    limit = _spec_limit(shard.manifest) if mdp is None else None
    if limit is not None and limit < alpha:
        yield (
            f"clone risk: by the reward spec, CQL finds the best actions of even logs up to alpha {limit:.2g}, not with {alpha:g} "
            "(`logforge reward lint` shows it): pay the outcome more, lower gamma, or train with a lower --alpha"
        )


def _spec_limit(manifest: Manifest) -> float | None:
    """The largest α for even logs; None where there is no spec to try, or no limit."""
    from logforge.rewards.lint.cloning import clone_risk
    from logforge.rewards.lint.trial import recorded_trial

    trial = recorded_trial(manifest)
    risk = clone_risk(trial) if trial else None
    return risk.even if risk else None


def _alpha(alpha: float, seen: tuple[float, float] | None) -> Iterator[str]:
    fitting = fitting_alpha(seen)
    if seen and fitting and not fitting / 2 <= alpha <= fitting * 2:
        yield (
            f"returns reach {max(map(abs, seen)):.3g}: alpha {alpha:g} suits returns of another size, about {fitting:.2g} would fit "
            "(choose it on validation: `logforge sweep`)"
        )


def _q(facts: Mapping[str, Any], span: Span) -> Iterator[str]:
    highest = facts.get("validation_max_q")
    if highest is not None and highest > span.high:
        yield f"max Q {highest:.3g} is above {span.high:.3g}, the most that a return can be (good runs show this too)"


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
