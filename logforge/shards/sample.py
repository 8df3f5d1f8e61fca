"""Samples of a dataset's arrays for the probes: whole episodes, drawn by a seed, as many decisions as are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logforge.shards.reader import load_shards

SAMPLE = 10_000
"""So many decisions at most go into a probe."""
_SPLIT_GROUPS = 1 << 32
_JOINED = ("observations", "actions", "returns", "steps", "success", "truncated", "groups")


@dataclass(frozen=True, eq=False)
class Sample:
    """Logged decisions of whole episodes, n rows of E episodes."""

    observations: NDArray[np.float32]
    """[n, d]"""
    actions: NDArray[Any]
    returns: NDArray[Any]
    steps: NDArray[Any]
    """the step's number in its episode"""
    episode: NDArray[Any]
    """which of the E episodes"""
    success: NDArray[Any]
    """[E] 1, 0 or -1"""
    truncated: NDArray[np.bool_]
    """[E] the log stops, so that returns are partial"""
    groups: NDArray[Any]
    """[E] split groups"""
    population: int
    """decisions it was drawn from"""

    @property
    def size(self) -> int:
        """How many decisions."""
        return len(self.actions)

    @property
    def first(self) -> NDArray[np.intp]:
        """The row of each episode's first decision."""
        return np.flatnonzero(self.steps == 0)

    @property
    def told(self) -> str:
        """What it holds, in words."""
        if self.size == self.population:
            return f"all {self.size:,} decisions"
        return f"a seeded sample of whole episodes: {self.size:,} of {self.population:,} decisions"


def draw(folder: Path, splits: Sequence[str], cap: int, seed: int) -> Sample:
    """Logged decisions of some splits, at most `cap` of each (or one episode)."""
    parts = [_part(folder, split, number, cap, seed) for number, split in enumerate(splits)]
    starts = np.cumsum([0, *(len(part.success) for part in parts)])
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _JOINED}
    episode = np.concatenate([part.episode + start for part, start in zip(parts, starts, strict=False)])
    return Sample(**joined, episode=episode, population=sum(part.population for part in parts))


def _part(folder: Path, split: str, number: int, cap: int, seed: int) -> Sample:
    """Whole episodes in an order set by the seed."""
    shard = load_shards(folder, split, verify=False)
    lengths = np.diff(shard.episode_offsets)
    logged = np.flatnonzero(~shard.augmented)
    order = np.random.default_rng([seed, 7]).permutation(logged)
    within = np.cumsum(lengths[order]) <= cap
    within[:1] = True
    chosen = np.sort(order[within])
    sizes, starts = lengths[chosen], shard.episode_offsets[chosen]
    steps = np.concatenate([np.arange(size) for size in sizes] or [np.zeros(0, np.int64)])
    rows = np.repeat(starts, sizes) + steps
    return Sample(
        observations=np.asarray(shard.observations[rows + np.repeat(chosen, sizes)]),
        actions=np.asarray(shard.actions[rows]),
        returns=np.asarray(shard.returns[rows], np.float64),
        steps=steps,
        episode=np.repeat(np.arange(len(chosen)), sizes),
        success=np.asarray(shard.success[chosen]),
        truncated=np.asarray(shard.timeouts[starts + sizes - 1]),
        groups=shard.groups[chosen].astype(np.int64) + number * _SPLIT_GROUPS,
        population=int(lengths[logged].sum()),
    )
