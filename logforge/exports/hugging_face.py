"""A folder as the Hugging Face hub has them: Parquet files by split, and a dataset card whose head says what is where."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from logforge.core import refuse_foreign, replaced_folder
from logforge.exports.card import Size, card
from logforge.exports.job import Job, Written
from logforge.exports.rows import write_rows
from logforge.shards import Shard

MARK = "logforge_manifest.json"
_FILE_BYTES = 500_000_000
"""Of a file's rows, before they are compressed."""


def write(job: Job) -> list[Written]:
    """The folder `out` with `README.md`, `data/SPLIT-00000-of-00001.parquet` and the manifest. Empty splits have no file."""
    refuse_foreign(job.out, MARK, "an export for Hugging Face that logforge wrote")
    shards = [shard for shard in job.shards if shard.size]
    with replaced_folder(job.out) as fresh:
        data = fresh / "data"
        data.mkdir()
        for shard in shards:
            _write_split(job, shard, data)
        sizes = {shard.split: _size(data.glob(f"{shard.split}-*")) for shard in shards}
        text = card(job.manifest, sizes, features(job.shard))
        (fresh / "README.md").write_text(text, encoding="utf-8")
        (fresh / MARK).write_text(job.manifest.to_json(), encoding="utf-8")
    return [Written(shard.split, shard.size, shard.size) for shard in job.shards]


def _size(files: Iterable[Path]) -> Size:
    stored = held = 0
    for file in files:
        groups = pq.read_metadata(file)
        stored += file.stat().st_size
        held += sum(groups.row_group(index).total_byte_size for index in range(groups.num_row_groups))
    return Size(stored, held)


def _write_split(job: Job, shard: Shard, folder: Path) -> None:
    kinds = {"info": {"features": {one["name"]: _typed(one) for one in features(shard)}}}
    metadata = {b"huggingface": json.dumps(kinds, ensure_ascii=False).encode()}
    width = 10 * shard.observation_size + 2 * shard.action_size + 64
    size = max(1, _FILE_BYTES // width)
    files = -(-shard.size // size)
    for number in range(files):
        file = folder / f"{shard.split}-{number:05d}-of-{files:05d}.parquet"
        start = number * size
        write_rows(shard, file, start, min(start + size, shard.size), job.tick, metadata)


def features(shard: Shard) -> list[dict[str, Any]]:
    """The columns as a card's head has them."""
    names = {str(place): name for place, name in enumerate(shard.manifest.actions)}
    wide, long, numbers = shard.observation_size, shard.action_size, len(shard.manifest.argument_numbers)
    columns: list[dict[str, Any]] = [
        {"name": "episode", "dtype": "int64"},
        {"name": "step", "dtype": "int64"},
        {"name": "observation", "list": "float32", "length": wide},
        {"name": "mask", "list": "bool", "length": long},
        {"name": "action_id", "dtype": {"class_label": {"names": names}}},
        {"name": "action", "dtype": "string"},
        {"name": "reward", "dtype": "float32"},
        {"name": "next_observation", "list": "float32", "length": wide},
        {"name": "next_mask", "list": "bool", "length": long},
        {"name": "terminal", "dtype": "bool"},
        {"name": "timeout", "dtype": "bool"},
        {"name": "return_to_go", "dtype": "float32"},
        {"name": "propensity", "dtype": "float32"},
        {"name": "propensity_kind", "dtype": "string"},
        {"name": "behaviour_policy", "dtype": "string"},
        {"name": "proposed_action", "dtype": "string"},
        {"name": "argument_template", "dtype": "string"},
        {"name": "weight", "dtype": "float32"},
        {"name": "augmented", "dtype": "bool"},
        {"name": "success", "dtype": "bool"},
        {"name": "group", "dtype": "int32"},
    ]
    if numbers:
        columns.append({"name": "argument_numbers", "list": "float32", "length": numbers})
        columns.append({"name": "argument_numbers_known", "list": "bool", "length": numbers})
    return columns


def _typed(column: dict[str, Any]) -> dict[str, Any]:
    """The same column as a Parquet file's metadata has it."""
    if "list" in column:
        value = {"dtype": column["list"], "_type": "Value"}
        return {"feature": value, "length": column["length"], "_type": "List"}
    if isinstance(column["dtype"], dict):
        return {"names": list(column["dtype"]["class_label"]["names"].values()), "_type": "ClassLabel"}
    return {"dtype": column["dtype"], "_type": "Value"}
