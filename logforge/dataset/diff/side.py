"""One dataset as a comparison sees it: its rows in the store, its folder, or both.

What each of them can tell: the rows know the episodes, their log lines, what was left out and the conflicts; the folder knows
settings, vocabulary, sources and arrays, but names no episode. A rebuild replaces both, so an earlier build is compared by a copy
of its folder, or under another name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.core import POLARS_TYPES
from logforge.schemas import INVALID, TRANSITIONS, LogforgeError, Manifest, UnknownName
from logforge.shards import MANIFEST, Shard, load_shards, read_manifest
from logforge.store import Store

_TABLES = ("splits", "conflicts", "quarantine")
_STATUS = """
SELECT coalesce(s.result_status, 'none') AS status FROM transitions t JOIN steps s USING (episode_id, step)
WHERE t.dataset = ? ORDER BY t.episode_id, t.step
"""


@dataclass(frozen=True, eq=False)
class Side:
    """A dataset. `name` is its name in the store (None: its rows are not there), `manifest` that of its folder (None: gone).

    At least one of the two is there. `settings` are the build's config, `notes` say what cannot be told.
    """

    given: str
    name: str | None
    folder: Path
    manifest: Manifest | None
    store: Store | None
    hash: str
    spec_hash: str
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The rows of `transitions`, by episode and step. Only where `name` is not None."""
        rows = self._read("SELECT * EXCLUDE (dataset) FROM transitions WHERE dataset = ?")
        maps = [column.name for column in TRANSITIONS.columns if column.type.startswith("MAP")]
        return rows.cast(dict.fromkeys(maps, POLARS_TYPES["MAP(VARCHAR, DOUBLE)"])).sort("episode_id", "step")

    def table(self, name: str) -> pl.DataFrame:
        """The dataset's rows of another of the store's tables. Only where `name` is not None."""
        assert name in _TABLES
        return self._read(f"SELECT * EXCLUDE (dataset) FROM {name} WHERE dataset = ?")

    def _read(self, query: str) -> pl.DataFrame:
        assert self.store is not None
        found: pl.DataFrame = self.store.con.sql(query, params=[self.name]).pl()
        return found

    @cached_property
    def shards(self) -> dict[str, Shard]:
        """The arrays of each split, memory-mapped; none where the folder is gone."""
        splits = () if self.manifest is None else self.manifest.splits
        return {split: load_shards(self.folder, split, verify=False) for split in splits}

    def samples(self) -> dict[str, NDArray[Any]]:
        """What the distributions of a dataset are made of, by what it is: one value for each step or episode."""
        found = self._of_rows() if self.name is not None else self._of_arrays()
        return {name: values for name, values in found.items() if len(values)}

    def _of_rows(self) -> dict[str, NDArray[Any]]:
        rows = self.rows
        shown = rows.select(pl.when("action_valid").then("action").otherwise(pl.lit(INVALID)))
        episodes = rows.group_by("episode_id", maintain_order=True).agg(
            pl.col("success", "source_kind", "return_to_go").first(), steps=pl.len()
        )
        # numbers as the arrays round them: the other side may have nothing else
        outcome = episodes["success"].cast(pl.Int8).fill_null(-1).to_numpy()
        return {
            "action": shown.to_series().to_numpy(),
            "reward": rows["reward"].to_numpy().astype(np.float32),
            "weight": rows["weight"].to_numpy().astype(np.float32),
            "return of the episode": episodes["return_to_go"].to_numpy().astype(np.float32),
            "steps of the episode": episodes["steps"].to_numpy(),
            "outcome": _OUTCOMES[outcome],
            "source kind": episodes["source_kind"].to_numpy(),
            "result status": self._read(_STATUS)["status"].to_numpy(),
        }

    def _of_arrays(self) -> dict[str, NDArray[Any]]:
        parts, manifest = list(self.shards.values()), self.manifest
        assert manifest is not None
        names = np.array(manifest.actions)

        def joined(values: Any) -> NDArray[Any]:
            return np.concatenate([values(part) for part in parts])

        return {
            "action": names[joined(lambda part: part.actions)],
            "reward": joined(lambda part: part.rewards),
            "weight": joined(lambda part: part.weights),
            "return of the episode": joined(lambda part: part.returns[part.episode_offsets[:-1]]),
            "steps of the episode": joined(lambda part: np.diff(part.episode_offsets)),
            "outcome": _OUTCOMES[joined(lambda part: part.success)],
        }


_OUTCOMES = np.array(["failure", "success", "unknown"])
"""By success as the arrays hold it: 0, 1, and -1, which counts from the end."""


def side_of(given: str, store: Store | None) -> Side:
    """The dataset that a name in the store or a folder stands for; a name comes first.

    Raises UnknownName when it is neither, and what read_manifest raises for a folder whose manifest is damaged.
    """
    known = {} if store is None else _known(store)
    if given in known and store is not None:
        return _stored(given, given, store, known[given])
    folder = Path(given)
    if not (folder / MANIFEST).is_file():
        raise UnknownName("dataset", given, sorted(known))
    manifest = read_manifest(folder)
    for name, row in known.items():
        if row["hash"] == manifest.hash and store is not None:
            return _stored(given, name, store, row, folder)
    note = f"{given}: its rows are not in the store, so that episodes cannot be told apart: compared are manifest and arrays"
    return Side(
        given, None, folder, manifest, store, manifest.hash, manifest.spec_hash, manifest.config, (note,)
    )


def _known(store: Store) -> dict[str, dict[str, Any]]:
    rows = store.con.sql("SELECT dataset, hash, spec_hash, config, path FROM datasets ORDER BY dataset").pl()
    return {row["dataset"]: row for row in rows.to_dicts()}


def _stored(given: str, name: str, store: Store, row: dict[str, Any], folder: Path | None = None) -> Side:
    place = folder or store.path.parent / row["path"]
    manifest, notes = _manifest(place, row["hash"], given)
    settings = {
        key: value for key, value in json.loads(row["config"]).items() if key not in ("reward", "states")
    }
    return Side(given, name, place, manifest, store, row["hash"], row["spec_hash"], settings, notes)


def _manifest(folder: Path, expected: str, given: str) -> tuple[Manifest | None, tuple[str, ...]]:
    """The folder's manifest if it is that of this build, else why it cannot be used."""
    lost = "vocabulary, sources, rewards and features are not compared"
    try:
        manifest = read_manifest(folder)
    except LogforgeError as error:
        return None, (f"{given}: {error.message}: {lost}",)
    if manifest.hash != expected:
        return None, (f"{given}: {folder} holds another build than the store: {lost}",)
    return manifest, ()
