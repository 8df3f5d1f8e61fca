"""Evaluation of a run on held-out episodes: what each policy is worth by FQE, beside the log and beside cloning.

All trained members of a learner are judged: each by some bootstrap members of its own, so that ten cost little more than one.
The verdict is "no better than cloning" unless the 95 % interval of the paired difference to the better of the two clones,
over trained members and episodes, lies above 0. Where the log has propensities, importance sampling judges the same policies
(logforge/learning/ope/importance_sampling.py). What cannot be estimated is a dash with its reason. Where the dataset holds a task family out, all of it is
said of that too (families.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import intervals, types
from logforge.core.intervals import Estimate, bracketed
from logforge.core.progress import Tick
from logforge.dataset.weights.curriculum import stage_outcomes
from logforge.evaluation.config import EstimateConfig
from logforge.evaluation.episode_metrics import metrics_of
from logforge.evaluation.families import Side, compare
from logforge.evaluation.report import LOGGED, EvaluationReport, PolicyRow, Verdict
from logforge.learning.ope import fqe as ope
from logforge.learning.ope.fqe import Fitted
from logforge.learning.ope.importance_sampling import ESTIMATED_CAP, importance
from logforge.learning.ope.support import Similar, Support, similar_actions
from logforge.learning.policies.bundle import PolicyBundle, load_policy
from logforge.learning.policies.runs import BC, BC_SUCCESS, read_run, run_data
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.findings import COLLAPSED
from logforge.learning.training.notes import brief
from logforge.schemas.errors import UsageError
from logforge.schemas.transition import HELD_OUT
from logforge.shards.reader import Shard

CLONES = (BC, BC_SUCCESS)
FEW_EPISODES: Final = 30
MIN_UPDATES: Final = 100
"""Of a round of FQE: with a handful the value stays where it started, and would look as if it had settled."""
UNSUPPORTED: Final = 0.1
LEAST_RESAMPLES: Final = 3
"""A trained member is judged by so many bootstrap members or more; all members of a learner share the number that is given."""
LITTLE_OVERLAP: Final = 0.05
"""In the simulators a policy with an effective sample of 55 of 2,000 episodes was overrated by 20 points."""

Members = Mapping[str, Mapping[str, PolicyBundle]]
"""The trained members of each learner by name."""


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
    run = read_run(Path(run_path))
    held, train = run_data(run, dataset_path, split)
    policies = _policies(Path(run_path), run)
    for policy in (policy for trained in policies.values() for policy in trained.values()):
        policy.check(held.manifest)
    algo = run["config"]["algo"]
    found = _measure(policies, held, train, members, updates, seed, progress)
    family = None
    if HELD_OUT in held.manifest.splits and split != HELD_OUT:
        other, _ = run_data(run, dataset_path, HELD_OUT)
        # other episodes: with the same seed their resamples would go along with those of `held` for no reason
        out_of_it = _measure(policies, other, train, members, updates, seed + 1, progress)
        family = compare(found.side(split), out_of_it.side(HELD_OUT), algo, BC)
    rows = _weighed(found, ope.reachable(train, held, held.manifest.gamma, held.manifest.return_range), seed)
    return EvaluationReport(
        run=str(run_path),
        dataset=held.manifest.dataset,
        dataset_hash=held.manifest.hash,
        split=split,
        episodes=held.episode_count,
        complete=int(held.terminals.sum()),
        decisions=held.size,
        rows=rows,
        verdict=_verdict(algo, found),
        caveats=tuple(_caveats(run, held, train, rows, split)),
        settings={"members": members, "updates": updates, "seed": seed, "gamma": held.manifest.gamma},
        log=metrics_of([held], held.manifest.actions),
        stages=stage_outcomes(held),
        generalisation=family,
    )


def _policies(folder: Path, run: Mapping[str, Any]) -> dict[str, dict[str, PolicyBundle]]:
    """Each learner's trained members by name, those of the first seed first."""
    first, found = run["config"]["seed"], dict[str, dict[str, PolicyBundle]]()
    for name, facts in sorted(run["policies"].items(), key=lambda item: item[1]["seed"]):
        learner = name if facts["seed"] == first else name.removesuffix(f"-{facts['seed']}")
        found.setdefault(learner, {})[name] = load_policy(folder / name)
    return found


Choices = Mapping[str, list[NDArray[np.int32]]]
"""What the members of each learner choose at the observations."""


class _Measured(NamedTuple):
    """What is found on one split."""

    held: Shard
    rows: tuple[PolicyRow, ...]
    fits: dict[str, Fitted]
    reason: str
    choices: Choices

    def side(self, split: str) -> Side:
        values = {row.policy: row.value for row in self.rows}
        matches = {row.policy: row.match for row in self.rows}
        return Side(split, self.held.episode_count, values, matches, self.fits, self.reason)


