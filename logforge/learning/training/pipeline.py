"""Training: a learner and, always beside it, behaviour cloning of all and of the successful episodes.

Only the train split is fitted. Validation gives metrics on the way, test is never read. Cloning comes first: what the learner
does is measured against it (monitors.py), and a member that runs away is stopped (alarms.py).

splits loaded → members fitted, epoch by epoch → what is kept is worth so much → policies made to be served → report

A run is a folder:

    runs/NAME/train.json       configuration, dataset, packages, what was stopped or left out and why, wall seconds
    runs/NAME/metrics.jsonl    losses and validation metrics of each policy, a row per epoch
    runs/NAME/{cql,bc,bc_success}/   policy bundles of the first member; those of the others end in -SEED
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec import structs

from logforge.core import (
    Estimate,
    Scope,
    Tick,
    from_summary,
    import_d3rlpy,
    need,
    per,
    refuse_foreign,
    replaced_folder,
    stage,
)
from logforge.learning.policies import BC, RUN_FILE, PolicyBundle, habits_of, served_files
from logforge.learning.training.checkpoint_values import kept_values
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.members import Trained, fit, measured, name_of, settled
from logforge.learning.training.notes import notes
from logforge.learning.training.presets import preset as named
from logforge.learning.training.report import TrainReport, packages, write_report
from logforge.learning.training.run_data import Request, load


@dataclass(frozen=True, eq=False)
class Valued:
    """The members, and what those of the first seed are worth on validation."""

    trained: Trained
    values: dict[str, Estimate]


@dataclass(frozen=True, eq=False)
class Served:
    """The policies as they are saved, by name."""

    valued: Valued
    policies: dict[str, PolicyBundle]


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
    data = load(Request(dataset_path, config))
    with replaced_folder(target) as fresh:
        served = serve(value(fit(data, backend, progress)))
        for name, policy in served.policies.items():
            policy.save(fresh / name)
        report = replace(tell(served), run=str(target), seconds=round(time.monotonic() - started, 1))
        write_report(fresh, report, served.valued.trained.metrics)
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


@stage(per(Scope.POLICY, "a short fitted Q evaluation of the first member"))
def value(trained: Trained) -> Valued:
    """What the first member's policies are worth, by a short fitted Q evaluation."""
    data, config = trained.data, trained.data.config
    manifest = data.shard.manifest
    first = {name: one.point.bundle for name, one in trained.members.items() if one.point.seed == config.seed}
    found = kept_values(
        first, data.shard, data.validation, gamma=manifest.gamma, seen=manifest.return_range,
        updates=config.updates,
    )  # fmt: skip
    return Valued(trained, found)


@stage(per(Scope.MEMBER, "the bundle that is saved"))
def serve(valued: Valued) -> Served:
    """Each member as it is served. It tells by the clone of its own seed what the behaviour does, where it has no such part itself."""
    data, members = valued.trained.data, valued.trained.members
    files, config = served_files(data.shard), data.config
    clones = {seed: members[name_of(BC, seed, config)].point.bundle.layers for seed in config.seeds}
    found = {}
    for name, one in members.items():
        bundle = one.point.bundle
        policy = replace(bundle, behaviour=bundle.behaviour or clones[one.point.seed], files=files)
        card = structs.replace(policy.card, habits=habits_of(policy, data.shard))
        found[name] = replace(policy, card=card)
    return Served(valued, found)


@stage(from_summary("the report", "facts of each member: a row a member and epoch"))
def tell(served: Served) -> TrainReport:
    """What the run made, still without its folder and its time."""
    values, trained = served.valued.values, served.valued.trained
    data, members = trained.data, trained.members
    policies = {name: dict(one.facts) for name, one in members.items()}
    for name, worth in values.items():
        policies[name]["fqe"] = worth._asdict()
    return TrainReport(
        run="",
        dataset=data.origin,
        config=asdict(data.config),
        policies=policies,
        left_out=data.left_out,
        stopped={name: one.stopped for name, one in members.items() if one.stopped is not None},
        warnings=tuple(alarm.as_dict() for one in members.values() for alarm in one.warnings),
        notes=tuple(notes(data.config, data.shard, data.validation, data.span, policies)),
        packages=packages(),
        seconds=0.0,
        possible_returns=(data.span.low, data.span.high),
        started_from=trained.started,
    )


STAGES: Final = (load, fit, value, serve, tell)
"""What training does, in this order: each takes what the one before gives."""
MEMBER: Final = (measured, settled)
"""What `fit` does with each member: epoch by epoch, and in the end."""
