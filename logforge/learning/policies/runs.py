"""A training run on disk: its record, and the dataset it was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from logforge.core import plain_file
from logforge.schemas import InputError, Mismatch, UsageError, unsafe_file_names
from logforge.shards import Shard, load_shards


def read_run(folder: Path) -> dict[str, Any]:
    """The record of the run in this folder. Raises UsageError, InputError or Mismatch where there is none that can be used."""
    file = plain_file(folder, RUN_FILE)
    try:
        run = json.loads(file.read_bytes())
        version, _ = run["schema_version"], (run["dataset"]["path"], run["config"]["algo"])
        strange = [problem.what for problem in unsafe_file_names(run["policies"])]
    except OSError as error:
        raise UsageError(f"there is no run in {folder}", "make one: logforge train") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(file), "not the record of a run", remedy="train again") from error
    if version != RUN_VERSION:
        raise Mismatch(f"{file}: schema version", RUN_VERSION, version, "train again")
    if strange:
        raise InputError(str(file), "; ".join(strange), remedy="train again", rule="unsafe_file_name")
    return dict(run)


def run_data(run: Mapping[str, Any], dataset_path: str | Path | None, split: str) -> tuple[Shard, Shard]:
    """The held-out split and the train split. The dataset of the run must still be the one it was trained on."""
    folder = Path(run["dataset"]["path"] if dataset_path is None else dataset_path)
    if dataset_path is None and not folder.exists():
        raise UsageError(f"the run's dataset is no longer at {folder}", "name its folder")
    held, train = load_shards(folder, split), load_shards(folder, "train")
    if dataset_path is None and held.manifest.hash != run["dataset"]["hash"]:
        if held.manifest.replaces == run["dataset"]["hash"]:
            remedy = (
                f"{held.manifest.forgotten} episodes of it were forgotten: train again, and delete this run"
            )
        else:
            remedy = "It was built again, and what is held out now may have been trained on: train again, or name the folder"
        raise Mismatch(f"{folder}: dataset", run["dataset"]["hash"], held.manifest.hash, remedy)
    held.verify()
    return held, train


RUN_FILE, METRICS_FILE = "train.json", "metrics.jsonl"


RUN_VERSION: Final = 3


BC, BC_SUCCESS = "bc", "bc_success"
