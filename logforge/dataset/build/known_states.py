"""States that datasets of the store hold already: a build that would make the same ones reads them.

Whether states were made or read, the same files come out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logforge.core import Episodes, Part, RowSpool
from logforge.dataset.actions import ActionSpace
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.splitting import Cohort
from logforge.dataset.build.state_digests import StatesId
from logforge.dataset.build.state_rows import StateRows
from logforge.schemas import LogforgeError, Manifest
from logforge.shards import PCA_FILE, SPLITS, check_files, files_of, read_manifest
from logforge.store import Store
from logforge.texts import Pca


@dataclass(frozen=True, eq=False)
class KnownStates:
    """The states of some episodes that a dataset has: `keys` is a row per step (episode_id, step, state_key, state_key_canonical) by
    episode and step, `rows` their vectors, on disk, and `pca` what reduced their texts."""

    keys: pl.DataFrame
    rows: StateRows
    pca: Pca

    @cached_property
    def episodes(self) -> frozenset[str]:
        """Whose states they are."""
        return frozenset(self.rows.places["episode_id"])

    @classmethod
    def find(cls, store: Store, wanted: StatesId) -> KnownStates | None:
        """Those of the dataset of the store that has most of them, of those whose files hold and whose PCA is the one given, or the
        one that would be fitted."""
        for lender in _lenders(store, wanted):
            read = _read(store, lender, wanted.reduction)
            if read is not None:
                rows, pca = read
                shared = _shared(store, lender.dataset, wanted)
                return cls(_keys(store, lender.dataset, shared), rows.only(shared["episode_id"]), pca)
        return None


@dataclass(frozen=True, slots=True)
class FoundStates:
    """The states of a cohort: by what they are known, those that a dataset of the store has, and the episodes of the others."""

    wanted: StatesId
    known: KnownStates | None
    unknown: Episodes

    @property
    def episodes(self) -> frozenset[str]:
        """Whose states are known."""
        return self.known.episodes if self.known else frozenset()

    @property
    def keys(self) -> pl.DataFrame | None:
        """Their keys, a row a step."""
        return self.known.keys if self.known else None


def look_for_states(plan: Plan, cohort: Cohort, space: ActionSpace) -> FoundStates:
    """The states of all that is kept, as far as a dataset of the store has them."""
    told = plan.config, space, plan.encoder, plan.earlier.reduction
    wanted = StatesId.of(cohort.kept, cohort.splits(), cohort.formats(), *told)
    known = KnownStates.find(plan.store, wanted)
    return FoundStates(wanted, known, cohort.kept.without(known.episodes if known else ()))


class _Lender(NamedTuple):
    """A dataset that may have states to lend."""

    dataset: str
    hash: str
    path: str


def _lenders(store: Store, wanted: StatesId) -> Iterator[_Lender]:
    """The datasets with some of the wanted episodes, those with most first."""
    digests = wanted.digests.to_arrow()  # noqa: F841 (DuckDB finds it by its name)
    rows = store.con.sql(
        "SELECT d.dataset, d.hash, d.path, d.config, s.shared FROM datasets d JOIN ("
        "SELECT dataset, count(*) AS shared FROM state_digests JOIN digests USING (episode_id, digest) GROUP BY 1"
        ") s USING (dataset) ORDER BY s.shared DESC, d.dataset"
    ).fetchall()
    for dataset, digest, path, config, _ in rows:
        told = json.loads(config).get("states", {})
        # A PCA that was given is none that would be fitted; one that was fitted may be the one given now.
        if wanted.reduction or (told.get("hash") == wanted.hash and not told.get("reduction")):
            yield _Lender(dataset, digest, path)


def _shared(store: Store, dataset: str, wanted: StatesId) -> pl.DataFrame:
    """The wanted episodes that the dataset has."""
    theirs = store.con.sql(
        "SELECT episode_id, digest FROM state_digests WHERE dataset = ?", params=[dataset]
    ).pl()
    return wanted.digests.join(theirs, on=["episode_id", "digest"], how="semi", maintain_order="left")


def _read(store: Store, lender: _Lender, reduction: str) -> tuple[StateRows, Pca] | None:
    """What a dataset's folder holds of states, unless it is another than the store knows, is damaged, was reduced by another PCA
    than the one given, or holds observations rounded to float16."""
    folder = store.path.parent / lender.path
    try:
        manifest = read_manifest(folder)
        if manifest.hash != lender.hash or manifest.observation_dtype != "float32":
            return None
        if reduction and manifest.checksums.get(PCA_FILE) != reduction:
            return None
        files = {split: files_of(f"{split}/observations", manifest.checksums) for split in manifest.splits}
        # Opened before they are held against their checksums: whoever replaces the folder meanwhile changes nothing here.
        parts = {split: _parts(folder, manifest, files.get(split, [])) for split in SPLITS}
        check_files(folder, manifest, [PCA_FILE, *(name for names in files.values() for name in names)])
        return StateRows.of_splits(parts, _episodes(store, lender.dataset)), Pca.load(folder / PCA_FILE)
    except (LogforgeError, OSError, ValueError):
        return None


def _parts(folder: Path, manifest: Manifest, files: list[str]) -> list[Part]:
    parts: list[Part] = [RowSpool.saved(folder / file) for file in files]
    return parts or [np.zeros((0, manifest.observation_size), np.float32)]


def _episodes(store: Store, dataset: str) -> pl.DataFrame:
    """All episodes of a dataset with their splits and steps, in the order in which shards hold them."""
    frame: pl.DataFrame = store.con.sql(
        "SELECT episode_id, min(split) AS split, count(*) AS steps FROM transitions WHERE dataset = ? GROUP BY 1 ORDER BY 1",
        params=[dataset],
    ).pl()
    return frame


def _keys(store: Store, dataset: str, episodes: pl.DataFrame) -> pl.DataFrame:
    chosen = episodes.select("episode_id").to_arrow()  # noqa: F841 (DuckDB finds it by its name)
    frame: pl.DataFrame = store.con.sql(
        "SELECT episode_id, step, state_key, state_key_canonical FROM transitions SEMI JOIN chosen USING (episode_id) "
        "WHERE dataset = ? ORDER BY episode_id, step",
        params=[dataset],
    ).pl()
    return frame
