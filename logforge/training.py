"""Training: a learner and, always beside it, behaviour cloning of all and of the successful episodes.

Only the train split is fitted. Validation gives metrics on the way, test is never read. A run is a folder:

    runs/NAME/train.json       configuration, dataset, packages, what was left out and why, wall seconds
    runs/NAME/metrics.jsonl    losses and validation metrics, ten times per policy
    runs/NAME/{cql,bc,bc_success}/   policy bundles of the first member; those of the others end in -SEED
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logforge.arrays import SplitArrays
from logforge.atomic import refuse_foreign, replaced_folder
from logforge.ope import Span, possible_returns
from logforge.optional import import_d3rlpy, need
from logforge.policy import PolicyBundle
from logforge.progress import Tick
from logforge.schemas.errors import UnknownName, UsageError
from logforge.shards import Shard, load_shards
from logforge.tabulate import table
from logforge.train_config import Point, TrainConfig

RUN_FILE, METRICS_FILE = "train.json", "metrics.jsonl"
RUN_VERSION: Final = 2
BC, BC_SUCCESS = "bc", "bc_success"
_PACKAGES = ("d3rlpy", "logforge", "numpy", "safetensors", "torch")


@dataclass(frozen=True)
class TrainReport:
    """What a run made. `policies` holds each policy's data and last metrics, `left_out` the reason for each absent one."""

    run: str
    dataset: dict[str, str]
    config: dict[str, Any]
    policies: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    notes: tuple[str, ...]
    packages: dict[str, str]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data; it is also what `train.json` holds."""
        return {"schema_version": RUN_VERSION, **asdict(self), "notes": list(self.notes)}

    def render(self) -> str:
        """The report as text."""
        header = ("policy", "episodes", "decisions", "loss", "validation match", "validation max Q")
        keys = ("episodes", "transitions", "loss", "validation_match", "validation_max_q")
        rows = [(name, *(facts.get(key) for key in keys)) for name, facts in self.policies.items()]
        lines = [
            f"trained on {self.dataset['name']} ({self.dataset['hash'][:12]}) in {self.seconds:.0f} s: {self.run}",
            "",
        ]
        lines += [table(header, rows), ""]
        lines += [f"left out: {name}: {reason}" for name, reason in self.left_out.items()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines).rstrip()


def train(
    dataset_path: str | Path,
    *,
    out: str | Path,
    config: TrainConfig | None = None,
    progress: Tick | None = None,
    **settings: Any,
) -> TrainReport:
    """Train a learner and both kinds of cloning on the train split; write the run's folder in place of an earlier run.

    The settings are those of TrainConfig, as `config` or by name.
    """
    config = config or TrainConfig(**settings)
    backend = _backend(config.backend)
    need("safetensors", "train")
    started, target = time.monotonic(), Path(out)
    refuse_foreign(target, RUN_FILE, "a run")
    shard = load_shards(dataset_path, "train")
    if not shard.size:
        raise UsageError(
            f"the train split of {dataset_path} is empty", "ingest more episodes and build again"
        )
    job = _Job(config, shard, _validation(Path(dataset_path)), progress)
    with replaced_folder(target) as fresh:
        trained = {name: facts for part in job.parts for name, facts in job.fit(part, backend, fresh).items()}
        report = TrainReport(
            run=str(target),
            dataset=_origin(shard),
            config=asdict(config),
            policies=trained,
            left_out=job.left_out,
            notes=tuple(_notes(config, shard, job, trained)),
            packages={name: found for name in _PACKAGES if (found := _version(name))},
            seconds=round(time.monotonic() - started, 1),
        )
        (fresh / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in job.metrics), "utf-8")
        (fresh / RUN_FILE).write_text(json.dumps(report.as_dict(), indent=1) + "\n", "utf-8")
    return report


def _backend(name: str) -> ModuleType:
    """What trains: a module whose `points` does it."""
    if name == "d3rlpy":
        import_d3rlpy()
        from logforge import d3rlpy_training

        return d3rlpy_training
    need("torch", "train")
    from logforge import torch_training

    return torch_training


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class _Job:
    """One run at work: the data of each policy, and the metrics gathered so far."""

    def __init__(
        self, config: TrainConfig, shard: Shard, validation: Shard | None, progress: Tick | None
    ) -> None:
        self.config, self.validation, self.progress = config, validation, progress
        self.span = possible_returns(
            shard.rewards, shard.terminals, shard.manifest.gamma, shard.manifest.return_range
        )
        self.parts: dict[str, Shard] = {config.algo: shard, BC: shard}
        self.left_out: dict[str, str] = {}
        self.metrics: list[dict[str, Any]] = []
        good = (shard.success == 1) & shard.terminals[shard.episode_offsets[1:] - 1]
        if good.any():
            self.parts[BC_SUCCESS] = _episodes(shard, good)
        else:
            self.left_out[BC_SUCCESS] = "no complete episode of the train split is marked a success"

    def fit(self, part: str, backend: ModuleType, folder: Path) -> dict[str, dict[str, Any]]:
        """Train all members of one policy, save their bundles and return the facts of each."""
        shard = self.parts[part]
        last: dict[int, tuple[Point, dict[str, Any]]] = {}
        for point in self._shown(part, backend):
            row: dict[str, Any] = {
                "policy": self._name(part, point.seed),
                "seed": point.seed,
                "update": point.update,
                **point.losses,
                **self._validate(point.bundle),
            }
            self.metrics.append(row)
            last[point.seed] = point, row
        for point, row in last.values():
            point.bundle.verify()
            point.bundle.save(folder / row["policy"])
        size = {"episodes": shard.episode_count, "transitions": shard.size}
        return {row["policy"]: {**size, **row} for _, row in last.values()}

    def _name(self, part: str, seed: int) -> str:
        return part if seed == self.config.seed else f"{part}-{seed}"

    def _shown(self, part: str, backend: ModuleType) -> Iterator[Point]:
        """Train one policy's members: the points on the way, and progress."""
        place, rounds = list(self.parts).index(part), backend.rounds(self.config)
        learner = BC if part == BC_SUCCESS else part
        made = backend.points(learner, part, self.parts[part], self.config)
        for done, points in enumerate(made, 1):
            if self.progress is not None:
                self.progress(place * rounds + done, len(self.parts) * rounds, part)
            yield from points

    def _validate(self, bundle: PolicyBundle) -> dict[str, float]:
        held = self.validation
        if held is None:
            return {}
        choices = bundle.act(held.observations, held.masks)
        known = held.actions != held.manifest.vocabulary.invalid
        agree = choices[held.observation_rows] == held.actions
        found = {"validation_match": float(agree[known].mean())} if known.any() else {}
        if bundle.card.kind == "q":
            found |= _q_metrics(bundle.scores(held.observations), choices, held, bundle.card.gamma)
            found |= {"possible_low": self.span.low, "possible_high": self.span.high}
        return found


