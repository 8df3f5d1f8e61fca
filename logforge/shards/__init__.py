"""The arrays that a trainer gets: written, read, sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.shards.array_rules import not_finite
    from logforge.shards.arrays import SplitArrays
    from logforge.shards.batches import Array
    from logforge.shards.card import dataset_card, read_licences
    from logforge.shards.d3rlpy import load_mdp_dataset, manifest_beside, to_mdp_dataset
    from logforge.shards.fast_buffer import FastBuffer
    from logforge.shards.files import ACTIONS_FILE, PART_BYTES, PCA_FILE, files_of
    from logforge.shards.reader import (
        ACTION_VECTORS,
        Shard,
        check_files,
        load_shards,
        read_checked,
        read_manifest,
    )
    from logforge.shards.sample import SAMPLE, Sample, draw
    from logforge.shards.sides import plain_sides, proposed, side_arrays
    from logforge.shards.writer import MANIFEST, SPLITS, ShardWriter, episode_pieces, write_dataset

__all__ = [
    "ACTIONS_FILE", "ACTION_VECTORS", "MANIFEST", "PART_BYTES", "PCA_FILE", "SAMPLE", "SPLITS", "Array",
    "FastBuffer", "Sample", "Shard", "ShardWriter", "SplitArrays", "check_files", "dataset_card", "draw",
    "episode_pieces", "files_of", "load_mdp_dataset", "load_shards", "manifest_beside", "not_finite",
    "plain_sides", "proposed", "read_checked", "read_licences", "read_manifest", "side_arrays",
    "to_mdp_dataset", "write_dataset",
]  # fmt: skip

face(
    __name__,
    array_rules="not_finite",
    arrays="SplitArrays",
    batches="Array",
    card="dataset_card read_licences",
    d3rlpy="load_mdp_dataset manifest_beside to_mdp_dataset",
    fast_buffer="FastBuffer",
    files="ACTIONS_FILE PART_BYTES PCA_FILE files_of",
    reader="ACTION_VECTORS Shard check_files load_shards read_checked read_manifest",
    sample="SAMPLE Sample draw",
    sides="plain_sides proposed side_arrays",
    writer="MANIFEST SPLITS ShardWriter episode_pieces write_dataset",
)