def _measure(
    policies: Members,
    held: Shard,
    train: Shard,
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> _Measured:
    """The rows of the policies on one split, the logged one first."""
    choices = {
        learner: [policy.choose(held.observations, held.masks) for policy in trained.values()]
        for learner, trained in policies.items()
    }
    reason = ope.refusal(held)
    span = ope.reachable(train, held, held.manifest.gamma, held.manifest.return_range)
    fits = {} if reason else _fit_all(held, span, policies, choices, members, updates, seed, progress)
    similar = similar_actions(train, held) if held.size else None
    rows = []
    for name in _in_order(policies):
        row = _row(name, held, choices, similar, seed)
        value, points = Estimate(None, reason=reason), {}
        if name in fits:
            value = intervals.within(fits[name].estimate(), span)
            means = map(float, fits[name].values.mean(axis=1))
            several = len(policies[name]) > 1 and not fits[name].unsettled
            points = dict(zip(policies[name], means, strict=True)) if several else {}
        rows.append(row._replace(value=value, members=points))
    return _Measured(held, (_logged_row(held, seed), *rows), fits, reason, choices)


def _fit_all(
    held: Shard,
    span: intervals.Span,
    policies: Members,
    choices: Choices,
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> dict[str, Fitted]:
    """FQE of each learner's members; those that decide alike wherever it matters, on the same resamples, share one fit."""
    needed = ope.needed_rows(held)
    asked = [(learner, place) for learner, trained in choices.items() for place in range(len(trained))]
    fits: dict[str, list[Fitted]] = {learner: [] for learner in choices}
    done: dict[tuple[int, int, bytes], Fitted] = {}
    for number, (learner, place) in enumerate(asked):
        chosen = choices[learner][place]
        share = _share(members, len(choices[learner]))
        key = place, share, chosen[needed].tobytes()
        if key not in done:
            done[key] = ope.fitted_q(
                held,
                chosen,
                gamma=held.manifest.gamma,
                span=span,
                members=share,
                updates=updates,
                seed=seed + place * 1_000_003,  # members of one place are paired between learners
                progress=_shifted(progress, number, len(asked), list(policies[learner])[place]),
            )
        fits[learner].append(done[key])
    return {learner: ope.joined(trained) for learner, trained in fits.items()}


def _share(members: int, trained: int) -> int:
    """How many bootstrap members judge each of so many trained ones."""
    return members if trained == 1 else max(LEAST_RESAMPLES, -(-members // trained))


def _weighed(found: _Measured, span: intervals.Span, seed: int) -> tuple[PolicyRow, ...]:
    """The rows with what importance sampling says of them."""
    held, rows = found.held, []
    for row in found.rows:
        if row.policy in found.choices:
            q, without_q = _q(found, row.policy)
            judged = importance(
                held,
                [np.eye(held.action_size, dtype=np.float32)[chosen] for chosen in found.choices[row.policy]],
                q,
                gamma=held.manifest.gamma,
                span=span,
                seed=seed,
                without_q=without_q,
            )
            row = row._replace(importance=judged)
        rows.append(row)
    return tuple(rows)


def _q(found: _Measured, learner: str) -> tuple[types.FloatArray | None, str]:
    """Q for the doubly robust estimators, or why there is none.

    An episode that every bootstrap member drew has a Q of 0, which leaves what it was paid as it is: more noise and no bias, but
    for what follows a cut-off one, which Q alone tells of.
    """
    fit, held = found.fits.get(learner), found.held
    if fit is None or fit.out_of_bag is None:
        return None, found.reason
    cut = ~held.terminals[held.episode_offsets[1:] - 1]
    lacking = int((cut & (fit.out_of_bag.counts == 0)).sum())
    if lacking:
        told = f"no bootstrap member is without {lacking} of {int(cut.sum())} cut-off episodes, whose rest Q stands for"
        return None, f"{told}: give more --fqe-members"
    return fit.out_of_bag.q(held), ""


def _shifted(progress: Tick | None, place: int, count: int, name: str) -> Tick | None:
    if progress is None:
        return None
    return lambda done, total, note: progress(place * total + done, count * total, f"{name}: {note}")


def _logged_row(held: Shard, seed: int) -> PolicyRow:
    returns = held.returns[held.episode_offsets[:-1]]
    complete = held.terminals[held.episode_offsets[1:] - 1]
    value = intervals.bootstrap_mean(returns[complete].astype(np.float64), held.groups[complete], seed=seed)
    if value.reason:
        value = Estimate(None, reason=value.reason.replace(" episodes", " complete episodes", 1))
    return PolicyRow(LOGGED, value, Estimate(None, reason="it is the log itself"))


def _row(name: str, held: Shard, choices: Choices, similar: Similar | None, seed: int) -> PolicyRow:
    """What needs no fit, of a learner's members on average."""
    chosen = np.stack([one[held.observation_rows] for one in choices[name]])
    known = ~np.isin(held.actions, held.manifest.vocabulary.unplayable)
    agree = (chosen == held.actions).mean(axis=0)[known]
    match = intervals.bootstrap_mean(agree, held.groups[held.episode_index[known]], seed=seed)
    unknown = Estimate(None)
    if similar is None:
        return PolicyRow(name, unknown, match)
    counts = np.bincount(chosen.ravel())
    favourite = held.manifest.actions[int(counts.argmax())], float(counts.max() / chosen.size)
    clones = [one[held.observation_rows] for one in choices[BC]]
    like_bc = float(np.mean([mine == clone for mine, clone in zip(chosen, clones, strict=True)]))
    shares = np.mean([similar.shares(one) for one in chosen], axis=0)
    return PolicyRow(name, unknown, match, like_bc, Support(*map(float, shares)), favourite)


def _in_order(policies: Members) -> list[str]:
    """Clones first, the learner last."""
    return sorted(policies, key=lambda name: (name not in CLONES, name))


def _verdict(algo: str, found: _Measured) -> Verdict:
    """By the paired difference of values, whatever importance sampling says: it is told beside it."""
    held, fits = found.held, found.fits
    size = f"n = {held.episode_count} episodes, {held.size} decisions"
    if algo in CLONES:
        return Verdict(None, f"the run holds cloning only, there is nothing to compare ({size})")
    unknown = [f"{name}: {fit.unsettled}" for name, fit in fits.items() if fit.unsettled]
    if why := found.reason or "; ".join(unknown):
        text = f"{algo} cannot be compared with cloning: {why} ({size})"
        return Verdict(None, text, difference=Estimate(None, reason=why))
    rival = max((name for name in CLONES if name in fits), key=lambda name: fits[name].values.mean())
    gaps = fits[algo].values - fits[rival].values
    difference = intervals.interval(gaps)
    better = difference.low is not None and difference.low > 0
    told = f"{bracketed(difference, '{:+.2f}')} against {rival}"
    won = int((gaps.mean(axis=1) > 0).sum())
    members = f", higher in {won} of {len(gaps)} members" if len(gaps) > 1 else ""
    text = f"{algo} is {'better' if better else 'no better'} than cloning: {told}{members} ({size})"
    return Verdict(better, text, rival, difference)


def _caveats(
    run: Mapping[str, Any], held: Shard, train: Shard, rows: tuple[PolicyRow, ...], split: str
) -> Iterator[str]:
    """What makes the numbers weaker than they look."""
    if split == "train":
        yield "these episodes were trained on: the numbers flatter"
    if held.manifest.hash != run["dataset"]["hash"]:
        yield "this is not the dataset the run was trained on: some of these episodes may have been in its train split"
    if held.episode_count < FEW_EPISODES:
        yield f"few episodes: {held.episode_count}; intervals from fewer than {FEW_EPISODES} are themselves uncertain"
    cut = held.episode_count - int(held.terminals.sum())
    if cut:
        how = f"`{LOGGED}` leaves them out, FQE bootstraps through"
        if any(row.importance and row.importance.known for row in rows):
            how += " (so do dr and wdr; is, wis, pdis and wpdis judge what was logged of them)"
        yield f"{cut} of {held.episode_count} episodes are cut off: {how}"
    yield from brief(TrainConfig(**run["config"]), train)
    for name, reason in run.get("left_out", {}).items():
        yield f"{name} is missing: {reason}"
    for row in rows:
        yield from _row_caveats(row, held)


def _row_caveats(row: PolicyRow, held: Shard) -> Iterator[str]:
    if row.importance and row.importance.cut:
        many = f"{row.importance.cut:.0%} of {row.policy}'s weights"
        yield f"{many} were cut to {ESTIMATED_CAP:g}, for propensities are estimated"
    weighed = row.importance.estimates.values() if row.importance else ()
    sizes = [one.ess for one in weighed if one.ess and one.estimate.value is not None]
    if sizes and min(sizes) < LITTLE_OVERLAP * held.episode_count:
        told = f"{row.policy} shares little with the log: an effective sample of {min(sizes):.0f} of {held.episode_count} episodes"
        yield f"{told}; such policies are often overrated"
    if row.support and sum(row.support) > UNSUPPORTED:
        yield (
            f"{sum(row.support):.0%} of {row.policy}'s decisions are not supported by the log; "
            "FQE tends to overrate such a policy"
        )
    logged = np.bincount(held.actions).max() / held.size if held.size else 1.0
    if row.favourite and row.favourite[1] > COLLAPSED > logged:
        action, share = row.favourite
        yield f"{row.policy} repeats one action, {action!r}, in {share:.0%} of its decisions"
