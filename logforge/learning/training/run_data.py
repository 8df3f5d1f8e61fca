"""What a run learns from and is measured on: the train split whole and its successes, the validation split, the range of returns."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from logforge.core import Span, from_all, stage
from logforge.learning.policies import BC, BC_SUCCESS
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.continual import check_start, like, reach, rescored
from logforge.learning.training.experience import succeeded
from logforge.learning.training.monitors import Monitor
from logforge.learning.training.policy_vectors import check_texts
from logforge.schemas import UnknownName, UsageError
from logforge.shards import Shard, SplitArrays, load_shards


@dataclass(frozen=True)
class Request:
    """What is to be trained, on which dataset."""

    dataset: str | Path
    config: TrainConfig


@dataclass(frozen=True, eq=False)
class RunData:
    """The data of a run. `parts` has the data of each policy in the order of their training, `left_out` why there is none of another;
    `config` has its updates by the size of the split."""

    config: TrainConfig
    shard: Shard
    validation: Shard | None
    parts: dict[str, Shard]
    left_out: dict[str, str]
    span: Span
    monitor: Monitor | None

    @property
    def origin(self) -> dict[str, str]:
        """The dataset, as a run names it."""
        manifest = self.shard.manifest
        return {
            "name": manifest.dataset,
            "path": str(self.shard.path.resolve()),
            "hash": manifest.hash,
            "spec_hash": manifest.spec_hash,
        }


@stage(
    from_all(
        "splits in the run's rewards and discount",
        "arrays of the train and validation splits; observations stay on disk",
    )
)
def load(request: Request) -> RunData:
    """The splits in the run's own rewards and discount; refuses what cannot be trained before anything is."""
    config = request.config
    shard = load_shards(request.dataset, "train")
    if not shard.size:
        raise UsageError(
            f"the train split of {request.dataset} is empty", "ingest more episodes and build again"
        )
    config = config.sized(shard.size)
    shard = rescored(shard, config.gamma, config.step_cost)
    check_start(config, shard.manifest)
    check_texts(config, shard)
    validation = _validation(Path(request.dataset), shard, config)
    span, manifest = reach(config, shard), shard.manifest
    place = span, manifest.gamma, manifest.vocabulary
    monitor = None if validation is None else Monitor.of(shard, validation, *place)
    parts, left_out = _parts(shard, config)
    return RunData(config, shard, validation, parts, left_out, span, monitor)


def _parts(shard: Shard, config: TrainConfig) -> tuple[dict[str, Shard], dict[str, str]]:
    """Cloning of all and of the successes, and the learner's."""
    parts, left_out, good = {BC: shard}, dict[str, str](), succeeded(shard)
    if good.any():
        parts[BC_SUCCESS] = _episodes(shard, good)
    else:
        left_out[BC_SUCCESS] = "no complete episode of the train split is marked a success"
    parts.setdefault(config.algo, shard)
    return parts, left_out


def _episodes(shard: Shard, keep: NDArray[np.bool_]) -> Shard:
    """The same shard with some of its episodes only."""
    chosen = shard.only(keep)
    return replace(shard, **{field.name: getattr(chosen, field.name) for field in fields(SplitArrays)})


def _validation(folder: Path, train: Shard, config: TrainConfig) -> Shard | None:
    try:
        shard = load_shards(folder, "validation")
    except UnknownName:
        return None
    return like(rescored(shard, config.gamma, config.step_cost), train) if shard.size else None
