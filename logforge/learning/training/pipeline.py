"""Training: a learner and, always beside it, behaviour cloning of all and of the successful episodes.

Only the train split is fitted. Validation gives metrics on the way, test is never read. Cloning comes first: what the learner
does is measured against it (monitors.py), and a member that runs away is stopped (alarms.py). A run is a folder:

    runs/NAME/train.json       configuration, dataset, packages, what was stopped or left out and why, wall seconds
    runs/NAME/metrics.jsonl    losses and validation metrics of each policy, a row per epoch
    runs/NAME/{cql,bc,bc_success}/   policy bundles of the first member; those of the others end in -SEED
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from logforge.core.extras import import_d3rlpy, need
from logforge.core.files import refuse_foreign, replaced_folder
from logforge.core.intervals import Estimate
from logforge.core.progress import Tick
from logforge.core.report import BaseReport, Lines, noted, text
from logforge.core.tabulate import table
from logforge.learning.policies.bundle import served_files
from logforge.learning.policies.habits import habits_of
from logforge.learning.policies.runs import BC, BC_SUCCESS, METRICS_FILE, RUN_FILE, RUN_VERSION
from logforge.learning.training.alarms import Alarm, Kept, Limits, Watch
from logforge.learning.training.checkpoint_values import kept_values
from logforge.learning.training.config import Point, TrainConfig
from logforge.learning.training.continual import check_start, reach, started_from
from logforge.learning.training.experience import succeeded
from logforge.learning.training.fisher import with_fisher
from logforge.learning.training.learners import CONSERVATIVE
from logforge.learning.training.monitors import Behaviour, Measured, Monitor
from logforge.learning.training.notes import fresh_starts, notes
from logforge.learning.training.policy_vectors import check_texts, policy_fit
from logforge.learning.training.presets import preset as named
from logforge.learning.training.rescoring import like, rescored
from logforge.schemas.errors import CheckFailed, UnknownName, UsageError
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import Shard, load_shards

_PACKAGES = ("d3rlpy", "logforge", "numpy", "safetensors", "torch")


_COLUMNS = (
    "policy", "update", "episodes", "decisions", "match", "like bc", "ood", "max Q", "improvement", "FQE",
)  # fmt: skip


@dataclass(frozen=True)
class TrainReport(BaseReport):
    """What a run made. `policies` holds each policy's data, the metrics of the checkpoint that was kept and what a first member's is
    worth (`fqe`, see checkpoint_values.py), `left_out` the reason for each absent one, `stopped` the alarm that ended the training of a
    policy, `warnings` those that did not.
    `possible_returns` is the range that Q was held against, `started_from` what each policy began with beside a warm start (None:
    afresh)."""

    first = ("schema_version",)
    schema_version: ClassVar[int] = RUN_VERSION

    run: str
    dataset: dict[str, str]
    config: dict[str, Any]
    policies: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    stopped: dict[str, dict[str, Any]]
    warnings: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    packages: dict[str, str]
    seconds: float
    possible_returns: tuple[float, float]
    started_from: dict[str, str | None]

    @property
    def fresh(self) -> tuple[str, ...]:
        """What began otherwise than with its own earlier policy, beside a warm start."""
        return tuple(fresh_starts(self.config["warm_start"], self.started_from))

    @property
    def alarm(self) -> str:
        """What was stopped and why, line by line; empty when all went to the end."""
        return "\n".join(
            f"stopped {name} at update {found['update']:,} ({found['rule']}): {found['what']}. The policy of update "
            f"{found['kept_update']:,} is kept. Remedy: {found['remedy']}"
            for name, found in self.stopped.items()
        )

    def lines(self) -> Lines:
        """A row for each policy, and what is to be known of them."""
        numbers = ("validation_match", "clone_share", "ood_share", "validation_max_q", "improvement")
        keys = ("update", "episodes", "transitions", *numbers)
        rows = [
            (name, *(facts.get(key) for key in keys), facts.get("fqe", {}).get("value"))
            for name, facts in self.policies.items()
        ]
        source = f"{self.dataset['name']} ({self.dataset['hash'][:12]})"
        yield f"trained on {source} in {self.seconds:.0f} s: {self.run}\n"
        yield table(_COLUMNS, rows)
        told = [
            self.alarm or None,
            *(f"warning: {found['policy']}: {found['what']}" for found in self.warnings),
            *(f"left out: {name}: {reason}" for name, reason in self.left_out.items()),
            *noted((*self.fresh, *self.notes)),
        ]
        yield "\n" + text(told) if any(told) else None


def train(
    dataset_path: str | Path,
    *,
    out: str | Path,
    config: TrainConfig | None = None,
    preset: str = "default",
    progress: Tick | None = None,
    **settings: Any,
) -> TrainReport:
    """Train a learner and both kinds of cloning on the train split; write the run's folder in place of an earlier run.

    The settings are those of TrainConfig, as `config` or by name, on top of those of `preset` (presets.py).
    """
    config = config or named(preset, **settings)
    backend = _backend(config.backend)
    need("safetensors", "train")
    started, target = time.monotonic(), Path(out)
    refuse_foreign(target, RUN_FILE, "a run")
    shard = load_shards(dataset_path, "train")
    if not shard.size:
        raise UsageError(
            f"the train split of {dataset_path} is empty", "ingest more episodes and build again"
        )
    config = config.sized(shard.size)
    shard = rescored(shard, config.gamma, config.step_cost)
    check_start(config, shard.manifest)
    check_texts(config, shard)
    job = _Job(config, shard, _validation(Path(dataset_path), shard, config), progress)
    with replaced_folder(target) as fresh:
        trained = {name: facts for part in job.parts for name, facts in job.fit(part, backend).items()}
        job.save(fresh)
        for name, value in job.values().items():
            trained[name]["fqe"] = value._asdict()
        report = TrainReport(
            run=str(target),
            dataset=_origin(shard),
            config=asdict(config),
            policies=trained,
            left_out=job.left_out,
            stopped=job.stopped,
            warnings=tuple(alarm.as_dict() for alarm in job.warnings),
            notes=tuple(notes(config, shard, job.validation, job.span, trained)),
            packages={name: found for name in _PACKAGES if (found := _version(name))},
            seconds=round(time.monotonic() - started, 1),
            possible_returns=(job.span.low, job.span.high),
            started_from=job.started,
        )
        (fresh / METRICS_FILE).write_text(
            "".join(json.dumps(_plain(row)) + "\n" for row in job.metrics), "utf-8"
        )
        (fresh / RUN_FILE).write_text(json.dumps(_plain(report.as_dict()), indent=1) + "\n", "utf-8")
    return report


def _backend(name: str) -> ModuleType:
    """What trains: a module whose `points` does it."""
    if name == "d3rlpy":
        import_d3rlpy()
        from logforge.learning.training import d3rlpy_backend as d3rlpy_training

        return d3rlpy_training
    need("torch", "train")
    from logforge.learning.training import torch_backend as torch_training

    return torch_training


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    """As JSON can hold it: NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Job:
    """One run at work: the data of each policy, and what was seen so far."""

    def __init__(
        self, config: TrainConfig, shard: Shard, validation: Shard | None, progress: Tick | None
    ) -> None:
        manifest = shard.manifest
        self.config, self.validation, self.progress = config, validation, progress
        self.span = reach(config, shard)
        place = self.span, manifest.gamma, manifest.vocabulary
        self.monitor = None if validation is None else Monitor.of(shard, validation, *place)
        self.behaviour: dict[int, Behaviour] = {}
        self.left_out: dict[str, str] = {}
        self.stopped: dict[str, dict[str, Any]] = {}
        self.started: dict[str, str | None] = {}
        self.warnings: list[Alarm] = []
        self.metrics: list[dict[str, Any]] = []
        self.made: dict[str, Point] = {}
        self.parts: dict[str, Shard] = {BC: shard}
        good = succeeded(shard)
        if good.any():
            self.parts[BC_SUCCESS] = _episodes(shard, good)
        else:
            self.left_out[BC_SUCCESS] = "no complete episode of the train split is marked a success"
        self.parts.setdefault(config.algo, shard)

    def fit(self, part: str, backend: ModuleType) -> dict[str, dict[str, Any]]:
        """Train all members of one policy, keep their bundles and return the facts of each."""
        alpha = self.config.alpha if part in CONSERVATIVE else 0.0
        data, clipped = self.parts[part], self.config.clips
        limits = Limits.of(self.span, alpha, data.returns, data.actions, clipped=clipped)
        watches = {seed: Watch(self._name(part, seed), limits) for seed in self.config.seeds}
        if self.config.warm_start is not None:
            began: list[str | None] = [str(one) for one in started_from(self.config, part)]
            began = began or [None] * len(watches)
            self.started |= {watch.policy: one for watch, one in zip(watches.values(), began, strict=True)}
        halted: set[int] = set()
        for point in self._shown(part, backend, halted):
            watch = watches[point.seed]
            if watch.stopped is None:
                watch.see(self._measured(watch.policy, point))
                self.metrics.append(watch.rows[-1])
            if watch.stopped is not None:
                halted.add(point.seed)
        found = {watch.policy: self._settled(watch, self.parts[part]) for watch in watches.values()}
        if part == BC and self.monitor is not None:
            clones = {seed: self.made[watch.policy].bundle for seed, watch in watches.items()}
            self.behaviour = {seed: self.monitor.behaviour(clone) for seed, clone in clones.items()}
        return found

    def _measured(self, policy: str, point: Point) -> Kept:
        finite = all(map(math.isfinite, point.losses.values()))
        finite = finite and bool(np.isfinite(point.bundle.card.golden.scores).all())
        row = {"policy": policy, "seed": point.seed, "epoch": point.epoch, "update": point.update}
        row |= {"finite": finite, **point.losses}
        seen = Measured({}, None)
        if finite and self.monitor is not None:
            seen = self.monitor.measure(point.bundle, self.behaviour.get(point.seed))
        return Kept(point, row | seen.numbers, seen.gains)

    def _settled(self, watch: Watch, shard: Shard) -> dict[str, Any]:
        """Keep a member's checkpoint; its facts are those of that epoch, and how much better an earlier one was."""
        kept, best, alarm = watch.kept, watch.best, watch.stopped
        if kept is None or best is None:
            what = f"{watch.policy} ran away before its first epoch ended: {alarm.what if alarm else ''}"
            raise CheckFailed(what, remedy="lower --learning-rate, and look for odd numbers in the rewards")
        kept.point.bundle.verify()
        self.made[watch.policy] = kept.point._replace(bundle=with_fisher(kept.point.bundle, shard))
        if alarm is not None:
            self.stopped[watch.policy] = {**alarm.as_dict(), "kept_update": kept.row["update"]}
        self.warnings += watch.warnings()
        facts = {"episodes": shard.episode_count, "transitions": shard.size, **kept.row}
        facts["best_update"] = best.row["update"]
        if self.validation is not None and (fit := policy_fit(kept.point.bundle, self.validation)):
            facts["policy_fit"] = fit._asdict()
        if self.monitor is not None and best.gains is not None and kept.gains is not None:
            facts["lost"], facts["lost_se"] = self.monitor.mean(best.gains - kept.gains)
        return facts

    def values(self) -> dict[str, Estimate]:
        """What the first member's policies are worth on validation."""
        manifest = self.parts[BC].manifest
        first = {name: point.bundle for name, point in self.made.items() if point.seed == self.config.seed}
        return kept_values(
            first, self.parts[BC], self.validation, gamma=manifest.gamma, seen=manifest.return_range,
            updates=self.config.updates,
        )  # fmt: skip

    def save(self, folder: Path) -> None:
        """Write the bundles. Each tells by the clone of its own seed what the behaviour does, where it has no such part itself."""
        files = served_files(self.parts[BC])
        clones = {seed: self.made[self._name(BC, seed)].bundle.layers for seed in self.config.seeds}
        for name, point in self.made.items():
            behaviour = point.bundle.behaviour or clones[point.seed]
            policy = replace(point.bundle, behaviour=behaviour, files=files)
            habits = habits_of(policy, self.parts[BC])
            replace(policy, card=structs.replace(policy.card, habits=habits)).save(folder / name)

    def _name(self, part: str, seed: int) -> str:
        return part if seed == self.config.seed else f"{part}-{seed}"

    def _shown(self, part: str, backend: ModuleType, halted: Collection[int]) -> Iterator[Point]:
        """Train one policy's members: the points on the way, and progress."""
        place, rounds = list(self.parts).index(part), backend.rounds(self.config)
        learner = BC if part == BC_SUCCESS else part
        made = backend.points(learner, part, self.parts[part], self.config, halted)
        for done, points in enumerate(made, 1):
            if self.progress is not None:
                note = _said(part, self.metrics[-1] if self.metrics else {})
                self.progress(place * rounds + done, len(self.parts) * rounds, note)
            yield from points


def _said(part: str, row: dict[str, Any]) -> str:
    """The policy at work and its last epoch in a few words."""
    if not row or not row["policy"].startswith(part):
        return part
    words = [part]
    if row.get("validation_max_q") is not None:
        words.append(f"max Q {row['validation_max_q']:.2g}/{row['possible_high']:.2g}")
    if row.get("clone_share") is not None:
        words.append(f"like bc {row['clone_share']:.0%}")
    return " ".join(words)


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


def _origin(shard: Shard) -> dict[str, str]:
    manifest = shard.manifest
    path = str(shard.path.resolve())
    return {
        "name": manifest.dataset,
        "path": path,
        "hash": manifest.hash,
        "spec_hash": manifest.spec_hash,
    }
