"""Datasets for other tools: d3rlpy's replay buffer and HDF5 file, and Parquet.

d3rlpy loses the last transition of an episode that is cut off unless a row with the final observation follows it, and
guesses the number of actions from the largest id it sees. Both are settled here, in `to_mdp_dataset`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logforge.arrays import Array, EpisodeArrays
from logforge.atomic import replaced_file
from logforge.optional import import_d3rlpy, need
from logforge.schemas.errors import InputError, Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import Manifest
from logforge.shards import Shard, load_shards

if TYPE_CHECKING:
    from d3rlpy.dataset import Episode, ReplayBuffer

_ROWS = 8192


def to_mdp_dataset(shard: Shard) -> ReplayBuffer:
    """The split as d3rlpy's replay buffer, with all its transitions and all the vocabulary's actions.

    Observations stay memory-mapped. An episode that was cut off gets a sentinel row (final observation, action 0,
    reward 0) for its last transition to bootstrap from; the row is never sampled itself.
    """
    shard.verify()
    return _buffer([_episode(episode) for episode in shard.episodes()], shard.manifest)


def load_mdp_dataset(path: str | Path) -> ReplayBuffer:
    """An exported HDF5 file, with the action size that d3rlpy's own loader forgets; the manifest lies beside it."""
    file = Path(path)
    manifest_file = _manifest_beside(file)
    if not file.is_file() or not manifest_file.is_file():
        raise UsageError(f"{file} and {manifest_file.name} are not both there", "make them: logforge export")
    manifest = Manifest.from_json(manifest_file.read_bytes(), str(manifest_file))
    episodes, origin, split = _read_hdf5(file)
    if origin != manifest.hash or split not in manifest.splits:
        raise Mismatch(f"{file}: dataset", manifest.hash, f"{origin} {split}", "export it again")
    buffer = _buffer(episodes, manifest)
    if buffer.transition_count != manifest.splits[split].transitions:
        expected = manifest.splits[split].transitions
        raise Mismatch(f"{file}: transitions", expected, buffer.transition_count, "export it again")
    return buffer


def export(dataset: str | Path, format: str, out: str | Path, split: str = "train") -> Path:
    """Write one split of a dataset as another tool's file: `d3rlpy` (HDF5, its manifest beside it) or `parquet`."""
    if format not in FORMATS:
        raise UnknownName("export format", format, list(FORMATS))
    shard = load_shards(dataset, split)
    shard.verify()
    if not shard.size:
        remedy = "name another --split, or ingest more episodes and build again"
        raise UsageError(f"split {split!r} of {dataset} has no transitions to export", remedy)
    target = Path(out)
    FORMATS[format](shard, target)
    return target


def _episode(episode: EpisodeArrays) -> Episode:
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
    d3rlpy = import_d3rlpy()
    dataset = d3rlpy.dataset
    return dataset.ReplayBuffer(
        dataset.InfiniteBuffer(),
        episodes=episodes,
        observation_signature=dataset.Signature([np.dtype(np.float32)], [(manifest.observation_size,)]),
        action_signature=dataset.Signature([np.dtype(np.int32)], [(1,)]),
        reward_signature=dataset.Signature([np.dtype(np.float32)], [(1,)]),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=manifest.vocabulary.size,
    )


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


def _write_hdf5(shard: Shard, target: Path) -> None:
    h5py = need("h5py", "train")
    buffer = to_mdp_dataset(shard)
    with replaced_file(target) as fresh:
        with fresh.open("w+b") as stream:
            buffer.dump(stream)
        with h5py.File(fresh, "r+") as h5:
            h5.attrs["logforge_dataset"] = shard.manifest.hash
            h5.attrs["logforge_split"] = shard.split
    with replaced_file(_manifest_beside(target)) as fresh:
        fresh.write_text(shard.manifest.to_json(), encoding="utf-8")


def _manifest_beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}.manifest.json")


def _write_parquet(shard: Shard, target: Path) -> None:
    """One row per transition; the manifest goes into the schema's metadata."""
    metadata = {b"logforge_manifest": shard.manifest.to_json().encode()}
    schema = _rows(shard, 0, 1).schema.with_metadata(metadata)
    with replaced_file(target) as fresh, pq.ParquetWriter(fresh, schema) as writer:
        for start in range(0, shard.size, _ROWS):
            writer.write_table(_rows(shard, start, min(start + _ROWS, shard.size)).cast(schema))


def _rows(shard: Shard, start: int, stop: int) -> pa.Table:
    indices = np.arange(start, stop)
    batch, episodes = shard.batch(indices), shard.episode_index[start:stop]
    names = pa.array(shard.manifest.actions)
    columns: dict[str, Any] = {
        "episode": episodes,
        "step": indices - shard.episode_offsets[episodes],
        "observation": _lists(batch.observations),
        "mask": _lists(batch.masks),
        "action_id": batch.actions,
        "action": names.take(pa.array(batch.actions)),
        "reward": batch.rewards,
        "next_observation": _lists(batch.next_observations),
        "next_mask": _lists(batch.next_masks),
        "terminal": batch.terminals,
        "timeout": shard.timeouts[start:stop],
        "return_to_go": batch.returns,
        "propensity": pa.array(shard.propensities[start:stop], from_pandas=True),
        "weight": batch.weights,
    }
    return pa.table(columns)


def _lists(rows: Array) -> pa.Array[Any]:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


FORMATS: dict[str, Callable[[Shard, Path], None]] = {"d3rlpy": _write_hdf5, "parquet": _write_parquet}
"""What `export` can write."""
