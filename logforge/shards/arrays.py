"""The arrays of one split, what must hold among them, and how to step through them.

N transitions in E episodes. Transition arrays have N rows. Observations and masks have one row more for every
episode, the one after its last step: the observation of transition k in episode e is row k + e, the next is k + e + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import gather, kept_rows
from logforge.schemas import SplitSummary, UsageError
from logforge.shards.batches import Array, Batch, torch_batches

if TYPE_CHECKING:
    import torch


class ArraySpec(NamedTuple):
    """One array of a split: its dtype, its shape in N, E, D (observation size), A (actions) and K (numeric arguments), and
    its meaning."""

    dtype: str
    shape: str
    meaning: str


ARRAYS: dict[str, ArraySpec] = {
    "actions": ArraySpec("int32", "N", "id of the action in the manifest's `actions`"),
    "rewards": ArraySpec("float32", "N", "reward of the step"),
    "terminals": ArraySpec("bool", "N", "the episode truly ended with this step"),
    "timeouts": ArraySpec(
        "bool", "N", "the log stops with this step, the world did not: values bootstrap here"
    ),
    "returns": ArraySpec("float32", "N", "discounted sum of the rewards from this step on"),
    "propensities": ArraySpec(
        "float32", "N", "probability of the action under who logged it; NaN when unknown"
    ),
    "propensity_kinds": ArraySpec(
        "int8", "N", "where the propensity is from: 0 logged, 1 known, 2 estimated, 3 missing"
    ),
    "behaviour_policies": ArraySpec("int32", "N", "who chose: place in `behaviour_policies`, or -1"),
    "proposed_actions": ArraySpec(
        "int32", "N", "id of the action that was proposed; mostly the executed one"
    ),
    "argument_templates": ArraySpec("int32", "N", "place in `argument_templates`, or -1"),
    "argument_numbers": ArraySpec(
        "float32", "N, K", "numeric arguments, as `argument_numbers` names them; 0 where unknown"
    ),
    "argument_numbers_known": ArraySpec("bool", "N, K", "which of them the call has"),
    "weights": ArraySpec("float32", "N", "sample weight"),
    "success": ArraySpec("int8", "E", "the episode's outcome: 1, 0, or -1 when the log has none"),
    "groups": ArraySpec("int32", "E", "episodes of one split group (trials of one task, say) share a number"),
    "augmented": ArraySpec("bool", "E", "an augmenter made the episode from a logged one"),
    "episode_offsets": ArraySpec(
        "int64", "E+1", "steps of episode e: `episode_offsets[e]:episode_offsets[e + 1]`"
    ),
    "observations": ArraySpec("float32", "N+E, D", "n + 1 observations of every episode"),
    "masks": ArraySpec("bool", "N+E, A", "which actions were allowed, for the same rows"),
    "observation_offsets": ArraySpec("int64", "E+1", "rows of episode e in `observations` and `masks`"),
}
"""Every array of a split, by the name of its file."""


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
    propensity_kinds: Array
    behaviour_policies: Array
    proposed_actions: Array
    argument_templates: Array
    argument_numbers: Array
    argument_numbers_known: Array
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
        lengths = {"N": 0, "E": 0, "E+1": 1, "N+E": 0, "D": observation_size, "A": action_size, "K": 0}
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

    def only(self, kept: NDArray[np.bool_], on_disk: bool = False) -> SplitArrays:
        """The arrays of the episodes that are kept (one truth value each), in their order. With `on_disk`, observations and masks
        stay where they are mapped, and rows are copied when they are indexed."""
        steps = np.repeat(kept, np.diff(self.episode_offsets))
        rows = np.repeat(kept, np.diff(self.observation_offsets))
        chosen = {"N": steps, "E": kept, "N+E": rows}
        arrays = {
            name: kept_rows(
                getattr(self, name),
                chosen[spec.shape.split(", ")[0]],
                on_disk and spec.shape.startswith("N+E"),
            )
            for name, spec in ARRAYS.items()
            if spec.shape != "E+1"
        }
        arrays["groups"] = np.unique(arrays["groups"], return_inverse=True)[1].astype(np.int32)
        lengths = np.diff(self.episode_offsets)[kept]
        for name, size in (("episode_offsets", lengths), ("observation_offsets", lengths + 1)):
            arrays[name] = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
        return SplitArrays(**arrays)

    def steps_ahead(self, indices: Array, n_step: int) -> Array:
        """How far `n_step` steps lead from these transitions: no further than their episodes' ends."""
        if n_step == 1:
            return np.ones(len(indices), np.int64)
        found: Array = np.minimum(n_step, self.episode_offsets[self.episode_index[indices] + 1] - indices)
        return found

    def rewards_ahead(self, indices: Array, intervals: Array, gamma: float) -> Array:
        """The discounted sum of the rewards of so many steps from these transitions on."""
        if not len(intervals) or intervals.max() == 1:
            return self.rewards[indices]
        steps = np.arange(intervals.max())
        places = np.minimum(indices[:, None] + steps, self.size - 1)
        found = self.rewards[places] * (steps < intervals[:, None]) * gamma**steps
        return np.asarray(found.sum(axis=1), np.float32)

    def batch(
        self,
        indices: Array,
        *,
        n_step: int = 1,
        gamma: float | None = None,
        empty: Callable[[tuple[int, ...], Any], Array] = np.empty,
    ) -> Batch:
        """Copies of these transitions, float32 observations [B, D] and masks [B, A] among them.

        With `n_step`, rewards are discounted sums (by `gamma`) over so many steps or fewer, `intervals` says over how many,
        and what comes next is that much later. `empty` makes the arrays that observations and masks are copied into.
        """
        if n_step < 1 or (n_step > 1 and gamma is None):
            raise UsageError(f"{n_step} steps ahead", "give n_step from 1 up, and gamma where it is above 1")
        rows, ahead = self.observation_rows[indices], self.steps_ahead(indices, n_step)

        def copied(array: Array, wanted: Array) -> Array:
            return gather(array, wanted, empty((len(wanted), *array.shape[1:]), array.dtype))

        return Batch(
            observations=copied(self.observations, rows),
            actions=self.actions[indices],
            rewards=self.rewards_ahead(indices, ahead, gamma or 0.0),
            next_observations=copied(self.observations, rows + ahead),
            terminals=self.terminals[indices + ahead - 1],
            masks=copied(self.masks, rows),
            next_masks=copied(self.masks, rows + ahead),
            returns=self.returns[indices],
            weights=self.weights[indices],
            proposed_actions=self.proposed_actions[indices],
            argument_templates=self.argument_templates[indices],
            argument_numbers=self.argument_numbers[indices],
            argument_numbers_known=self.argument_numbers_known[indices],
            intervals=ahead,
            indices=indices,
        )

    def torch_batches(
        self,
        batch_size: int,
        seed: int,
        device: str | torch.device | None = None,
        *,
        pin: bool | None = None,
        n_step: int = 1,
        gamma: float | None = None,
    ) -> Iterator[Batch]:
        """One pass over all transitions in an order set by the seed, as torch tensors: see logforge/shards/batches.py."""
        return torch_batches(self, batch_size, seed, device, pin=pin, n_step=n_step, gamma=gamma)

    def summary(self) -> SplitSummary:
        """The counts the manifest keeps."""
        return SplitSummary(
            episodes=self.episode_count,
            transitions=self.size,
            terminals=int(self.terminals.sum()),
            timeouts=int(self.timeouts.sum()),
            successes=int((self.success == 1).sum()),
        )
