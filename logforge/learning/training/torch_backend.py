"""The masked learners of logforge/learning/training/learners.py on a shard: all members at once, in one network with a member axis."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np

from logforge.core.extras import one_thread
from logforge.core.intervals import Span
from logforge.learning.policies.bundle import Golden, PolicyBundle, PolicyCard
from logforge.learning.policies.layers import TEMPLATE
from logforge.learning.training.config import (
    BEHAVIOUR_PENALTY,
    TWO_HEADS,
    Point,
    TrainConfig,
    epoch_of,
    golden_rows,
)
from logforge.learning.training.continual import earlier_policies, reach, replay_of, warm
from logforge.learning.training.experience import Replay
from logforge.learning.training.learners import LEARNERS, Fit, Learner, Rules
from logforge.learning.training.template_head import TemplateHead
from logforge.learning.training.text_q import SideTensors
from logforge.shards.reader import Shard

if TYPE_CHECKING:
    import torch


def rounds(config: TrainConfig) -> int:
    """How many items `points` gives."""
    return config.updates


def points(
    learner: str, name: str, shard: Shard, config: TrainConfig, halted: Collection[int]
) -> Iterator[list[Point]]:
    """Train; after each update the points reached with it: those of all members at the end of an epoch, else none.

    It ends early when all members' seeds are `halted`.
    """
    made, place = LEARNERS[learner], device()
    sizes = (shard.observation_size, *config.hidden, shard.action_size)
    with one_thread():
        replay = Replay(shard, shard.manifest.vocabulary.invalid, place)
        rules = rules_of(config, shard, made)
        head = None
        if config.heads == TWO_HEADS:
            head = TemplateHead.of(shard.manifest, config.seeds, config.hidden[-1], device=place)
        fit = Fit(made, rules, config.seeds, sizes, config.learning_rate, config.target_rate, place, head)
        warm(fit, earlier_policies(config, name, shard.manifest), config, shard.manifest)
        batches = replay_of(config, name, shard, replay).batches(config.seeds, config.batch_size)
        seen: list[dict[str, torch.Tensor]] = []
        for update in range(1, config.updates + 1):
            if config.anneal:
                fit.anneal((update - 1) / config.updates)
            seen.append(fit.update(next(batches)))
            if epoch := epoch_of(update, config):
                yield list(_points(fit, made, name, shard, config, (epoch, update), seen))
                seen = []
            else:
                yield []
            if len(halted) == config.members:
                return


def rules_of(config: TrainConfig, shard: Shard, learner: Learner) -> Rules:
    """What a learner is told besides its data."""
    span = reach(config, shard) if config.clip_targets else Span(-np.inf, np.inf)
    texts = learner.networks[learner.acts] == "text"
    return Rules(
        shard.manifest.gamma,
        span,
        config.alpha,
        config.threshold,
        config.expectile,
        config.beta,
        BEHAVIOUR_PENALTY,
        SideTensors.of(shard, config, device()) if texts else None,
    )


def device() -> str:
    """A GPU where there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _points(
    fit: Fit,
    learner: Learner,
    name: str,
    shard: Shard,
    config: TrainConfig,
    when: tuple[int, int],
    seen: list[dict[str, torch.Tensor]],
) -> Iterator[Point]:
    import torch

    means = {loss: torch.stack([losses[loss] for losses in seen]).mean(dim=0).tolist() for loss in seen[0]}
    for member, seed in enumerate(config.seeds):
        losses = {f"{loss}_loss": values[member] for loss, values in means.items()}
        losses = {"loss": sum(losses.values()), **losses}
        yield Point(seed, *when, losses, bundle_of(fit, learner, name, shard, config, member))


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
