"""Takes forgotten episodes out of published datasets: the shards are written again without them, by their own writer."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from logforge.dataset.build import BuildConfig
from logforge.dataset.conflicts import comparable, decisions_of, find_conflicts, near_states
from logforge.dataset.states import GOLDEN_FILE, digests, golden_file, of_episodes, read_golden, thought_leak
from logforge.dataset.weights import STAGES_FILE, without
from logforge.forgetting.report import DatasetLoss
from logforge.schemas import Manifest, Mismatch, SourceRef
from logforge.shards import (
    MANIFEST,
    PART_BYTES,
    SPLITS,
    load_shards,
    read_checked,
    read_manifest,
    write_dataset,
)
from logforge.store import Store

_REMEDY = "build it again, or delete its folder, and then forget"


def losses(store: Store, episodes: Collection[str]) -> list[DatasetLoss]:
    """What each dataset loses with these episodes and their augmented copies."""
    rows = store.con.sql(
        "SELECT d.dataset, d.path, d.hash, count(DISTINCT t.episode_id), count(*) FROM datasets d "
        "JOIN transitions t USING (dataset) "
        "WHERE t.episode_id IN (SELECT unnest($1)) OR split_part(t.parent_id, '/', 1) IN (SELECT unnest($1)) "
        "GROUP BY ALL ORDER BY 1",
        params=[sorted(episodes)],
    ).fetchall()
    return [DatasetLoss(*row) for row in rows]


def check_datasets(store: Store, datasets: Collection[DatasetLoss]) -> None:
    """Raise Mismatch for a dataset whose folder is not the one that the store's rows tell of: nobody could say which of its
    rows belong to whom."""
    for item in datasets:
        folder = store.path.parent / item.path
        if not (folder / MANIFEST).is_file():
            continue
        manifest = read_manifest(folder)
        if item.hash not in (manifest.hash, manifest.replaces):
            raise Mismatch(f"{folder}: dataset", item.hash, manifest.hash, _REMEDY)


def drop_from_datasets(store: Store, episodes: Collection[str]) -> None:
    """Take episodes, and what was made from them, out of the datasets: folders first, then the store's rows of each."""
    found = losses(store, episodes)
    check_datasets(store, found)
    for item in found:
        with store.transaction():
            _drop(store, item, episodes)


def _drop(store: Store, item: DatasetLoss, episodes: Collection[str]) -> None:
    rows = store.con.sql(
        "SELECT * EXCLUDE (dataset) FROM transitions WHERE dataset = ? ORDER BY episode_id, step",
        params=[item.name],
    ).pl()
    parent = pl.col("parent_id").str.split("/").list.first()
    gone = pl.col("episode_id").is_in(list(episodes)) | parent.is_in(list(episodes)).fill_null(False)
    ids = rows.filter(gone)["episode_id"].unique()
    left = rows.filter(~gone)
    _replace_rows(store, item.name, ids.to_list())
    folder = store.path.parent / item.path
    if not (folder / MANIFEST).is_file():
        _replace_conflicts(store, item.name, left, None)
        return
    manifest = read_manifest(folder)
    if manifest.hash == item.hash:  # else a killed run has rewritten it
        manifest = _rewrite(store, folder, manifest, rows, left)
    _replace_conflicts(store, item.name, left, folder)
    store.con.execute("UPDATE datasets SET hash = ? WHERE dataset = ?", [manifest.hash, item.name])


def _replace_rows(store: Store, name: str, ids: list[str]) -> None:
    """The store's rows of a dataset without some episodes."""
    for table in (
        "transitions",
        "splits",
        "difficulty",
        "quarantine",
        "argument_candidates",
        "state_digests",
    ):
        store.con.execute(
            f"DELETE FROM {table} WHERE dataset = ? AND episode_id IN (SELECT unnest(?))", [name, ids]
        )


def _replace_conflicts(store: Store, name: str, left: pl.DataFrame, folder: Path | None) -> None:
    """The conflicts among what is left; near states are told by the shards' observations, without them by nothing."""
    ((config,),) = store.con.sql("SELECT config FROM datasets WHERE dataset = ?", params=[name]).fetchall()
    settings, near = json.loads(config), None
    if folder is not None:
        manifest = read_manifest(folder)
        shards = {split: load_shards(folder, split) for split in SPLITS if split in manifest.splits}
        near = near_states(
            left, shards, manifest.layout, settings.get("near_threshold", BuildConfig.near_threshold)
        )
    conflicts = find_conflicts(comparable(left, decisions_of(store.con), near), settings["epsilon"])
    store.con.execute("DELETE FROM conflicts WHERE dataset = ?", [name])
    store.insert("conflicts", conflicts.with_columns(dataset=pl.lit(name)))


def _rewrite(
    store: Store, folder: Path, manifest: Manifest, rows: pl.DataFrame, left: pl.DataFrame
) -> Manifest:
    """Write the dataset's folder again with the episodes that are left."""
    kept = set(left["episode_id"])
    splits, stays = {}, {}
    for split in (name for name in SPLITS if name in manifest.splits):
        shard = load_shards(folder, split)
        ids = rows.filter(pl.col("split") == split)["episode_id"].unique(maintain_order=True).to_list()
        if len(ids) != shard.episode_count:
            raise Mismatch(f"{folder}: episodes of {split!r}", len(ids), shard.episode_count, _REMEDY)
        stays[split] = np.array([name in kept for name in ids], np.bool_)
        splits[split] = shard.only(stays[split], on_disk=True)
    before = sum(summary.episodes for summary in manifest.splits.values())
    after = sum(arrays.episode_count for arrays in splits.values())
    changed = msgspec.structs.replace(
        manifest,
        sources=_sources(store, kept, manifest),
        mask_kinds=dict(left.group_by("mask_kind").len().iter_rows()),
        propensity_kinds=dict(left.group_by("propensity_kind").len().iter_rows()),
        thoughts=thought_leak(store.con, manifest.dataset)._asdict() if manifest.thoughts else {},
        forgotten=manifest.forgotten + before - after,
        replaces=manifest.hash,
    )
    beside = (name for name in manifest.checksums if name.split("/")[0] not in SPLITS)
    extra = {name: read_checked(folder, manifest, name) for name in beside}
    if STAGES_FILE in extra:
        extra[STAGES_FILE] = without(extra[STAGES_FILE], stays)
    if GOLDEN_FILE in extra:
        golden = of_episodes(read_golden(extra[GOLDEN_FILE], str(folder / GOLDEN_FILE)), kept)
        extra[GOLDEN_FILE] = golden_file(golden)
        changed = msgspec.structs.replace(changed, golden_states=digests(golden))
    return write_dataset(folder, splits, changed, extra, manifest.config.get("part_bytes", PART_BYTES))


def _sources(store: Store, kept: set[str], manifest: Manifest) -> tuple[SourceRef, ...]:
    """The sources without those of the store that hold no episode of the dataset any more."""
    found = store.con.sql("SELECT s.sha256, e.episode_id FROM sources s JOIN episodes e USING (source_id)")
    hashes = {"used": set(), "other": set()}  # type: dict[str, set[str]]
    for sha256, name in found.fetchall():
        hashes["used" if name in kept else "other"].add(sha256)
    gone = hashes["other"] - hashes["used"]
    return tuple(source for source in manifest.sources if source.sha256 not in gone)
