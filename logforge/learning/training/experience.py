"""The transitions of a split as tensors, each member's own draws from them, and draws from two splits mixed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import StoredRows
from logforge.learning.training.vocabulary_growth import Growth
from logforge.shards import SplitArrays

if TYPE_CHECKING:
    import torch

_DRAWS = 256
"""Batches whose rows are drawn at once."""


class Drawn(NamedTuple):
    """A batch for each member: [members, rows, …]. `known` are the actions on offer and the logged one, which may be outside the
    mask; `templates` are those of the arguments, `policies` who decided, and `next_actions` what the same
    one did next: −1 where there is nothing, or another did it."""

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    goes_on: torch.Tensor
    next_observations: torch.Tensor
    known: torch.Tensor
    next_allowed: torch.Tensor
    weights: torch.Tensor
    templates: torch.Tensor
    policies: torch.Tensor
    next_actions: torch.Tensor


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """Without a copy: what is mapped from disk stays there until it is drawn. Nothing here writes to it."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def succeeded(arrays: SplitArrays) -> NDArray[np.bool_]:
    """Which episodes truly ended, and as a success."""
    found: NDArray[np.bool_] = (arrays.success == 1) & arrays.terminals[arrays.episode_offsets[1:] - 1]
    return found


class Replay:
    """All transitions of a split on one device. `invalid` is the action that no policy takes. With `growth` they are those of
    an earlier dataset, drawn as the later one has them; `templates` tells then where each of its templates is now, or −1."""

    def __init__(
        self,
        arrays: SplitArrays,
        invalid: int,
        device: str = "cpu",
        growth: Growth | None = None,
        templates: Sequence[int] = (),
    ) -> None:
        def put(array: NDArray[Any], kind: type) -> torch.Tensor:
            return _tensor(np.ascontiguousarray(array, dtype=kind)).to(device)

        allowed = np.array(arrays.masks, dtype=np.bool_) if growth is None else growth.masks(arrays.masks)
        allowed[:, invalid] = False
        self.size, self.device = arrays.size, device
        self._growth = growth if growth is not None and growth.changes else None
        observations: object = arrays.observations
        self._stored = observations if isinstance(observations, StoredRows) else None
        self._observations = None if self._stored else put(arrays.observations, np.float32)
        self.allowed = put(allowed, np.bool_)
        self.rows = put(arrays.observation_rows, np.int64)
        self.actions = put(arrays.actions, np.int64)
        self.rewards = put(arrays.rewards, np.float32)
        self.goes_on = put(~arrays.terminals, np.float32)
        self.weights = put(arrays.weights, np.float32)
        self.policies = put(arrays.behaviour_policies, np.int64)
        # The last place answers for -1.
        found = arrays.argument_templates
        self.templates = put(found if growth is None else np.array([*templates, -1])[found], np.int64)

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
            templates=self.templates[indices],
            policies=self.policies[indices],
            next_actions=self._next_actions(indices, rows),
        )

    def _next_actions(self, indices: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Behind an episode's last step lies an observation of its own, so the next step's is not the next row. What another policy
        did is not what this one would have done."""
        later = (indices + 1).clamp(max=self.size - 1)
        other = (self.rows[later] != rows + 1) | (self.policies[later] != self.policies[indices])
        return self.actions[later].masked_fill(other, -1)

    def _observed(self, rows: torch.Tensor) -> torch.Tensor:
        found = self._stored_at(rows)
        if self._growth is None:
            return found
        grown = found.new_zeros((*rows.shape, self._growth.size))
        grown[..., self._growth.columns] = found
        return grown

    def _stored_at(self, rows: torch.Tensor) -> torch.Tensor:
        if self._observations is not None:
            return self._observations[rows]
        assert self._stored is not None
        found = self._stored.take(rows.reshape(-1).cpu().numpy()).astype(np.float32, copy=False)
        return _tensor(found).reshape(*rows.shape, -1).to(self.device)

    def batches(self, seeds: Sequence[int | tuple[int, int]], size: int) -> Iterator[Drawn]:
        """Endless. Each member draws with replacement by a generator of its own, whatever members stand beside it."""
        import torch

        generators = [np.random.default_rng(seed) for seed in seeds]
        while True:
            drawn = np.stack([g.integers(self.size, size=(_DRAWS, size)) for g in generators], axis=1)
            for indices in torch.from_numpy(drawn).to(self.device):
                yield self.batch(indices)


class Mixed:
    """Transitions of two splits, so many of each batch from the earlier one."""

    def __init__(self, later: Replay, earlier: Replay, share: float) -> None:
        self.later, self.earlier, self.share = later, earlier, share

    def batches(self, seeds: Sequence[int], size: int) -> Iterator[Drawn]:
        """Endless, as a split's own; where the share comes to no row, they are the later split's."""
        import torch

        again = round(self.share * size)
        if not again:
            yield from self.later.batches(seeds, size)
            return
        apart = [(seed, 1) for seed in seeds]  # draws that have nothing to do with the later split's
        for pair in zip(
            self.later.batches(seeds, size - again), self.earlier.batches(apart, again), strict=True
        ):
            yield Drawn(*(torch.cat(parts, dim=1) for parts in zip(*pair, strict=True)))
