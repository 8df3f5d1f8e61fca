"""Evaluation of a run on held-out episodes: what each policy is worth by FQE, beside the log and beside cloning.

run and splits loaded → policies measured, split by split → weighed by importance, policy by policy → verdict and caveats told

All trained members of a learner are judged: each by some bootstrap members of its own, so that ten cost little more than one.
The verdict is "no better than cloning" unless the 95 % interval of the paired difference to the better of the two clones,
over trained members and episodes, lies above 0. Where the log has propensities, importance sampling judges the same policies
(measuring.py). What cannot be estimated is a dash with its reason. Where the dataset holds a task family out, all of it is
said of that too (families.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from logforge.core import Scope, Tick, from_all, from_summary, per, stage
from logforge.dataset.weights import stage_outcomes
from logforge.evaluation.config import EstimateConfig
from logforge.evaluation.episode_metrics import metrics_of
from logforge.evaluation.families import Generalisation, compare
from logforge.evaluation.measuring import Measured, Members, measure, weighed
from logforge.evaluation.report import EvaluationReport, PolicyRow
from logforge.evaluation.verdict import caveats, verdict_of
from logforge.learning.ope import fqe as ope
from logforge.learning.policies import BC, PolicyBundle, load_policy, read_run, run_data
from logforge.schemas import HELD_OUT, UsageError
from logforge.shards import Shard

MIN_UPDATES: Final = 100
"""Of a round of FQE: with a handful the value stays where it started, and would look as if it had settled."""


@dataclass(frozen=True)
class Request:
    """What is to be evaluated, and how."""

    run: str | Path
    dataset: str | Path | None
    split: str
    members: int
    updates: int
    seed: int
    progress: Tick | None


@dataclass(frozen=True)
class Loaded:
    """A run and its data: the split asked for, that of the held-out family where it is another, and what was trained on."""

    request: Request
    run: dict[str, Any]
    held: Shard
    train: Shard
    family: Shard | None
    policies: Members

    @property
    def algo(self) -> str:
        """The learner in question."""
        return str(self.run["config"]["algo"])


@dataclass(frozen=True)
class Judged:
    """What was found on the split asked for, and how that holds on the held-out family."""

    loaded: Loaded
    found: Measured
    generalisation: Generalisation | None


@dataclass(frozen=True)
class Weighed:
    """The same, with what importance sampling says."""

    judged: Judged
    rows: tuple[PolicyRow, ...]


def evaluate(
    run_path: str | Path,
    *,
    dataset_path: str | Path | None = None,
    split: str = EstimateConfig.split,
    members: int = EstimateConfig.members,
    updates: int = EstimateConfig.updates,
    seed: int = EstimateConfig.seed,
    progress: Tick | None = None,
) -> EvaluationReport:
    """Estimate a run's policies on held-out episodes.

    Columns: `value` is the discounted return by FQE (for `logged`: the mean over complete episodes); `action match` the
    share of decisions on valid actions where the policy would have done what the log did; `like bc` the share where it
    agrees with cloning; `never logged` and `no similar` the shares that logforge/learning/ope/support.py defines. Policies take their best
    action. `members` are the bootstrap members of FQE that a learner's trained members share, `updates` those of a round: the
    time it takes grows with both.
    """
    if members < 2 or updates < MIN_UPDATES:
        wrong = f"members = {members}, updates = {updates} cannot be"
        raise UsageError(wrong, f"give at least 2 and {MIN_UPDATES}")
    loaded = load(Request(run_path, dataset_path, split, members, updates, seed, progress))
    return tell(weigh(judge(loaded)))


@stage(
    from_all(
        "the run and its splits, which must belong together",
        "arrays of the splits; observations stay on disk",
    )
)
def load(request: Request) -> Loaded:
    """The run, its policies and the splits, which must belong together."""
    run = read_run(Path(request.run))
    held, train = run_data(run, request.dataset, request.split)
    policies = _policies(Path(request.run), run)
    for policy in (policy for trained in policies.values() for policy in trained.values()):
        policy.check(held.manifest)
    family = None
    if HELD_OUT in held.manifest.splits and request.split != HELD_OUT:
        family, _ = run_data(run, request.dataset, HELD_OUT)
    return Loaded(request, run, held, train, family, policies)


@stage(per(Scope.SPLIT, "every policy on the split asked for, and on the held-out family"))
def judge(loaded: Loaded) -> Judged:
    """Every policy on the split asked for, and on the held-out family."""
    request, generalisation = loaded.request, None
    effort = request.members, request.updates
    found = measure(loaded.policies, loaded.held, loaded.train, *effort, request.seed, request.progress)
    if loaded.family is not None:
        # other episodes: with the same seed their resamples would go along with those of `held` for no reason
        other = measure(
            loaded.policies, loaded.family, loaded.train, *effort, request.seed + 1, request.progress
        )
        generalisation = compare(found.side(request.split), other.side(HELD_OUT), loaded.algo, BC)
    return Judged(loaded, found, generalisation)


@stage(per(Scope.POLICY, "importance sampling, where the log has propensities"))
def weigh(judged: Judged) -> Weighed:
    """Each policy by importance sampling, where the log has propensities."""
    held, train = judged.loaded.held, judged.loaded.train
    span = ope.reachable(train, held, held.manifest.gamma, held.manifest.return_range)
    return Weighed(judged, weighed(judged.found, span, judged.loaded.request.seed))


@stage(from_summary("verdict and caveats", "a row a policy"))
def tell(weighed: Weighed) -> EvaluationReport:
    """The verdict, and what makes the numbers weaker than they look."""
    loaded, found, rows = weighed.judged.loaded, weighed.judged.found, weighed.rows
    request, held = loaded.request, loaded.held
    return EvaluationReport(
        run=str(request.run),
        dataset=held.manifest.dataset,
        dataset_hash=held.manifest.hash,
        split=request.split,
        episodes=held.episode_count,
        complete=int(held.terminals.sum()),
        decisions=held.size,
        rows=rows,
        verdict=verdict_of(loaded.algo, found),
        caveats=tuple(caveats(loaded.run, held, loaded.train, rows, request.split)),
        settings={
            "members": request.members,
            "updates": request.updates,
            "seed": request.seed,
            "gamma": held.manifest.gamma,
        },
        log=metrics_of([held], held.manifest.actions),
        stages=stage_outcomes(held),
        generalisation=weighed.judged.generalisation,
    )


STAGES: Final = (load, judge, weigh, tell)
"""What an evaluation does, in this order: each takes what the one before gives."""


def _policies(folder: Path, run: Mapping[str, Any]) -> dict[str, dict[str, PolicyBundle]]:
    """Each learner's trained members by name, those of the first seed first."""
    first, found = run["config"]["seed"], dict[str, dict[str, PolicyBundle]]()
    for name, facts in sorted(run["policies"].items(), key=lambda item: item[1]["seed"]):
        learner = name if facts["seed"] == first else name.removesuffix(f"-{facts['seed']}")
        found.setdefault(learner, {})[name] = load_policy(folder / name)
    return found
