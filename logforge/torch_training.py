"""The masked learners of logforge/learners.py on a shard: all members at once, in one network with a member axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logforge.experience import Replay
from logforge.learners import LEARNERS, Fit, Learner, Rules
from logforge.ope import one_thread, possible_returns
from logforge.policy import Golden, Layer, PolicyBundle, PolicyCard
from logforge.shards import Shard
from logforge.train_config import BEHAVIOUR_PENALTY, Point, TrainConfig, golden_rows, is_point

if TYPE_CHECKING:
    import torch


def rounds(config: TrainConfig) -> int:
    """How many items `points` gives."""
    return config.updates


def points(learner: str, name: str, shard: Shard, config: TrainConfig) -> Iterator[list[Point]]:
    """Train; after each update the points reached with it: those of all members ten times on the way, else none."""
    made, manifest = LEARNERS[learner], shard.manifest
    span = possible_returns(shard.rewards, shard.terminals, manifest.gamma, manifest.return_range)
    rules = Rules(
        manifest.gamma,
        span,
        config.alpha,
        config.threshold,
        config.expectile,
        config.beta,
        BEHAVIOUR_PENALTY,
    )
    device = _device()
    sizes = (shard.observation_size, *config.hidden, shard.action_size)
    with one_thread():
        replay = Replay(shard, manifest.vocabulary.invalid, device)
        fit = Fit(made, rules, config.seeds, sizes, config.learning_rate, config.target_rate, device)
        batches = replay.batches(config.seeds, config.batch_size)
        seen: list[dict[str, torch.Tensor]] = []
        for update in range(1, config.updates + 1):
            seen.append(fit.update(next(batches)))
            if is_point(update, config.updates):
                yield list(_points(fit, made, name, shard, config, update, seen))
                seen = []
            else:
                yield []


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _points(
    fit: Fit,
    learner: Learner,
    name: str,
    shard: Shard,
    config: TrainConfig,
    update: int,
    seen: list[dict[str, torch.Tensor]],
) -> Iterator[Point]:
    import torch

    means = {loss: torch.stack([losses[loss] for losses in seen]).mean(dim=0).tolist() for loss in seen[0]}
    for member, seed in enumerate(config.seeds):
        losses = {f"{loss}_loss": values[member] for loss, values in means.items()}
        losses = {"loss": sum(losses.values()), **losses}
        yield Point(seed, update, losses, _bundle(fit, learner, name, shard, config, member))


def _bundle(
    fit: Fit, learner: Learner, name: str, shard: Shard, config: TrainConfig, member: int
) -> PolicyBundle:
    observations = golden_rows(shard)
    golden = Golden(observations.tolist(), fit.scores(observations, member).tolist())
    behaviour = fit.layers(learner.behaviour, member) if learner.behaviour else []
    card = PolicyCard.of(
        shard.manifest,
        algo=name,
        kind=learner.kind,
        golden=golden,
        threshold=config.threshold if behaviour else 0.0,
    )
    layers, behind = (
        tuple(Layer(*pair) for pair in pairs) for pairs in (fit.layers(learner.acts, member), behaviour)
    )
    return PolicyBundle(card, layers, behind)
