"""Dataset folders read memory-mapped, every file held against its checksum; writer.py writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from logforge.core import plain_file
from logforge.schemas import CheckFailed, DataContract, Manifest, Mismatch, UnknownName, UsageError
from logforge.shards.array_rules import check_arrays, shapes
from logforge.shards.arrays import ARRAYS, EpisodeArrays, SplitArrays
from logforge.shards.batches import Batch
from logforge.shards.files import checksum, files_of, map_rows
from logforge.shards.writer import MANIFEST, SPLITS, ShardWriter, write_dataset

if TYPE_CHECKING:
    import torch

__all__ = [
    "ARRAYS",
    "MANIFEST",
    "SPLITS",
    "Batch",
    "EpisodeArrays",
    "Shard",
    "ShardWriter",
    "SplitArrays",
    "check_files",
    "load_shards",
    "read_manifest",
    "write_dataset",
]

_AGAIN = "build the dataset again"
_NO_FILE = "no such file"
ACTION_VECTORS: Final = "action_texts.npy"
"""The file of the vectors of the actions' texts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard(SplitArrays):
    """One split of a dataset on disk: its arrays, memory-mapped and read-only, with the manifest they belong to.

    Observations that lie in several files, or as float16, are indexed like one float32 array (logforge/core/stored_rows.py).
    """

    manifest: Manifest
    path: Path
    split: str

    def verify(self) -> None:
        """Look at every value; raise CheckFailed with all that is wrong."""
        manifest = self.manifest
        check_arrays(self, manifest.vocabulary, manifest.observation_size, self.split, manifest.side_names)

    @property
    def action_vectors(self) -> NDArray[np.float32]:
        """Vectors [actions, columns] of the actions' texts (`manifest.action_texts`), by the encoder and the PCA of the states; zeros
        for `<invalid>` and `<other>`. Raises UsageError where the dataset has none."""
        return action_vectors(self.path, self.manifest)

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
        """The same as of arrays in memory, with the manifest's γ where none is given."""
        discount = self.manifest.gamma if gamma is None else gamma
        return super().torch_batches(batch_size, seed, device, pin=pin, n_step=n_step, gamma=discount)


def load_shards(
    path: str | Path, split: str = "train", *, verify: bool = True, like: DataContract | None = None
) -> Shard:
    """One split of a dataset. `verify` holds every file against its checksum, reading it once.

    `like` is the manifest, or the card of a policy, that the reader was made for: a dataset with another vocabulary,
    feature layout or encoder is refused (Mismatch), as is every other schema version.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if like is not None:
        manifest.refuse_unlike(like, str(folder))
    if split not in manifest.splits:
        raise UnknownName("split", split, list(manifest.splits))
    files = {name: files_of(f"{split}/{name}", manifest.checksums) for name in ARRAYS}
    if verify:
        check_files(folder, manifest, [file for found in files.values() for file in found])
    stored = {"observations": manifest.observation_dtype}
    arrays = {
        name: map_rows(folder, files[name], np.dtype(spec.dtype), stored.get(name, spec.dtype))
        for name, spec in ARRAYS.items()
    }
    shard = Shard(**arrays, manifest=manifest, path=folder, split=split)
    problems = shapes(
        shard, manifest.vocabulary.size, manifest.observation_size, len(manifest.side_names.numbers)
    )
    if problems:
        raise CheckFailed(f"{folder}: the arrays of {split!r} do not fit the manifest", problems, _AGAIN)
    if shard.summary() != manifest.splits[split]:
        raise Mismatch(f"{folder}: counts of {split!r}", manifest.splits[split], shard.summary(), _AGAIN)
    return shard


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a dataset folder."""
    file = plain_file(Path(folder), MANIFEST)
    if not file.is_file():
        raise UsageError(f"no dataset in {folder}", _where_else(Path(folder)))
    return Manifest.from_json(file.read_bytes(), str(file))


def _where_else(folder: Path) -> str:
    """Where a dataset lies that was given by its name alone, as commands on the store take it."""
    named = Path("datasets") / folder
    found = not folder.is_absolute() and (named / MANIFEST).is_file()
    return f"did you mean {named}?" if found else "make one: logforge build-dataset"


def action_vectors(folder: str | Path, manifest: Manifest) -> NDArray[np.float32]:
    """What `Shard.action_vectors` is, of this dataset folder."""
    if ACTION_VECTORS not in manifest.checksums:
        raise UsageError(f"the dataset in {folder} has no vectors of its actions' texts", _AGAIN)
    check_files(folder, manifest, (ACTION_VECTORS,))
    found: NDArray[Any] = np.load(Path(folder) / ACTION_VECTORS, allow_pickle=False)
    shape = list(found.shape)
    if found.dtype != np.float32 or len(shape) != 2 or shape[0] != len(manifest.actions):
        expected = [np.dtype(np.float32).name, [len(manifest.actions), "columns"]]
        raise Mismatch(f"{Path(folder) / ACTION_VECTORS}", expected, [found.dtype.name, shape], _AGAIN)
    return found


def check_files(folder: str | Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """Hold files against the manifest's checksums: those named, or all it knows."""
    for name in manifest.checksums if names is None else names:
        file = plain_file(Path(folder), name)
        found = checksum(file) if file.is_file() else _NO_FILE
        if found != manifest.checksums.get(name):
            raise _other(manifest, name, file, found)


def read_checked(folder: str | Path, manifest: Manifest, name: str) -> bytes:
    """The bytes of a small file of the folder, held against the manifest's checksum. Raises Mismatch and InputError."""
    file = plain_file(Path(folder), name)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise _other(manifest, name, file, _NO_FILE) from None
    if (found := xxhash.xxh3_128_hexdigest(data)) != manifest.checksums.get(name):
        raise _other(manifest, name, file, found)
    return data


def _other(manifest: Manifest, name: str, file: Path, found: str) -> Mismatch:
    return Mismatch(f"{file}: checksum", manifest.checksums.get(name, _NO_FILE), found, _AGAIN)
