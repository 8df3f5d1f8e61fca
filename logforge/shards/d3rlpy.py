"""Shards as d3rlpy's MDPDataset, and back from its files.

d3rlpy loses the last transition of an episode that is cut off unless a row with the final observation follows it, and
guesses the number of actions from the largest id it sees. `to_mdp_dataset` settles both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logforge.core import import_d3rlpy, need, plain_file
from logforge.schemas import InputError, Manifest, Mismatch, UsageError
from logforge.shards.arrays import EpisodeArrays
from logforge.shards.batches import Array
from logforge.shards.reader import Shard

if TYPE_CHECKING:
    from d3rlpy.dataset import Episode, ReplayBuffer


def to_mdp_dataset(shard: Shard) -> ReplayBuffer:
    """The split as d3rlpy's replay buffer, with all its transitions and all the vocabulary's actions.

    Observations stay memory-mapped where they lie in one float32 file. An episode that was cut off gets a sentinel row
    (final observation, action 0, reward 0) for its last transition to bootstrap from; the row is never sampled itself.
    """
    shard.verify()
    return _buffer([episode_of(episode) for episode in shard.episodes()], shard.manifest)


def load_mdp_dataset(path: str | Path) -> ReplayBuffer:
    """An exported HDF5 file, with the action size that d3rlpy's own loader forgets; the manifest lies beside it."""
    file = Path(path)
    manifest_file = manifest_beside(file)
    if not file.is_file() or not manifest_file.is_file():
        raise UsageError(f"{file} and {manifest_file.name} are not both there", "make them: logforge export")
    manifest = Manifest.from_json(
        plain_file(file.parent, manifest_file.name).read_bytes(), str(manifest_file)
    )
    episodes, origin, split = _read_hdf5(file)
    if origin != manifest.hash or split not in manifest.splits:
        raise Mismatch(f"{file}: dataset", manifest.hash, f"{origin} {split}", "export it again")
    buffer = _buffer(episodes, manifest)
    if buffer.transition_count != manifest.splits[split].transitions:
        expected = manifest.splits[split].transitions
        raise Mismatch(f"{file}: transitions", expected, buffer.transition_count, "export it again")
    return buffer


def episode_of(episode: EpisodeArrays) -> Episode:
    """An episode as d3rlpy's, with a sentinel row where it was cut off."""
    steps = len(episode.actions)
    # The final observation is the row after the last step: cut off for a true end, the sentinel's row for the other.
    rows = steps if episode.terminal else steps + 1
    made: Episode = import_d3rlpy().dataset.Episode(
        observations=episode.observations[:rows],
        actions=_padded(episode.actions, rows),
        rewards=_padded(episode.rewards, rows),
        terminated=episode.terminal,
    )
    return made


def _padded(values: Array, rows: int) -> Array:
    column = np.zeros((rows, 1), values.dtype)
    column[: len(values), 0] = values
    return column


def _buffer(episodes: Sequence[Episode], manifest: Manifest) -> ReplayBuffer:
    dataset = import_d3rlpy().dataset
    return dataset.ReplayBuffer(dataset.InfiniteBuffer(), episodes=episodes, **signatures(manifest))


def signatures(manifest: Manifest) -> dict[str, Any]:
    """What d3rlpy would otherwise guess, and guess wrong: the fields of its `DatasetInfo`."""
    d3rlpy = import_d3rlpy()
    signature = d3rlpy.dataset.Signature
    return {
        "observation_signature": signature([np.dtype(np.float32)], [(manifest.observation_size,)]),
        "action_signature": signature([np.dtype(np.int32)], [(1,)]),
        "reward_signature": signature([np.dtype(np.float32)], [(1,)]),
        "action_space": d3rlpy.ActionSpace.DISCRETE,
        "action_size": manifest.vocabulary.size,
    }


def _read_hdf5(file: Path) -> tuple[Sequence[Episode], str, str]:
    d3rlpy = import_d3rlpy()
    h5py = need("h5py", "train")
    try:
        with h5py.File(file, "r") as h5:
            origin, split = (str(h5.attrs.get(f"logforge_{key}", "")) for key in ("dataset", "split"))
        with file.open("rb") as stream:
            return d3rlpy.dataset.io.load(d3rlpy.dataset.Episode, stream), origin, split
    except (OSError, KeyError) as error:
        remedy = "make it again: logforge export"
        raise InputError(str(file), f"not an export for d3rlpy: {error}", remedy=remedy) from error


def manifest_beside(file: Path) -> Path:
    """Where the manifest of an exported HDF5 file lies."""
    return file.with_name(f"{file.stem}.manifest.json")
