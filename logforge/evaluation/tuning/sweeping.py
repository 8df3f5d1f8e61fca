"""`logforge sweep`: one learner under many settings, all settings and seeds at once, and which of them to take.

Members of one network share nothing (logforge/learning/policies/networks.py), so α, γ and the cost of a step may differ from member to member: a sweep
costs what so many members cost. Every policy is judged by the same yardstick, the dataset's own rewards and discount on
validation: by fitted Q evaluation, or by playing where a simulator is named. Never by TD error: on 130 checkpoints in `it-ops`
its rank correlation with true success was −0.2 (docs/training.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from logforge.core import Tick, extras, intervals, need, refuse_foreign, replaced_file, silent
from logforge.evaluation.tuning.choice import SweepReport, Tried, choose
from logforge.evaluation.tuning.config import SweepConfig
from logforge.learning.ope import fqe as ope
from logforge.learning.policies import RUN_FILE, PolicyBundle
from logforge.learning.training import (
    CONSERVATIVE,
    ONE_HEAD,
    Behaviour,
    Monitor,
    TrainConfig,
    rescored,
    train,
)
from logforge.learning.training import preset as named
from logforge.rewards import returns
from logforge.schemas import UsageError
from logforge.shards import Shard, load_shards

SWEEP_FILE: Final = "sweep.json"
FQE_MEMBERS: Final = 10
MOST_MEMBERS: Final = 64
"""Trained at once."""
_SEED = 77


class Setting(NamedTuple):
    """What is varied."""

    alpha: float
    gamma: float
    step_cost: float


def sweep(
    dataset_path: str | Path,
    *,
    out: str | Path,
    alphas: Sequence[float] = SweepConfig.alphas,
    gammas: Sequence[float] = SweepConfig.gammas,
    step_costs: Sequence[float] = SweepConfig.step_costs,
    seeds: int = SweepConfig.seeds,
    simulator: str | None = None,
    episodes: int = SweepConfig.episodes,
    fqe_members: int = FQE_MEMBERS,
    fqe_updates: int = SweepConfig.fqe_updates,
    preset: str = "default",
    progress: Tick = silent,
    **settings: Any,
) -> SweepReport:
    """Try all combinations, choose one, and train it into the run folder `out`, with a `sweep.json` beside its `train.json`.

    The preset's own combination always takes part. `gammas` default to the dataset's. `settings` are those of TrainConfig that
    all share. Raises UsageError where validation is too small to tell policies apart.
    """
    need("torch", "train")
    target = Path(out)
    refuse_foreign(target, RUN_FILE, "a run")
    config = named(preset, **{**settings, "members": seeds})
    if config.algo == "bc" or config.backend != "torch":
        raise UsageError(
            f"there is nothing to sweep for {config.algo} on {config.backend}", "sweep cql on torch"
        )
    if config.heads != ONE_HEAD or config.warm_start or config.replay:
        raise UsageError(
            "a sweep knows no second head, warm start or replay", "choose first, then train with them"
        )
    shard, held = load_shards(dataset_path, "train"), load_shards(dataset_path, "validation")
    if reason := ope.refusal(held):
        raise UsageError(f"validation cannot choose: {reason}", "ingest more episodes and build again")
    config = config.sized(shard.size)
    default = Setting(config.alpha, config.gamma or shard.manifest.gamma, config.step_cost)
    alphas = alphas if config.algo in CONSERVATIVE else [config.alpha]  # the others have none
    grid = _grid(default, alphas, gammas or [shard.manifest.gamma], step_costs)
    judge = _Judge(shard, held, (fqe_members, fqe_updates))
    if simulator:
        judge.player = _Player(simulator, episodes, Path(dataset_path))
    clones = list(_trained("bc", shard, config, [default] * seeds, config.seeds, progress))
    judge.behaviours = [judge.monitor.behaviour(clone) for clone in clones]
    tried = list(_tried(grid, judge, shard, config, progress))
    choice = choose(tried, grid.index(default), "success" if simulator else "fqe")
    chosen = grid[choice.place]
    run = train(dataset_path, out=target, config=replace(config, **chosen._asdict()), progress=progress)
    report = SweepReport(
        run=str(target),
        dataset=run.dataset,
        simulator=simulator,
        config=run.config,
        tried=tuple(tried),
        default=default._asdict(),
        choice=choice,
        stopped=bool(run.stopped),
    )
    with replaced_file(target / SWEEP_FILE) as fresh:
        fresh.write_text(json.dumps(report.as_dict(), indent=1) + "\n", "utf-8")
    return report


def _grid(
    default: Setting, alphas: Sequence[float], gammas: Sequence[float], step_costs: Sequence[float]
) -> list[Setting]:
    """All combinations in order, and the default's."""
    wanted = {Setting(*map(float, values)) for values in product(alphas, gammas, step_costs)} | {default}
    for one in wanted:
        TrainConfig(alpha=one.alpha, gamma=one.gamma, step_cost=one.step_cost)  # refuses what cannot be
    return sorted(wanted)


def _tried(
    grid: list[Setting], judge: _Judge, shard: Shard, config: TrainConfig, progress: Tick
) -> Iterator[Tried]:
    """Train everything, then judge setting by setting."""
    each = [setting for setting in grid for _ in config.seeds]
    seeds = config.seeds * len(grid)
    bundles = list(_trained(config.algo, shard, config, each, seeds, progress))
    for place, setting in enumerate(grid):
        progress(place, len(grid), f"judge alpha {setting.alpha:g}")
        mine = bundles[place * config.members : (place + 1) * config.members]
        yield judge.judged(setting, mine)
    progress(len(grid), len(grid), "judged")


