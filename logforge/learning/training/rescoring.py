"""A split with another discount, or with a cost for every step: its rewards and returns anew, from its own arrays."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from logforge.rewards import returns_to_go
from logforge.shards import Shard


def rescored(shard: Shard, gamma: float | None = None, step_cost: float = 0.0) -> Shard:
    """The shard as if its spec had this discount (None: its own) and took `step_cost` off the reward of every step.

    The manifest's γ follows; its range of returns is that of the shard at hand, so pass the train split's on with `like`.
    """
    discount = shard.manifest.gamma if gamma is None else gamma
    if discount == shard.manifest.gamma and not step_cost:
        return shard
    rewards = np.asarray(shard.rewards, np.float64) - step_cost
    returns = returns_to_go(rewards, np.asarray(shard.episode_offsets, np.int64), discount)
    seen = (float(returns.min()), float(returns.max())) if len(returns) else shard.manifest.return_range
    manifest = msgspec.structs.replace(shard.manifest, gamma=discount, return_range=seen)
    return replace(
        shard, rewards=rewards.astype(np.float32), returns=returns.astype(np.float32), manifest=manifest
    )


def like(shard: Shard, train: Shard) -> Shard:
    """The shard with the train split's range of returns in its manifest."""
    manifest = msgspec.structs.replace(shard.manifest, return_range=train.manifest.return_range)
    return replace(shard, manifest=manifest)
