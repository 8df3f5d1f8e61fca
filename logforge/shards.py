"""Dataset folders: written whole or not at all, read memory-mapped, every file held against its checksum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import xxhash

from logforge.array_rules import ARRAYS
from logforge.arrays import Array, Batch, EpisodeArrays, SplitArrays
from logforge.atomic import refuse_foreign, replaced_folder
from logforge.schemas.errors import CheckFailed, InputError, Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import Manifest

__all__ = [
    "ARRAYS",
    "MANIFEST",
    "SPLITS",
    "Batch",
    "EpisodeArrays",
    "Shard",
    "SplitArrays",
    "check_files",
    "load_shards",
    "read_manifest",
    "write_dataset",
]

MANIFEST = "manifest.json"
SPLITS = ("train", "validation", "test")
_BLOCK = 1 << 22
_AGAIN = "build the dataset again"
_TAKEN = [(), (MANIFEST,), *((split,) for split in SPLITS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard(SplitArrays):
    """One split of a dataset on disk: its arrays, memory-mapped and read-only, with the manifest they belong to."""

    manifest: Manifest
    path: Path
    split: str

    def verify(self) -> None:
        """Look at every value; raise CheckFailed with all that is wrong."""
        self.check(self.manifest.vocabulary, self.manifest.observation_size, self.split)


def write_dataset(
    folder: str | Path,
    splits: Mapping[str, SplitArrays],
    manifest: Manifest,
    extra: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Write a dataset in place of the one that is there, and return its manifest with counts, checksums and hash.

    `extra` gives the bytes of other files of the folder, by name. A folder that holds something other than a dataset
    is refused; all files of the dataset that is replaced are deleted.
    """
    target = Path(folder)
    refuse_foreign(target, MANIFEST, "a dataset")
    for name in splits:
        if name not in SPLITS:
            raise UnknownName("split", name, SPLITS)
    for name, arrays in splits.items():
        arrays.check(manifest.vocabulary, manifest.observation_size, name)
    with replaced_folder(target) as fresh:
        for name, arrays in splits.items():
            _write_arrays(fresh / name, arrays)
        for name, data in (extra or {}).items():
            _inside(fresh, name).write_bytes(data)
        sealed = manifest.sealed(
            {name: arrays.summary() for name, arrays in splits.items()},
            _return_range(splits.get("train")),
            {path.relative_to(fresh).as_posix(): checksum(path) for path in _files(fresh)},
        )
        (fresh / MANIFEST).write_text(sealed.to_json(), encoding="utf-8")
    return sealed


def load_shards(path: str | Path, split: str = "train", *, verify: bool = True) -> Shard:
    """One split of a dataset. `verify` holds every file against its checksum, reading it once."""
    folder = Path(path)
    manifest = read_manifest(folder)
    if split not in manifest.splits:
        raise UnknownName("split", split, list(manifest.splits))
    files = {name: f"{split}/{name}.npy" for name in ARRAYS}
    if verify:
        check_files(folder, manifest, files.values())
    arrays = {name: _map(folder, file) for name, file in files.items()}
    shard = Shard(**arrays, manifest=manifest, path=folder, split=split)
    problems = shard.shape_problems(manifest.vocabulary, manifest.observation_size)
    if problems:
        raise CheckFailed(f"{folder}: the arrays of {split!r} do not fit the manifest", problems, _AGAIN)
    if shard.summary() != manifest.splits[split]:
        raise Mismatch(f"{folder}: counts of {split!r}", manifest.splits[split], shard.summary(), _AGAIN)
    return shard


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a dataset folder."""
    file = Path(folder) / MANIFEST
    if not file.is_file():
        raise UsageError(f"no dataset in {folder}", "make one: logforge build-dataset")
    return Manifest.from_json(file.read_bytes(), str(file))


def check_files(folder: str | Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """Hold files against the manifest's checksums: those named, or all it knows."""
    for name in manifest.checksums if names is None else names:
        file = Path(folder) / name
        found = checksum(file) if file.is_file() else "no such file"
        if found != manifest.checksums.get(name):
            expected = manifest.checksums.get(name, "no such file")
            raise Mismatch(f"{file}: checksum", expected, found, _AGAIN)


def checksum(file: Path) -> str:
    """xxh3-128 of a file's bytes: it finds damage, at the speed of memory; it is no seal against a forger."""
    state = xxhash.xxh3_128()
    with file.open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            state.update(block)
    return state.hexdigest()


def _write_arrays(folder: Path, arrays: SplitArrays) -> None:
    folder.mkdir()
    for name, spec in ARRAYS.items():
        # One byte order and one memory order: equal arrays must give equal files.
        array = np.ascontiguousarray(getattr(arrays, name), np.dtype(spec.dtype).newbyteorder("<"))
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def _map(folder: Path, name: str) -> Array:
    try:
        # A plain view of the map: slicing np.memmap itself costs several times as much.
        array: Array = np.load(folder / name, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        return array
    except FileNotFoundError:
        raise Mismatch(f"{folder / name}: file", "one", "none", _AGAIN) from None
    except (ValueError, EOFError) as error:
        raise InputError(str(folder / name), f"not an array: {error}", remedy=_AGAIN) from error


def _inside(folder: Path, name: str) -> Path:
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or place.parts[:1] in _TAKEN:
        raise UsageError(f"{name!r} is no place for an extra file of a dataset", "give a plain file name")
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _return_range(train: SplitArrays | None) -> tuple[float, float] | None:
    if train is None or not train.size:
        return None
    return float(train.returns.min()), float(train.returns.max())
