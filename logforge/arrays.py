"""The arrays of one split, what must hold among them, and how to step through them.

N transitions in E episodes. Transition arrays have N rows. Observations and masks have one row more for every
episode, the one after its last step: the observation of transition k in episode e is row k + e, the next is k + e + 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge import array_rules
from logforge.array_rules import ARRAYS
from logforge.schemas.errors import CheckFailed, Problem
from logforge.schemas.manifest import SplitSummary, Vocabulary

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]


class Batch(NamedTuple):
    """Some transitions, as numpy arrays or as torch tensors. `indices` says which."""

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminals: Any
    masks: Any
    next_masks: Any
    returns: Any
    weights: Any
    indices: Any


class EpisodeArrays(NamedTuple):
    """Views of one episode: n steps, n + 1 observations and masks."""

    actions: Array
    rewards: Array
    returns: Array
    propensities: Array
    weights: Array
    observations: Array
    masks: Array
    terminal: bool
    success: bool | None


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitArrays:
    """The arrays of one split; `ARRAYS` gives their dtypes and shapes."""

    actions: Array
    rewards: Array
    terminals: Array
    timeouts: Array
    returns: Array
    propensities: Array
    weights: Array
    success: Array
    groups: Array
    augmented: Array
    episode_offsets: Array
    observations: Array
    masks: Array
    observation_offsets: Array

    @classmethod
    def empty(cls, observation_size: int, action_size: int) -> SplitArrays:
        """A split without episodes."""
        lengths = {"N": 0, "E": 0, "E+1": 1, "N+E": 0, "D": observation_size, "A": action_size}
        shapes = {name: [lengths[part] for part in spec.shape.split(", ")] for name, spec in ARRAYS.items()}
        return cls(**{name: np.zeros(shapes[name], spec.dtype) for name, spec in ARRAYS.items()})

    @property
    def size(self) -> int:
        """How many transitions."""
        return len(self.actions)

    @property
    def episode_count(self) -> int:
        """How many episodes."""
        return len(self.success)

    @property
    def observation_size(self) -> int:
        """Columns of an observation."""
        return int(self.observations.shape[1])

    @property
    def action_size(self) -> int:
        """Actions of the vocabulary, used or not."""
        return int(self.masks.shape[1])

    @cached_property
    def episode_index(self) -> Array:
        """The episode of each transition."""
        return np.repeat(np.arange(self.episode_count), np.diff(self.episode_offsets))

    @cached_property
    def observation_rows(self) -> Array:
        """The row of each transition's observation and mask; the next state's row is one further."""
        return np.arange(self.size) + self.episode_index

    def next_observations(self, indices: Array | slice = slice(None)) -> Array:
        """What was observed after these transitions; after a truncated episode's last step, its final observation."""
        found: Array = self.observations[self.observation_rows[indices] + 1]
        return found

    def episodes(self) -> Iterator[EpisodeArrays]:
        """Every episode in order."""
        return (self.episode(index) for index in range(self.episode_count))

    def episode(self, index: int) -> EpisodeArrays:
        """Views of one episode's arrays."""
        steps = slice(*self.episode_offsets[index : index + 2])
        rows = slice(*self.observation_offsets[index : index + 2])
        return EpisodeArrays(
            actions=self.actions[steps],
            rewards=self.rewards[steps],
            returns=self.returns[steps],
            propensities=self.propensities[steps],
            weights=self.weights[steps],
            observations=self.observations[rows],
            masks=self.masks[rows],
            terminal=bool(self.terminals[steps][-1]),
            success=None if self.success[index] < 0 else bool(self.success[index]),
        )

    def batch(self, indices: Array) -> Batch:
        """Copies of these transitions."""
        rows = self.observation_rows[indices]
        return Batch(
            observations=self.observations[rows],
            actions=self.actions[indices],
            rewards=self.rewards[indices],
            next_observations=self.observations[rows + 1],
            terminals=self.terminals[indices],
            masks=self.masks[rows],
            next_masks=self.masks[rows + 1],
            returns=self.returns[indices],
            weights=self.weights[indices],
            indices=indices,
        )

    def torch_batches(
        self, batch_size: int, seed: int, device: str | torch.device = "cpu"
    ) -> Iterator[Batch]:
        """One pass over all transitions in an order set by the seed, as torch tensors; the last batch may be smaller."""
        import torch

        order = np.random.default_rng(seed).permutation(self.size)
        for start in range(0, self.size, batch_size):
            batch = self.batch(order[start : start + batch_size])
            yield Batch(*(torch.from_numpy(part).to(device) for part in batch))

    def summary(self) -> SplitSummary:
        """The counts the manifest keeps."""
        return SplitSummary(
            episodes=self.episode_count,
            transitions=self.size,
            terminals=int(self.terminals.sum()),
            timeouts=int(self.timeouts.sum()),
            successes=int((self.success == 1).sum()),
        )

    def shape_problems(self, vocabulary: Vocabulary, observation_size: int) -> list[Problem]:
        """What is wrong with dtypes and shapes; needs no look at the values."""
        return array_rules.shapes(self, vocabulary.size, observation_size)

    def check(self, vocabulary: Vocabulary, observation_size: int, name: str = "split") -> None:
        """Raise CheckFailed with every rule these arrays break, and where first."""
        problems = self.shape_problems(vocabulary, observation_size) or list(array_rules.offsets(self))
        # Rows can only be placed in their episodes once shapes and offsets are right.
        problems = problems or [*array_rules.ends(self), *array_rules.values(self, vocabulary)]
        if problems:
            raise CheckFailed(
                f"the arrays of {name!r} are not consistent", problems, "build the dataset again"
            )
