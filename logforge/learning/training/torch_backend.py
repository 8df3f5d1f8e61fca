"""The masked learners of logforge/learning/training/learners.py on a shard: all members at once, in one network with a member axis."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from logforge.core import one_thread
from logforge.learning.training.config import TWO_HEADS, Point, TrainConfig, epoch_of
from logforge.learning.training.continual import earlier_policies, replay_of, warm
from logforge.learning.training.experience import Replay
from logforge.learning.training.fitting import bundle_of, device, rules_of
from logforge.learning.training.learners import LEARNERS, Fit, Learner
from logforge.learning.training.policy_vectors import side_of
from logforge.learning.training.template_head import TemplateHead
from logforge.shards import Shard

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
        rules = rules_of(config, shard, side_of(made, shard, config, place))
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
