"""RLDS-shaped Parquet (Ramos et al., arXiv 2111.02767): a row for each episode, its steps nested in it.

An episode of n decisions has n + 1 steps. Step t holds what was observed, the action then taken, its reward and the reward's
discount: 1, and 0 for the reward that came with a true end (the environment's discount; γ is in the schema's metadata). The
last step holds the final observation alone: its action, reward and discount are zeros that mean nothing. It is terminal when
the episode truly ended, and not when the log was cut off there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logforge.core import replaced_file
from logforge.exports.job import Job, Written
from logforge.exports.rows import GROUP, lists
from logforge.shards import Array, Shard

VERSION = "1"


def write(job: Job) -> list[Written]:
    """One file; γ, the actions' names and the whole manifest are in the schema's metadata."""
    shard = job.shard
    metadata = {
        b"logforge_rlds": VERSION.encode(),
        b"gamma": str(shard.manifest.gamma).encode(),
        b"logforge_manifest": shard.manifest.to_json().encode(),
    }
    schema = episodes_of(shard, 0, 1).schema.with_metadata(metadata)
    with replaced_file(job.out) as fresh, pq.ParquetWriter(fresh, schema) as writer:
        for start, stop in _groups(shard):
            writer.write_table(episodes_of(shard, start, stop).cast(schema))
            job.tick(stop, shard.episode_count, shard.split)
    return [Written(shard.split, shard.episode_count, shard.size)]


def episodes_of(shard: Shard, start: int, stop: int) -> pa.Table:
    """The episodes from `start` to `stop` as a table."""
    rows = slice(int(shard.observation_offsets[start]), int(shard.observation_offsets[stop]))
    offsets = np.asarray(shard.observation_offsets[start : stop + 1]) - rows.start
    first, last = _marks(rows.stop - rows.start, offsets)
    steps = slice(int(shard.episode_offsets[start]), int(shard.episode_offsets[stop]))
    terminals = np.asarray(shard.terminals[steps])
    truly = np.zeros(len(first), bool)
    truly[offsets[1:] - 1] = terminals[
        np.asarray(shard.episode_offsets[start + 1 : stop + 1]) - steps.start - 1
    ]
    nested = pa.StructArray.from_arrays(
        [
            lists(shard.observations[rows]),
            lists(shard.masks[rows]),
            pa.array(_placed(shard.actions[steps], last)),
            pa.array(_placed(shard.rewards[steps], last)),
            pa.array(_placed((~terminals).astype(np.float32), last)),
            pa.array(first),
            pa.array(last),
            pa.array(truly),
        ],
        names=[
            "observation",
            "action_mask",
            "action",
            "reward",
            "discount",
            "is_first",
            "is_last",
            "is_terminal",
        ],
    )
    success = shard.success[start:stop]
    columns: dict[str, Any] = {
        "episode": np.arange(start, stop),
        "success": pa.array(success == 1, mask=success < 0),
        "augmented": shard.augmented[start:stop],
        "group": shard.groups[start:stop],
        "steps": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), nested),
    }
    return pa.table(columns)


def _groups(shard: Shard) -> Iterator[tuple[int, int]]:
    """Runs of episodes with about so many steps that fit into a row group."""
    start = 0
    while start < shard.episode_count:
        limit = int(shard.observation_offsets[start]) + GROUP
        stop = int(np.searchsorted(shard.observation_offsets, limit, side="right")) - 1
        stop = max(start + 1, stop)
        yield start, stop
        start = stop


def _marks(rows: int, offsets: Array) -> tuple[Array, Array]:
    first, last = np.zeros(rows, bool), np.zeros(rows, bool)
    first[offsets[:-1]] = True
    last[offsets[1:] - 1] = True
    return first, last


def _placed(values: Array, last: Array) -> Array:
    """A value for each decision, and zero for the steps that only end an episode."""
    column = np.zeros(len(last), values.dtype)
    column[~last] = values
    return column
