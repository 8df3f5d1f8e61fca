"""The transitions of a split as tensors, and each member's own draws from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.arrays import SplitArrays
from logforge.shard_rows import StoredRows

if TYPE_CHECKING:
    import torch

_DRAWS = 256
"""Batches whose rows are drawn at once."""


class Drawn(NamedTuple):
    """A batch for each member: [members, rows, …]. `allowed` are the actions on offer; `known` are these and the logged one,
    which may be outside the mask."""

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    goes_on: torch.Tensor
    next_observations: torch.Tensor
    known: torch.Tensor
    next_allowed: torch.Tensor
    weights: torch.Tensor


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """Without a copy: what is mapped from disk stays there until it is drawn. Nothing here writes to it."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


class Replay:
    """All transitions of a split on one device. `invalid` is the action that no policy takes."""

    def __init__(self, arrays: SplitArrays, invalid: int, device: str = "cpu") -> None:
        def put(array: NDArray[Any], kind: type) -> torch.Tensor:
            return _tensor(np.ascontiguousarray(array, dtype=kind)).to(device)

        allowed = np.array(arrays.masks, dtype=np.bool_)
        allowed[:, invalid] = False
        self.size, self.device = arrays.size, device
        observations: object = arrays.observations
        self._stored = observations if isinstance(observations, StoredRows) else None
        self._observations = None if self._stored else put(arrays.observations, np.float32)
        self.allowed = put(allowed, np.bool_)
        self.rows = put(arrays.observation_rows, np.int64)
        self.actions = put(arrays.actions, np.int64)
        self.rewards = put(arrays.rewards, np.float32)
        self.goes_on = put(~arrays.terminals, np.float32)
        self.weights = put(arrays.weights, np.float32)

    def batch(self, indices: torch.Tensor) -> Drawn:
        """The transitions at `indices` [members, rows]."""
        rows, actions = self.rows[indices], self.actions[indices]
        return Drawn(
            observations=self._observed(rows),
            actions=actions,
            rewards=self.rewards[indices],
            goes_on=self.goes_on[indices],
            next_observations=self._observed(rows + 1),
            known=self.allowed[rows].scatter(2, actions[:, :, None], True),
            next_allowed=self.allowed[rows + 1],
            weights=self.weights[indices],
        )

    def _observed(self, rows: torch.Tensor) -> torch.Tensor:
        if self._observations is not None:
            return self._observations[rows]
        assert self._stored is not None
        found = self._stored.take(rows.reshape(-1).cpu().numpy()).astype(np.float32, copy=False)
        return _tensor(found).reshape(*rows.shape, -1).to(self.device)

    def batches(self, seeds: Sequence[int], size: int) -> Iterator[Drawn]:
        """Endless. Each member draws with replacement by a generator of its own, whatever members stand beside it."""
        import torch

        generators = [np.random.default_rng(seed) for seed in seeds]
        while True:
            drawn = np.stack([g.integers(self.size, size=(_DRAWS, size)) for g in generators], axis=1)
            for indices in torch.from_numpy(drawn).to(self.device):
                yield self.batch(indices)
