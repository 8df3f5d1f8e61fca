"""A row for each transition, as Parquet: with observations and masks, and those that followed, as lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logforge.core import replaced_file
from logforge.exports.job import Job, Written
from logforge.schemas import PROPENSITY_KINDS
from logforge.shards import Array, Shard

GROUP = 8192
"""Rows that are in memory at once: a row group."""


def write(job: Job) -> list[Written]:
    """One file; the manifest is in the schema's metadata."""
    shard = job.shard
    with replaced_file(job.out) as fresh:
        write_rows(shard, fresh, 0, shard.size, job.tick)
    return [Written(shard.split, shard.size, shard.size)]


def write_rows(
    shard: Shard,
    file: Path,
    start: int,
    stop: int,
    tick: Callable[[int, int, str], None],
    metadata: dict[bytes, bytes] | None = None,
) -> None:
    """The transitions from `start` to `stop` (at least one) as one Parquet file, a row group at a time."""
    told = {b"logforge_manifest": shard.manifest.to_json().encode()} | (metadata or {})
    schema = rows_of(shard, start, start + 1).schema.with_metadata(told)
    with pq.ParquetWriter(file, schema) as writer:
        for begin in range(start, stop, GROUP):
            end = min(begin + GROUP, stop)
            writer.write_table(rows_of(shard, begin, end).cast(schema))
            tick(end, shard.size, shard.split)


def rows_of(shard: Shard, start: int, stop: int) -> pa.Table:
    """Some transitions as a table."""
    indices = np.arange(start, stop)
    batch, episodes = shard.batch(indices), shard.episode_index[start:stop]
    names, side, success = (
        pa.array(shard.manifest.actions),
        shard.manifest.side_names,
        shard.success[episodes],
    )
    columns: dict[str, Any] = {
        "episode": episodes,
        "step": indices - shard.episode_offsets[episodes],
        "observation": lists(batch.observations),
        "mask": lists(batch.masks),
        "action_id": batch.actions,
        "action": names.take(pa.array(batch.actions)),
        "reward": batch.rewards,
        "next_observation": lists(batch.next_observations),
        "next_mask": lists(batch.next_masks),
        "terminal": batch.terminals,
        "timeout": shard.timeouts[start:stop],
        "return_to_go": batch.returns,
        "propensity": pa.array(shard.propensities[start:stop], from_pandas=True),
        "propensity_kind": _named(shard.propensity_kinds[start:stop], PROPENSITY_KINDS),
        "behaviour_policy": _named(shard.behaviour_policies[start:stop], side.policies),
        "proposed_action": names.take(pa.array(shard.proposed_actions[start:stop])),
        "argument_template": _named(
            shard.argument_templates[start:stop], [one.template for one in side.templates]
        ),
        "weight": batch.weights,
        "augmented": shard.augmented[episodes],
        "success": pa.array(success == 1, mask=success < 0),
        "group": shard.groups[episodes],
    }
    if side.numbers:
        columns["argument_numbers"] = lists(shard.argument_numbers[start:stop])
        columns["argument_numbers_known"] = lists(shard.argument_numbers_known[start:stop])
    return pa.table(columns)


def _named(places: Array, names: Sequence[str]) -> pa.Array[Any]:
    """The names at these places; null at those below 0."""
    return pa.array(names, pa.string()).take(pa.array(places, mask=places < 0))


def lists(rows: Array) -> pa.Array[Any]:
    """A matrix as an array of lists of one length."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
