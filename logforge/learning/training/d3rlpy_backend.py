"""The learners of d3rlpy: its own CQL, cloning, BCQ and DQN on the same shards, for comparison.

d3rlpy knows neither masks nor sample weights, and does not clip targets: its targets look at all actions, and masks hold
when the policy acts. Its networks come out as the same bundles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from logforge.core import import_d3rlpy, one_thread
from logforge.learning.policies import Golden, Layer, PolicyBundle, PolicyCard
from logforge.learning.training.config import BEHAVIOUR_PENALTY, Point, TrainConfig, epoch_of, golden_rows
from logforge.shards import Shard, to_mdp_dataset

if TYPE_CHECKING:
    import torch

TARGET_UPDATE_INTERVAL: Final = 100
"""d3rlpy's own 8,000 would never renew the target in a run of this length."""


class Learner(NamedTuple):
    """A learner of d3rlpy: how to make it, what its scores are, the network that gives them, and the one that tells the
    behaviour, if any."""

    make: Callable[[Any, TrainConfig, float], Any]
    kind: Literal["q", "logits"]
    network: Callable[[Any], Any]
    behaviour: Callable[[Any], Any] | None = None


def _cql(d3rlpy: Any, config: TrainConfig, gamma: float) -> Any:
    settings = {**_common(d3rlpy, config), **_valued(gamma)}
    return d3rlpy.algos.DiscreteCQLConfig(**settings, alpha=config.alpha).create(device="cpu:0")


def _dqn(d3rlpy: Any, config: TrainConfig, gamma: float) -> Any:
    return d3rlpy.algos.DoubleDQNConfig(**_common(d3rlpy, config), **_valued(gamma)).create(device="cpu:0")


def _bcq(d3rlpy: Any, config: TrainConfig, gamma: float) -> Any:
    settings = {**_common(d3rlpy, config), **_valued(gamma)}
    made = d3rlpy.algos.DiscreteBCQConfig(
        **settings, action_flexibility=config.threshold, beta=BEHAVIOUR_PENALTY
    )
    return made.create(device="cpu:0")


def _bc(d3rlpy: Any, config: TrainConfig, gamma: float) -> Any:
    settings = _common(d3rlpy, config)
    return d3rlpy.algos.DiscreteBCConfig(**settings, gamma=gamma, beta=BEHAVIOUR_PENALTY).create(
        device="cpu:0"
    )


def _common(d3rlpy: Any, config: TrainConfig) -> dict[str, Any]:
    encoder = d3rlpy.models.VectorEncoderFactory(list(config.hidden))
    return {
        "batch_size": config.batch_size,
        "learning_rate": config.learning_rate,
        "encoder_factory": encoder,
    }


def _valued(gamma: float) -> dict[str, Any]:
    return {"gamma": gamma, "target_update_interval": TARGET_UPDATE_INTERVAL}


def _q(algo: Any) -> Any:
    return algo.impl.q_function[0]


def _imitator(algo: Any) -> Any:
    return algo.impl.modules.imitator


LEARNERS: Final = {
    "cql": Learner(_cql, "q", _q),
    "dqn": Learner(_dqn, "q", _q),
    "bcq": Learner(_bcq, "q", _q, _imitator),
    "bc": Learner(_bc, "logits", _imitator),
}
"""What `algo` can be with this backend."""


def rounds(config: TrainConfig) -> int:
    """How many items `points` gives."""
    return config.updates * config.members


def points(
    learner: str, name: str, shard: Shard, config: TrainConfig, halted: Collection[int]
) -> Iterator[list[Point]]:
    """Train one member after the other; after each update the points reached with it: one at the end of an epoch, else none.

    A member whose seed is `halted` is left as it is.
    """
    for seed in config.seeds:
        for found in _trained(LEARNERS[learner], name, shard, config, seed):
            yield found
            if seed in halted:
                break


def _trained(
    learner: Learner, name: str, shard: Shard, config: TrainConfig, seed: int
) -> Iterator[list[Point]]:
    buffer = to_mdp_dataset(shard)
    seen: dict[str, list[float]] = defaultdict(list)
    with one_thread(), _seeded(seed):
        algo = learner.make(import_d3rlpy(), config, shard.manifest.gamma)
        algo.build_with_dataset(buffer)
        for update in range(1, config.updates + 1):
            for loss, value in algo.update(buffer.sample_transition_batch(config.batch_size)).items():
                seen[loss].append(value)
            if epoch := epoch_of(update, config):
                losses = {loss: float(np.mean(values)) for loss, values in seen.items()}
                yield [Point(seed, epoch, update, losses, _bundle(name, learner, algo, shard, config))]
                seen.clear()
            else:
                yield []


def _bundle(name: str, learner: Learner, algo: Any, shard: Shard, config: TrainConfig) -> PolicyBundle:
    """The trained network as plain layers, with golden rows scored by the network itself."""
    import torch

    network = learner.network(algo)
    observations = golden_rows(shard)
    with torch.no_grad():
        # Cloning's own logits are shifted to sum to one; the layer's output is the same up to that.
        scores = network._fc(network._encoder(torch.from_numpy(observations))).numpy()
    golden = Golden(observations.tolist(), scores.tolist())
    behaviour = tuple(_layers(learner.behaviour(algo))) if learner.behaviour else ()
    card = PolicyCard.of(
        shard.manifest,
        algo=name,
        kind=learner.kind,
        golden=golden,
        threshold=config.threshold if behaviour else 0.0,
    )
    return PolicyBundle(card, tuple(_layers(network)), behaviour)


def _layers(network: torch.nn.Module) -> Iterator[Layer]:
    import torch

    for part in network.modules():
        if isinstance(part, torch.nn.Linear):
            yield Layer(part.weight.detach().numpy().copy(), part.bias.detach().numpy().copy())


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Everything d3rlpy draws from, seeded; the caller's generators go on as if nothing had been drawn."""
    import random

    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    import_d3rlpy().seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