def _q_metrics(
    scores: NDArray[np.float32], choices: NDArray[np.int32], held: SplitArrays, gamma: float
) -> dict[str, float]:
    rows = held.observation_rows
    best = scores[np.arange(len(scores)), choices]
    goal = held.rewards + gamma * ~held.terminals * best[rows + 1]
    error = (scores[rows, held.actions] - goal) ** 2
    return {
        "validation_td_error": float(error.mean()),
        "validation_mean_q": float(best[rows].mean()),
        "validation_max_q": float(best[rows].max()),
    }


def _episodes(shard: Shard, keep: NDArray[np.bool_]) -> Shard:
    """The same shard with some of its episodes only."""
    chosen = shard.only(keep)
    return replace(shard, **{field.name: getattr(chosen, field.name) for field in fields(SplitArrays)})


def _validation(folder: Path) -> Shard | None:
    try:
        shard = load_shards(folder, "validation")
    except UnknownName:
        return None
    return shard if shard.size else None


def _origin(shard: Shard) -> dict[str, str]:
    manifest = shard.manifest
    path = str(shard.path.resolve())
    return {
        "name": manifest.dataset,
        "path": path,
        "hash": manifest.hash,
        "spec_hash": manifest.spec_hash,
    }


def _notes(
    config: TrainConfig, shard: Shard, job: _Job, trained: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """What a reader of the run has to know beside its numbers."""
    if config.algo == "cql":
        yield from _alpha_note(config.alpha, shard.manifest.return_range)
        yield from _q_note(trained["cql"], job.span)
    if config.backend == "d3rlpy" and (shard.weights != 1).any():
        yield "sample weights were not used: d3rlpy has no place for them"
    if (
        config.backend == "d3rlpy"
        and not np.delete(shard.masks, shard.manifest.vocabulary.invalid, axis=1).all()
    ):
        yield "masks hold when a policy acts; d3rlpy's training does not know them"
    if job.validation is None:
        yield "there is no validation split, so no validation metrics"


def _alpha_note(alpha: float, seen: tuple[float, float] | None) -> Iterator[str]:
    """α was measured to suit returns: 0.3 at ±1, 1 at up to 10; between and beyond, the line through both."""
    scale = max(abs(bound) for bound in seen) if seen else 0.0
    if not scale:
        return
    fitting = 0.3 * scale ** np.log10(1 / 0.3)
    if not fitting / 2 <= alpha <= fitting * 2:
        yield (
            f"returns reach {scale:.3g}: alpha {alpha:g} suits returns of another size, about {fitting:.2g} would fit "
            "(choose it on validation)"
        )


def _q_note(facts: Mapping[str, Any], span: Span) -> Iterator[str]:
    highest = facts.get("validation_max_q")
    if highest is not None and highest > span.high:
        yield f"max Q {highest:.3g} is above {span.high:.3g}, the most that a return can be (good runs show this too)"
