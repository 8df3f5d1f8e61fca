"""Trains the policies of a run, member by member: each is measured epoch by epoch, stopped when it runs away, and settled in the end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from logforge.core import Scope, Tick, per, stage
from logforge.learning.policies import BC, BC_SUCCESS
from logforge.learning.training.alarms import Alarm, Kept, Limits, Watch
from logforge.learning.training.config import Point, TrainConfig
from logforge.learning.training.continual import started_from
from logforge.learning.training.fisher import with_fisher
from logforge.learning.training.learners import CONSERVATIVE
from logforge.learning.training.monitors import Behaviour, Measured
from logforge.learning.training.policy_vectors import policy_fit
from logforge.learning.training.run_data import RunData
from logforge.schemas import CheckFailed


@dataclass(frozen=True, eq=False)
class Member:
    """One trained policy: the checkpoint that is kept, what is known of it, the alarm that stopped it and those that did not."""

    name: str
    point: Point
    facts: dict[str, Any]
    stopped: dict[str, Any] | None
    warnings: tuple[Alarm, ...]


@dataclass(frozen=True, eq=False)
class Trained:
    """All members of a run. `metrics` has a row per policy and epoch, `started` what each began with beside a warm start."""

    data: RunData
    members: dict[str, Member]
    metrics: tuple[dict[str, Any], ...]
    started: dict[str, str | None]


@stage(
    per(
        Scope.MEMBER,
        "its own draws, weights and alarms; members of one policy share a network with a member axis",
    ),
    per(Scope.EPOCH, "losses, and what it would choose on validation"),
)
def fit(data: RunData, backend: ModuleType, progress: Tick | None) -> Trained:
    """Train all members of each policy, cloning first: the others are measured against it."""
    members, metrics, behaviour = dict[str, Member](), list[dict[str, Any]](), dict[int, Behaviour]()
    started: dict[str, str | None] = {}
    for part in data.parts:
        watches = _watches(data, part)
        started |= _started(data.config, part, watches)
        halted: set[int] = set()
        for point in _shown(data, part, backend, halted, metrics, progress):
            watch = watches[point.seed]
            if watch.stopped is None:
                watch.see(measured(data, watch.policy, point, behaviour.get(point.seed)))
                metrics.append(watch.rows[-1])
            if watch.stopped is not None:
                halted.add(point.seed)
        made = {seed: settled(data, part, watch) for seed, watch in watches.items()}
        members |= {member.name: member for member in made.values()}
        if part == BC and data.monitor is not None:
            behaviour = {seed: data.monitor.behaviour(one.point.bundle) for seed, one in made.items()}
    return Trained(data, members, tuple(metrics), started)


def name_of(part: str, seed: int, config: TrainConfig) -> str:
    """What the member of that seed is called."""
    return part if seed == config.seed else f"{part}-{seed}"


def _watches(data: RunData, part: str) -> dict[int, Watch]:
    """One for each member, by its seed."""
    config, shard = data.config, data.parts[part]
    alpha = config.alpha if part in CONSERVATIVE else 0.0
    limits = Limits.of(data.span, alpha, shard.returns, shard.actions, clipped=config.clips)
    return {seed: Watch(name_of(part, seed, config), limits) for seed in config.seeds}


def _started(config: TrainConfig, part: str, watches: Mapping[int, Watch]) -> dict[str, str | None]:
    if config.warm_start is None:
        return {}
    began: list[str | None] = [str(one) for one in started_from(config, part)]
    began = began or [None] * len(watches)
    return {watch.policy: one for watch, one in zip(watches.values(), began, strict=True)}


@stage(per(Scope.EPOCH, "losses, and what it would choose on validation"))
def measured(data: RunData, policy: str, point: Point, behaviour: Behaviour | None) -> Kept:
    """A member at the end of an epoch, with its numbers."""
    finite = all(map(math.isfinite, point.losses.values()))
    finite = finite and bool(np.isfinite(point.bundle.card.golden.scores).all())
    row = {"policy": policy, "seed": point.seed, "epoch": point.epoch, "update": point.update}
    row |= {"finite": finite, **point.losses}
    seen = Measured({}, None)
    if finite and data.monitor is not None:
        seen = data.monitor.measure(point.bundle, behaviour)
    return Kept(point, row | seen.numbers, seen.gains)


@stage(per(Scope.MEMBER, "the checkpoint that is kept"))
def settled(data: RunData, part: str, watch: Watch) -> Member:
    """The checkpoint that is kept; its facts are those of that epoch, and how much better an earlier one was."""
    shard, monitor = data.parts[part], data.monitor
    kept, best, alarm = watch.kept, watch.best, watch.stopped
    if kept is None or best is None:
        what = f"{watch.policy} ran away before its first epoch ended: {alarm.what if alarm else ''}"
        raise CheckFailed(what, remedy="lower --learning-rate, and look for odd numbers in the rewards")
    kept.point.bundle.verify()
    stopped = None if alarm is None else {**alarm.as_dict(), "kept_update": kept.row["update"]}
    facts = {"episodes": shard.episode_count, "transitions": shard.size, **kept.row}
    facts["best_update"] = best.row["update"]
    if data.validation is not None and (fit := policy_fit(kept.point.bundle, data.validation)):
        facts["policy_fit"] = fit._asdict()
    if monitor is not None and best.gains is not None and kept.gains is not None:
        facts["lost"], facts["lost_se"] = monitor.mean(best.gains - kept.gains)
    point = kept.point._replace(bundle=with_fisher(kept.point.bundle, shard))
    return Member(watch.policy, point, facts, stopped, tuple(watch.warnings()))


def _shown(
    data: RunData,
    part: str,
    backend: ModuleType,
    halted: Collection[int],
    metrics: list[dict[str, Any]],
    progress: Tick | None,
) -> Iterator[Point]:
    """Train one policy's members: the points on the way, and progress."""
    place, rounds = list(data.parts).index(part), backend.rounds(data.config)
    learner = BC if part == BC_SUCCESS else part
    made = backend.points(learner, part, data.parts[part], data.config, halted)
    for done, points in enumerate(made, 1):
        if progress is not None:
            note = _said(part, metrics[-1] if metrics else {})
            progress(place * rounds + done, len(data.parts) * rounds, note)
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
