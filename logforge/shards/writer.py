"""Writes dataset folders, whole or not at all, from pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import xxhash

from logforge.core import refuse_foreign, replaced_folder
from logforge.schemas import (
    SPLIT_NAMES,
    Manifest,
    Mismatch,
    SplitSummary,
    UnknownName,
    UsageError,
    unsafe_file_names,
)
from logforge.shards.array_rules import check_arrays
from logforge.shards.arrays import ARRAYS, SplitArrays
from logforge.shards.batches import Array
from logforge.shards.card import CARD, dataset_card
from logforge.shards.files import PART_BYTES, ArrayWriter

MANIFEST: Final = "manifest.json"
SPLITS: Final = SPLIT_NAMES
PIECE_BYTES: Final = 32 << 20
"""So much of wide arrays is in memory at once when a dataset is written from the disk."""
_TAKEN = [(), (MANIFEST,), (CARD,), *((split,) for split in SPLITS)]


def write_dataset(
    folder: str | Path,
    splits: Mapping[str, SplitArrays],
    manifest: Manifest,
    extra: Mapping[str, bytes] | None = None,
    part_bytes: int = PART_BYTES,
) -> Manifest:
    """Write a dataset in place of the one that is there, and return its manifest with counts, checksums and hash.

    `extra` gives the bytes of other files of the folder, by name. A folder that holds something other than a dataset
    is refused; all files of the dataset that is replaced are deleted.
    """
    with ShardWriter.replacing(folder, manifest, part_bytes) as writer:
        for name, arrays in splits.items():
            split = writer.split(name, transitions=arrays.size, episodes=arrays.episode_count)
            for piece in episode_pieces(arrays):
                split.append(piece)
        for name, data in (extra or {}).items():
            writer.add_file(name, data)
    return writer.manifest


class ShardWriter:
    """A dataset folder in the making; it takes its place when the block of `replacing` ends without an error.

    Memory holds no more than the piece that is appended. The same episodes give the same bytes, whatever the pieces.
    """

    def __init__(self, folder: Path, manifest: Manifest, part_bytes: int = PART_BYTES) -> None:
        self.manifest = manifest
        self._folder, self._part_bytes = folder, part_bytes
        self._splits: dict[str, SplitWriter] = {}
        self._checksums: dict[str, str] = {}

    @classmethod
    @contextmanager
    def replacing(
        cls, folder: str | Path, manifest: Manifest, part_bytes: int = PART_BYTES
    ) -> Iterator[ShardWriter]:
        """A writer for this folder; its `manifest` is the sealed one once the block has ended.

        Observations and masks of more than `part_bytes` lie in several files.
        """
        target = Path(folder)
        refuse_foreign(target, MANIFEST, "a dataset")
        with replaced_folder(target) as fresh:
            writer = cls(fresh, manifest, part_bytes)
            try:
                yield writer
                writer.seal()
            finally:
                writer.abandon()

    def split(self, name: str, *, transitions: int, episodes: int) -> SplitWriter:
        """Begin a split that will hold so many transitions and episodes. Several splits may be open at once."""
        if name not in SPLITS:
            raise UnknownName("split", name, SPLITS)
        if name in self._splits:
            raise UsageError(f"split {name!r} is begun already", "append to the writer that `split` gave")
        made = SplitWriter(self._folder / name, self.manifest, transitions, episodes, self._part_bytes)
        self._splits[name] = made
        return made

    def add_file(self, name: str, data: bytes) -> None:
        """Write another file of the folder."""
        place = PurePosixPath(name)
        if any(unsafe_file_names([place.as_posix()])) or place.parts[:1] in _TAKEN:
            raise UsageError(f"{name!r} is no place for an extra file of a dataset", "give a plain file name")
        file = self._folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        self._checksums[place.as_posix()] = xxhash.xxh3_128_hexdigest(data)

    def seal(self) -> None:
        """Finish the splits and write the manifest and the card."""
        for name, split in self._splits.items():
            found = split.finish()
            self._checksums |= {f"{name}/{file}": checksum for file, checksum in found.items()}
        train = self._splits.get("train")
        self.manifest = self.manifest.sealed(
            {name: split.summary for name, split in self._splits.items()},
            train.return_range if train else None,
            dict(sorted(self._checksums.items())),
        )
        (self._folder / MANIFEST).write_text(self.manifest.to_json(), encoding="utf-8")
        (self._folder / CARD).write_text(dataset_card(self.manifest), encoding="utf-8")

    def abandon(self) -> None:
        """Close what is open."""
        for split in self._splits.values():
            split.abandon()


class SplitWriter:
    """One split in the making. `summary` and `return_range` tell of what was appended so far."""

    def __init__(
        self, folder: Path, manifest: Manifest, transitions: int, episodes: int, part_bytes: int
    ) -> None:
        self.summary = SplitSummary(0, 0, 0, 0, 0)
        self.return_range: tuple[float, float] | None = None
        self._name, self._manifest, self._promised = folder.name, manifest, (transitions, episodes)
        lengths = {"N": transitions, "E": episodes, "E+1": episodes + 1, "N+E": transitions + episodes}
        lengths |= {"D": manifest.observation_size, "A": manifest.vocabulary.size}
        lengths |= {"K": len(manifest.argument_numbers)}
        folder.mkdir()
        self._files: dict[str, ArrayWriter] = {}
        try:
            for name, spec in ARRAYS.items():
                shape = tuple(lengths[part] for part in spec.shape.split(", "))
                dtype = manifest.observation_dtype if name == "observations" else spec.dtype
                # The others are asked for whole, and are small beside these.
                parts = part_bytes if spec.shape.startswith("N+E") else None
                self._files[name] = ArrayWriter(folder, name, dtype, shape, parts)
                if spec.shape == "E+1":
                    self._files[name].append(np.zeros(1, spec.dtype))
        except BaseException:
            self.abandon()
            raise

    def append(self, piece: SplitArrays) -> None:
        """Add the episodes of a piece after those there; raise CheckFailed with every rule that it breaks.

        Numbers of split groups are taken as they are, so pieces must agree on them.
        """
        told = self._manifest
        check_arrays(piece, told.vocabulary, told.observation_size, self._name, told.side_names)
        before, added = self.summary, piece.summary()
        after = SplitSummary(*(getattr(before, f) + getattr(added, f) for f in before.__struct_fields__))
        if after.transitions > self._promised[0] or after.episodes > self._promised[1]:
            self._refuse(after)
        shifts = {
            "episode_offsets": before.transitions,
            "observation_offsets": before.transitions + before.episodes,
        }
        for name, file in self._files.items():
            array: Array = getattr(piece, name)
            file.append(array[1:] + shifts[name] if name in shifts else array)
        self.summary = after
        if piece.size:
            seen = [float(piece.returns.min()), float(piece.returns.max()), *(self.return_range or ())]
            self.return_range = min(seen), max(seen)

    def finish(self) -> dict[str, str]:
        """Close the files and give their checksums; raise Mismatch when episodes are missing."""
        if (self.summary.transitions, self.summary.episodes) != self._promised:
            self._refuse(self.summary)
        for file in self._files.values():
            file.finish()
        return {name: found for file in self._files.values() for name, found in file.checksums.items()}

    def abandon(self) -> None:
        """Close what is open."""
        for file in self._files.values():
            file.abandon()

    def _refuse(self, found: SplitSummary) -> None:
        expected = f"{self._promised[0]} transitions of {self._promised[1]} episodes"
        raise Mismatch(
            f"split {self._name!r}",
            expected,
            f"{found.transitions} of {found.episodes}",
            "tell `split` the sizes of all pieces together",
        )


def episode_pieces(arrays: SplitArrays, transitions: int | None = None) -> Iterator[SplitArrays]:
    """The episodes of a split in pieces of so many transitions at most (an episode that has more is one piece); without a
    number, of as many as PIECE_BYTES hold. Pieces are views, or copies of what lies on disk."""
    if transitions is None:
        row_bytes = arrays.observation_size * arrays.observations.dtype.itemsize + arrays.action_size
        transitions = max(1, PIECE_BYTES // row_bytes)
    offsets, start = arrays.episode_offsets, 0
    while start < arrays.episode_count:
        stop = int(np.searchsorted(offsets, offsets[start] + transitions, side="right")) - 1
        stop = max(stop, start + 1)
        yield _piece(arrays, start, stop)
        start = stop


def _piece(arrays: SplitArrays, start: int, stop: int) -> SplitArrays:
    steps, rows = (offsets[[start, stop]] for offsets in (arrays.episode_offsets, arrays.observation_offsets))
    places = {"N": slice(*steps), "N+E": slice(*rows), "E": slice(start, stop), "E+1": slice(start, stop + 1)}
    found: dict[str, Any] = {
        name: getattr(arrays, name)[places[spec.shape.split(", ")[0]]] for name, spec in ARRAYS.items()
    }
    found["episode_offsets"] = found["episode_offsets"] - steps[0]
    found["observation_offsets"] = found["observation_offsets"] - rows[0]
    return SplitArrays(**found)
