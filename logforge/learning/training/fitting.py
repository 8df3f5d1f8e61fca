"""What the training of any masked learner begins and ends with: the device, its rules, and the policy that a member is."""

from __future__ import annotations

import numpy as np

from logforge.core import Span
from logforge.learning.policies import TEMPLATE, Golden, PolicyBundle, PolicyCard
from logforge.learning.training.config import BEHAVIOUR_PENALTY, TrainConfig, golden_rows
from logforge.learning.training.continual import reach
from logforge.learning.training.learners import Fit, Learner, Rules
from logforge.learning.training.text_q import SideTensors
from logforge.shards import Shard


def device() -> str:
    """A GPU where there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def rules_of(config: TrainConfig, shard: Shard, side: SideTensors | None = None) -> Rules:
    """What a learner is told besides its data; `side` is what a network over texts sees beside a state."""
    span = reach(config, shard) if config.clip_targets else Span(-np.inf, np.inf)
    return Rules(
        shard.manifest.gamma,
        span,
        config.alpha,
        config.threshold,
        config.expectile,
        config.beta,
        BEHAVIOUR_PENALTY,
        side,
    )


def bundle_of(
    fit: Fit, learner: Learner, name: str, shard: Shard, config: TrainConfig, member: int
) -> PolicyBundle:
    """The policy that a member is at this moment."""
    observations = golden_rows(shard)
    golden = Golden(observations.tolist(), fit.scores(observations, member).tolist())
    behaviour = fit.layers(learner.behaviour, member) if learner.behaviour else ()
    side = fit.rules.side
    card = PolicyCard.of(
        shard.manifest,
        algo=name,
        kind=learner.kind,
        golden=golden,
        threshold=config.threshold if behaviour else 0.0,
        two_heads=fit.head is not None,
        policies=() if side is None else side.names,
    )
    extras = {} if fit.head is None else {TEMPLATE: fit.head.layers(member)}
    inputs = None if side is None else side.inputs
    return PolicyBundle(card, fit.layers(learner.acts, member), behaviour, extras, side=inputs)
