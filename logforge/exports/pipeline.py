"""Datasets for other tools: `export` writes any form of exports/catalogue.py, and d3rlpy's replay buffer is made here.

d3rlpy loses the last transition of an episode that is cut off unless a row with the final observation follows it, and
guesses the number of actions from the largest id it sees. Both are settled here, in `to_mdp_dataset`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logforge.core.extras import import_d3rlpy, need
from logforge.core.progress import Tick, silent
from logforge.exports.catalogue import TRANSITIONS, Format, format_named
from logforge.exports.job import Job, Options, Written, check_build
from logforge.schemas.errors import InputError, Mismatch, UsageError
from logforge.schemas.manifest import Manifest
from logforge.shards.arrays import Array, EpisodeArrays
from logforge.shards.reader import SPLITS, Shard, load_shards, read_manifest
from logforge.store.files import own_files
from logforge.store.store import DEFAULT_PATH, open_store

if TYPE_CHECKING:
    from d3rlpy.dataset import Episode, ReplayBuffer


@dataclass(frozen=True)
class ExportReport:
    """What was written: rows by split, how many of the split's transitions (or contrasts) they hold, and what was left out."""

    dataset: str
    format: str
    out: str
    counts: str
    written: tuple[Written, ...]
    bytes: int

    @property
    def path(self) -> Path:
        """The file or folder."""
        return Path(self.out)

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return sum(part.rows for part in self.written)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        splits = {
            part.split: {
                "rows": part.rows,
                self.counts: part.covered,
                "left_out": dict(sorted(part.left_out.items())),
                "of": part.total,
            }
            for part in self.written
        }
        about = {name: getattr(self, name) for name in ("dataset", "format", "out", "rows", "bytes")}
        return {**about, "splits": splits}

    def render(self) -> str:
        """For people: a line for each split, and one for each reason why something was left out."""
        lines = [f"{self.dataset} → {self.out} ({self.format}, {self.bytes:,} bytes)"]
        for part in self.written:
            lines.append(
                f"{part.split}: {part.rows:,} rows, {part.covered:,} of {part.total:,} {self.counts}"
            )
            lines += [f"  left out: {count:,} ({reason})" for reason, count in sorted(part.left_out.items())]
        return "\n".join(lines)


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
    manifest = Manifest.from_json(manifest_file.read_bytes(), str(manifest_file))
    episodes, origin, split = _read_hdf5(file)
    if origin != manifest.hash or split not in manifest.splits:
        raise Mismatch(f"{file}: dataset", manifest.hash, f"{origin} {split}", "export it again")
    buffer = _buffer(episodes, manifest)
    if buffer.transition_count != manifest.splits[split].transitions:
        expected = manifest.splits[split].transitions
        raise Mismatch(f"{file}: transitions", expected, buffer.transition_count, "export it again")
    return buffer


def export(
    dataset: str | Path,
    format: str,
    out: str | Path,
    split: str | None = None,
    *,
    store: str | Path = DEFAULT_PATH,
    options: Options | None = None,
    progress: Tick = silent,
) -> ExportReport:
    """Write one split of a dataset (train, unless another is named) in another tool's form; see exports/catalogue.py.

    Formats that hold every split write them all where none is named. Those that hold texts read them from the store that the
    dataset was built from. `out` appears whole or not at all. Raises UsageError for an empty split or an option that the
    format does not take, MissingExtra, and Mismatch when store and dataset do not belong together.
    """
    form, target, chosen = format_named(format), Path(out), options or Options()
    chosen.check(form)
    if target.resolve() in own_files(Path(store)):
        raise UsageError(f"{out} is the store, or a file of it", "name another file with --out")
    shards = _shards(dataset, form, split)
    job = Job(shards, target, chosen, None, progress)
    writer = importlib.import_module(form.module)
    if form.texts:
        with open_store(store, read_only=True) as opened:
            check_build(opened, job.manifest, dataset)
            written = writer.write(replace(job, opened=opened))
    else:
        written = writer.write(job)
    _check_counts(form, job, written)
    return ExportReport(str(dataset), form.name, str(out), form.counts, tuple(written), _bytes(target))


def _shards(dataset: str | Path, form: Format, split: str | None) -> tuple[Shard, ...]:
    every = form.every_split and split is None
    known = read_manifest(dataset).splits
    names = [name for name in SPLITS if name in known] if every else [split or "train"]
    shards = tuple(load_shards(dataset, name) for name in names)
    for shard in shards:
        shard.verify()
    if not any(shard.size for shard in shards):
        remedy = "name another --split, or ingest more episodes and build again"
        raise UsageError(
            f"{' and '.join(map(repr, names))} of {dataset} has no transitions to export", remedy
        )
    return shards


def _check_counts(form: Format, job: Job, written: list[Written]) -> None:
    """Nothing is lost on the way: what is written and what is left out are all that the split has."""
    if form.counts != TRANSITIONS:
        return
    for part in written:
        expected = job.manifest.splits[part.split].transitions
        if part.total != expected:
            raise Mismatch(
                f"{job.out}: transitions of {part.split}", expected, part.total, "report this: it is a bug"
            )


def _bytes(target: Path) -> int:
    if target.is_file():
        return target.stat().st_size
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


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