def _trained(
    learner: str,
    shard: Shard,
    config: TrainConfig,
    settings: Sequence[Setting],
    seeds: Sequence[int],
    progress: Tick,
) -> Iterator[PolicyBundle]:
    """The last policy of each member, as `train` would make it with that setting and seed."""
    for start in range(0, len(seeds), MOST_MEMBERS):
        part = slice(start, start + MOST_MEMBERS)
        yield from _together(learner, shard, config, settings[part], tuple(seeds[part]), progress)


def _together(
    name: str,
    shard: Shard,
    config: TrainConfig,
    settings: Sequence[Setting],
    seeds: tuple[int, ...],
    progress: Tick,
) -> list[PolicyBundle]:
    import torch

    from logforge.learning.training import LEARNERS, Fit, Replay, bundle_of, device, rules_of, side_of

    spans = [_span(shard, setting, config.clip_targets) for setting in settings]

    def column(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device())[:, None]

    cost = column([setting.step_cost for setting in settings])
    varied = {
        "gamma": column([setting.gamma for setting in settings]),
        "span": (column([span.low for span in spans]), column([span.high for span in spans])),
        "alpha": column([setting.alpha for setting in settings])[:, 0],
    }
    learner = LEARNERS[name]
    rules = replace(rules_of(config, shard, side_of(learner, shard, config, device())), **cast(Any, varied))
    sizes = (shard.observation_size, *config.hidden, shard.action_size)
    with extras.one_thread():
        fit = Fit(learner, rules, seeds, sizes, config.learning_rate, config.target_rate, device())
        replay = Replay(shard, shard.manifest.vocabulary.invalid, device())
        batches = replay.batches(seeds, config.batch_size)
        for update in range(config.updates):
            batch = next(batches)
            if config.anneal:
                fit.anneal(update / config.updates)
            fit.update(batch._replace(rewards=batch.rewards - cost))
            progress(update + 1, config.updates, f"{name}: {len(seeds)} members")
        return [bundle_of(fit, learner, name, shard, config, member) for member in range(len(seeds))]


def _span(shard: Shard, setting: Setting, clipped: bool) -> intervals.Span:
    if not clipped:
        return intervals.Span(-np.inf, np.inf)
    scored = rescored(shard, setting.gamma, setting.step_cost)
    return returns.possible_returns(
        scored.rewards, scored.terminals, scored.timeouts, setting.gamma, scored.manifest.return_range
    )


class _Judge:
    """The yardstick of all policies: validation in the dataset's own rewards and discount, and the simulator."""

    def __init__(self, shard: Shard, held: Shard, effort: tuple[int, int]) -> None:
        manifest = shard.manifest
        self.span = ope.reachable(shard, held, manifest.gamma, manifest.return_range)
        self.held, self.effort, self.gamma = held, effort, manifest.gamma
        place = self.span, manifest.gamma, manifest.vocabulary
        self.monitor = Monitor.of(shard, held, *place)
        self.behaviours: list[Behaviour] = []
        self.player: _Player | None = None
        self.fits: dict[bytes, ope.Fitted] = {}

    def judged(self, setting: Setting, bundles: Sequence[PolicyBundle]) -> Tried:
        """All seeds of one setting."""
        seen = [
            self.monitor.measure(bundle, behaviour).numbers
            for bundle, behaviour in zip(bundles, self.behaviours, strict=True)
        ]
        fits = [self._fitted(bundle) for bundle in bundles]
        unsettled = next((fit.unsettled for fit in fits if fit.unsettled), "")
        played = None if self.player is None else np.array([self.player.play(one) for one in bundles])
        means = {
            name: float(np.mean([numbers[name] for numbers in seen]))
            for name in ("ood_share", "clone_share", "improvement")
            if all(name in numbers for numbers in seen)
        }
        return Tried(setting._asdict(), np.array([fit.values for fit in fits]), unsettled, played, means)

    def _fitted(self, bundle: PolicyBundle) -> ope.Fitted:
        """FQE of what the policy chooses; policies that decide alike wherever it matters share one fit."""
        choices = bundle.choose(self.held.observations, self.held.masks)
        key = choices[ope.needed_rows(self.held)].tobytes()
        if key not in self.fits:
            members, updates = self.effort
            self.fits[key] = ope.fitted_q(
                self.held, choices, gamma=self.gamma, span=self.span, members=members, updates=updates
            )
        return self.fits[key]


class _Player:
    """A simulator that policies of this dataset are played in."""

    def __init__(self, simulator: str, episodes: int, folder: Path) -> None:
        from logforge.envs import make
        from logforge.serving import StateServer

        make(simulator)  # refuses an unknown name
        self.simulator, self.episodes, self.server = simulator, episodes, StateServer(folder)

    def play(self, bundle: PolicyBundle) -> NDArray[np.float64]:
        """Which of the episodes succeed; all policies meet the same problems and the same luck."""
        from logforge.envs import evaluate_policy, served

        found = evaluate_policy(self.simulator, served(self.server, bundle), self.episodes, _SEED)
        return found.successes.astype(np.float64)
