"""A Minari dataset folder (Farama), episode by episode through Minari's own storage.

Minari has no field for masks and outcomes: masks are the episode's info `action_mask`, outcomes its options `success` (1, 0,
-1 unknown) and `augmented`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from logforge.core import need, refuse_foreign, replaced_folder
from logforge.exports.job import Job, Written
from logforge.schemas import UsageError
from logforge.shards import Shard

MARK = "logforge_manifest.json"
_ID = re.compile(r"[-\w]+-v\d+")


def write(job: Job) -> list[Written]:
    """The folder `out`, whose name is the dataset's id (`NAME-v0`)."""
    if not _ID.fullmatch(job.out.name):
        raise UsageError(
            f"{job.out.name!r} is no id of a Minari dataset", f"name it like --out {_suggested(job.out)}"
        )
    for module in ("minari", "h5py", "PIL"):
        need(module, "minari")
    refuse_foreign(job.out, MARK, "a Minari dataset that logforge wrote")
    with replaced_folder(job.out) as fresh:
        _write(job, fresh)
        (fresh / MARK).write_text(job.manifest.to_json(), encoding="utf-8")
    return [Written(job.shard.split, job.shard.episode_count, job.shard.size)]


def _suggested(out: Path) -> Path:
    return out.with_name(re.sub(r"[^-\w]+", "-", out.name).strip("-") + "-v0")


def _write(job: Job, folder: Path) -> None:
    from minari import __version__
    from minari.dataset.minari_storage import MinariStorage

    shard, gym = job.shard, need("gymnasium", "minari")
    storage = MinariStorage.new(
        folder / "data",
        observation_space=gym.spaces.Box(-np.inf, np.inf, (shard.observation_size,), np.float32),
        action_space=gym.spaces.Discrete(shard.action_size),
        data_format="hdf5",
        jpeg_encoding=False,
    )
    storage.update_metadata(
        {
            "dataset_id": job.out.name,
            "minari_version": __version__,
            "algorithm_name": "the logged agents",
            "description": f"{shard.split} of {shard.manifest.dataset}; actions: {', '.join(shard.manifest.actions)}",
            "logforge_dataset": shard.manifest.hash,
            "logforge_split": shard.split,
        }
    )
    storage.update_episodes(_buffers(job, shard))


def _buffers(job: Job, shard: Shard) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    for index, episode in enumerate(shard.episodes()):
        ends = np.zeros((2, len(episode.actions)), bool)
        ends[0 if episode.terminal else 1, -1] = True
        yield EpisodeBuffer(
            id=index,
            options={"success": int(shard.success[index]), "augmented": bool(shard.augmented[index])},
            observations=episode.observations,
            actions=episode.actions.astype(np.int64),
            rewards=episode.rewards,
            terminations=ends[0],
            truncations=ends[1],
            infos={"action_mask": episode.masks},
        )
        job.tick(index + 1, shard.episode_count, shard.split)
