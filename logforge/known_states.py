"""States that a dataset of the store holds already: a build that would make the same ones, say for another reward spec, reads them.

What decides states is told by one hash, which the store keeps with each dataset. It is no part of the shards: whether states were
made or read, the same files come out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import xxhash

from logforge.actions import ActionSpace
from logforge.build_config import BuildConfig
from logforge.earlier_dataset import PCA_FILE
from logforge.encoders import Encoder
from logforge.publication import package_versions
from logforge.reduce import Pca
from logforge.schemas.errors import LogforgeError
from logforge.schemas.manifest import Manifest
from logforge.shard_files import files_of
from logforge.shard_rows import Part, StoredRows
from logforge.shards import SPLITS, check_files, read_manifest
from logforge.spool import Episodes, RowSpool
from logforge.store import Store

STATES_VERSION: Final = 1
"""To be raised by whoever changes what symbols, keys, vectors or the reduction come out as."""


class StatesId(NamedTuple):
    """What decides the states of a build: a hash, and that of the PCA given to it (empty where the PCA is fitted)."""

    hash: str
    reduction: str = ""

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        splits: Mapping[str, str],
        config: BuildConfig,
        space: ActionSpace,
        aliases: Mapping[str, str],
        encoder: Encoder,
        reduction: Pca | None,
    ) -> StatesId:
        """The id of the states of these episodes, copies included; `splits` names the split of each."""
        settings = {
            "version": STATES_VERSION,
            "packages": package_versions(),
            "state": config.state.to_dict(),
            "text_size": config.text_size,
            "encoder": [encoder.name, encoder.revision],
            "actions": space.to_dict(),
            "aliases": dict(aliases),
        }
        found = xxhash.xxh3_128(msgspec.json.encode(settings, order="sorted"))
        for name in episodes.ids:
            found.update(msgspec.msgpack.encode((name, splits[name], episodes.spool.digest(name))))
        return cls(found.hexdigest(), reduction.hash if reduction else "")


@dataclass(frozen=True, eq=False)
class KnownStates:
    """The states of a dataset: `keys` has a row per step (state_key, state_key_canonical) by episode and step, `observations` are
    those of each split, on disk, and `pca` is what reduced their texts."""

    keys: pl.DataFrame
    observations: Mapping[str, npt.NDArray[np.float32]]
    pca: Pca

    @classmethod
    def find(cls, store: Store, wanted: StatesId, episodes: Episodes) -> KnownStates | None:
        """Those of a dataset of the store that has the states of exactly these episodes, if there is one whose files hold."""
        rows = store.con.sql("SELECT dataset, hash, path, config FROM datasets ORDER BY dataset").fetchall()
        for dataset, digest, path, config in rows:
            told = StatesId(**json.loads(config).get("states", {"hash": ""}))
            # A PCA that was given is none that would be fitted; one that was fitted may be the one given now.
            if told.hash != wanted.hash or (told.reduction and not wanted.reduction):
                continue
            read = _read(store.path.parent / path, digest, wanted.reduction)
            if read is not None and (known := cls(_keys(store, dataset), *read))._are_of(episodes):
                return known
        return None

    def _are_of(self, episodes: Episodes) -> bool:
        """Whether these episodes are there and no other, whole: a policy on conflicts, or `forget`, may have taken some out."""
        ids = tuple(self.keys["episode_id"].unique(maintain_order=True))
        observed = sum(map(len, self.observations.values()))
        return ids == episodes.ids and observed == self.keys.height + len(ids)


def _read(folder: Path, digest: str, reduction: str) -> tuple[dict[str, npt.NDArray[np.float32]], Pca] | None:
    """What the dataset in a folder holds of states, unless it is another than that of this hash, is damaged, was reduced by another
    PCA than the one given, or holds observations rounded to float16."""
    try:
        manifest = read_manifest(folder)
        if manifest.hash != digest or manifest.observation_dtype != "float32":
            return None
        if reduction and manifest.checksums.get(PCA_FILE) != reduction:
            return None
        files = {split: files_of(f"{split}/observations", manifest.checksums) for split in manifest.splits}
        # Opened before they are held against their checksums: whoever replaces the folder meanwhile changes nothing here.
        found = {split: _observations(folder, manifest, files.get(split, [])) for split in SPLITS}
        check_files(folder, manifest, [PCA_FILE, *(name for names in files.values() for name in names)])
        return found, Pca.load(folder / PCA_FILE)
    except (LogforgeError, OSError, ValueError):
        return None


def _observations(folder: Path, manifest: Manifest, files: list[str]) -> npt.NDArray[np.float32]:
    parts: list[Part] = [RowSpool.saved(folder / file) for file in files]
    nothing = np.zeros((0, manifest.observation_size), np.float32)
    return StoredRows(parts or [nothing], np.dtype(np.float32)).as_array()


def _keys(store: Store, dataset: str) -> pl.DataFrame:
    frame: pl.DataFrame = store.con.sql(
        "SELECT episode_id, state_key, state_key_canonical FROM transitions WHERE dataset = ? ORDER BY episode_id, step",
        params=[dataset],
    ).pl()
    return frame
