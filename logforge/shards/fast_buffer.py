"""A replay buffer that d3rlpy's discrete algorithms train on and that gathers whole batches from the shards.

d3rlpy makes an object for every transition and stacks them. Here a batch is a few vectorised reads of the memory maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NoReturn, TypeVar, overload

import numpy as np

from logforge.core import gather, import_d3rlpy
from logforge.schemas import UsageError
from logforge.shards.array_pool import Spare
from logforge.shards.batches import Array
from logforge.shards.d3rlpy import episode_of, signatures, to_mdp_dataset
from logforge.shards.reader import Shard

if TYPE_CHECKING:
    from d3rlpy.dataset import (
        DatasetInfo,
        Episode,
        PartialTrajectory,
        TrajectoryMiniBatch,
        Transition,
        TransitionMiniBatch,
    )

T = TypeVar("T")
_CHUNK = 1 << 16


class FastBuffer:
    """A split as d3rlpy's `ReplayBufferBase` (it is registered as one: importing d3rlpy takes seconds).

    It draws from numpy's global generator as `ReplayBuffer` does: after `d3rlpy.seed` both give the same batches. Every
    transition is there: an episode that was cut off goes on to its final observation, as in `to_mdp_dataset`. With
    `n_steps`, batches are those of `MultiStepTransitionPicker(n_steps, gamma)`; γ is the manifest's where none is given.
    Arrays of batches that nobody holds any more are used again.
    """

    def __init__(self, shard: Shard, n_steps: int = 1, gamma: float | None = None) -> None:
        if n_steps < 1:
            raise UsageError(f"{n_steps} steps ahead", "give n_steps from 1 up")
        d3rlpy = import_d3rlpy()
        d3rlpy.dataset.ReplayBufferBase.register(type(self))
        self.shard, self.n_steps = shard, n_steps
        self.gamma = shard.manifest.gamma if gamma is None else gamma
        pickers = d3rlpy.dataset
        self.transition_picker: Any = (
            pickers.BasicTransitionPicker() if n_steps == 1 else pickers.MultiStepTransitionPicker(n_steps, self.gamma)
        )  # fmt: skip
        self.trajectory_slicer: Any = pickers.BasicTrajectorySlicer()
        self.dataset_info: DatasetInfo = d3rlpy.dataset.DatasetInfo(**signatures(shard.manifest))
        self._spare = Spare()

    @property
    def transition_count(self) -> int:
        """How many transitions can be drawn: all."""
        return self.shard.size

    def size(self) -> int:
        """How many episodes."""
        return self.shard.episode_count

    @property
    def episodes(self) -> Sequence[Episode]:
        """d3rlpy's episodes, each made when it is asked for."""
        return _Lazy(self.size(), lambda index: episode_of(self.shard.episode(index)))

    @property
    def buffer(self) -> _Transitions:
        """Every transition as d3rlpy stores it: its episode, and its place in it."""
        return _Transitions(self.transition_count, self._located, self)

    def sample_transition(self) -> Transition:
        """One transition at random."""
        return self._transition(int(np.random.randint(self.transition_count)))

    def sample_transition_batch(self, batch_size: int) -> TransitionMiniBatch:
        """Transitions at random, with replacement."""
        return self.transitions(self._drawn(batch_size))

    def sample_trajectory(self, length: int) -> PartialTrajectory:
        """The steps that lead up to a transition at random, padded in front with zeros."""
        return self.trajectory_slicer(*self._located(int(np.random.randint(self.transition_count))), length)

    def sample_trajectory_batch(self, batch_size: int, length: int) -> TrajectoryMiniBatch:
        """Such trajectories at random, with replacement."""
        return self.trajectories(self._drawn(batch_size), length)

    def transitions(self, indices: Array) -> TransitionMiniBatch:
        """These transitions: what d3rlpy's own buffer gives for the same ones."""
        columns = self._columns.take(indices, axis=0)
        actions, rewards, next_actions, terminals, intervals = (columns[:, n : n + 1] for n in range(5))
        rows = self.shard.observation_rows.take(indices)
        following = self._observations(rows + intervals[:, 0].astype(np.int64))
        following[np.flatnonzero(terminals)] = 0
        made: TransitionMiniBatch = import_d3rlpy().dataset.TransitionMiniBatch(
            observations=self._observations(rows),
            actions=actions,
            rewards=rewards,
            next_observations=following,
            next_actions=next_actions,
            terminals=terminals,
            intervals=intervals,
            transitions=_Lazy(len(indices), lambda place: self._transition(int(indices[place]))),
        )
        return made

    def trajectories(self, indices: Array, length: int) -> TrajectoryMiniBatch:
        """The `length` steps that end with each of these transitions; what lies before their episodes is zeros.

        Returns to go are float64 differences of running sums, rounded once; d3rlpy adds up in float32, so its own differ
        in the last digits.
        """
        shard = self.shard
        places = indices[:, None] - np.arange(length - 1, -1, -1)
        episodes = shard.episode_index[indices]
        first = shard.episode_offsets[episodes][:, None]
        there = places >= first
        places = np.where(there, places, indices[:, None])
        observations = self._observations(shard.observation_rows[places].reshape(-1))
        observations = observations.reshape(*places.shape, shard.observation_size)
        observations[~there] = 0
        to_go = self._sums[shard.episode_offsets[episodes + 1]][:, None] - self._sums[places]

        def padded(values: Array) -> Array:
            return np.asarray(np.where(there, values, 0), np.float32)

        made: TrajectoryMiniBatch = import_d3rlpy().dataset.TrajectoryMiniBatch(
            observations=observations,
            actions=padded(shard.actions[places])[..., None],
            rewards=padded(shard.rewards[places])[..., None],
            returns_to_go=padded(to_go)[..., None],
            terminals=padded(shard.terminals[places])[..., None],
            timesteps=padded(places - first + 1),
            masks=there.astype(np.float32),
            length=length,
        )
        return made

    def dump(self, f: BinaryIO) -> None:
        """Write d3rlpy's HDF5, by its own writer."""
        to_mdp_dataset(self.shard).dump(f)

    def append(self, *_: Any) -> NoReturn:
        """Shards are not written to."""
        raise UsageError("a dataset takes no more steps", "ingest the logs and build the dataset again")

    append_episode = clip_episode = append

    @classmethod
    def load(cls, *_: Any, **__: Any) -> NoReturn:
        """A file of d3rlpy's is no dataset folder."""
        raise UsageError("this buffer is made from a shard", "FastBuffer(load_shards(FOLDER))")

    from_episode_generator = load

    def _drawn(self, count: int) -> Array:
        return np.random.randint(self.transition_count, size=count)

    def _located(self, index: int) -> tuple[Episode, int]:
        episode = int(self.shard.episode_index[index])
        return self.episodes[episode], index - int(self.shard.episode_offsets[episode])

    def _transition(self, index: int) -> Transition:
        return self.transition_picker(*self._located(index))

    def _observations(self, rows: Array) -> Array:
        out = self._spare.empty((len(rows), self.shard.observation_size), np.float32)
        return gather(self.shard.observations, rows, out)

    @cached_property
    def _columns(self) -> Array:
        """Action, reward, next action, terminal and interval of every transition: little beside its observation."""
        found = np.empty((self.shard.size, 5), np.float32)
        for start in range(0, len(found), _CHUNK):
            stop = min(start + _CHUNK, len(found))
            found[start:stop] = np.stack(self._worked_out(np.arange(start, stop)), axis=1)
        return found

    def _worked_out(self, indices: Array) -> list[Array]:
        shard = self.shard
        ahead = shard.steps_ahead(indices, self.n_steps)
        last = indices + ahead - 1
        # After an episode's last step comes no action: d3rlpy's zero for a true end, the sentinel's for the other.
        going_on = ~(shard.terminals[last] | shard.timeouts[last])
        next_actions = shard.actions[np.minimum(last + 1, shard.size - 1)] * going_on
        rewards = shard.rewards_ahead(indices, ahead, self.gamma)
        return [shard.actions[indices], rewards, next_actions, shard.terminals[last], ahead]

    @cached_property
    def _sums(self) -> Array:
        return np.concatenate([[0.0], np.cumsum(self.shard.rewards, dtype=np.float64)])


class _Lazy(Sequence[T], Generic[T]):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(place) for place in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"item {index} of {self._count}")
        return self._make(index % self._count)


class _Transitions(_Lazy[tuple[Any, int]]):
    """d3rlpy's `BufferProtocol` over a shard."""

    def __init__(self, count: int, make: Callable[[int], tuple[Any, int]], buffer: FastBuffer) -> None:
        super().__init__(count, make)
        self._buffer = buffer
        self.append = buffer.append

    @property
    def episodes(self) -> Sequence[Episode]:
        """The episodes that the transitions are of."""
        return self._buffer.episodes

    @property
    def transition_count(self) -> int:
        """How many transitions."""
        return len(self)
