"""What is found of a run's policies on one split: a row of each, the fits behind their values, and importance sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logforge.core import Estimate, Scope, Tick, intervals, per, stage, types
from logforge.evaluation.families import Side
from logforge.evaluation.report import LOGGED, PolicyRow
from logforge.learning.ope import Fitted, Similar, Support, importance, similar_actions
from logforge.learning.ope import fqe as ope
from logforge.learning.policies import BC, BC_SUCCESS, PolicyBundle
from logforge.shards import Shard

CLONES = (BC, BC_SUCCESS)
LEAST_RESAMPLES: Final = 3
"""A trained member is judged by so many bootstrap members or more; all members of a learner share the number that is given."""

Members = Mapping[str, Mapping[str, PolicyBundle]]
"""The trained members of each learner by name."""
Choices = Mapping[str, list[NDArray[np.int32]]]
"""What the members of each learner choose at the observations."""


@dataclass(frozen=True)
class Measured:
    """What is found on one split."""

    held: Shard
    rows: tuple[PolicyRow, ...]
    fits: dict[str, Fitted]
    reason: str
    choices: Choices

    def side(self, split: str) -> Side:
        """What is compared with another split."""
        values = {row.policy: row.value for row in self.rows}
        matches = {row.policy: row.match for row in self.rows}
        return Side(split, self.held.episode_count, values, matches, self.fits, self.reason)


@stage(per(Scope.SPLIT, "what each learner chooses, fits of their values"))
def measure(
    policies: Members,
    held: Shard,
    train: Shard,
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> Measured:
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
        row = row_of(name, held, choices, similar, seed)
        value, points = Estimate(None, reason=reason), {}
        if name in fits:
            value = intervals.within(fits[name].estimate(), span)
            means = map(float, fits[name].values.mean(axis=1))
            several = len(policies[name]) > 1 and not fits[name].unsettled
            points = dict(zip(policies[name], means, strict=True)) if several else {}
        rows.append(row._replace(value=value, members=points))
    return Measured(held, (_logged_row(held, seed), *rows), fits, reason, choices)


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


@stage(per(Scope.POLICY, "agreement with the log and with cloning, support"))
def row_of(name: str, held: Shard, choices: Choices, similar: Similar | None, seed: int) -> PolicyRow:
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


@stage(per(Scope.POLICY, "importance sampling"))
def weighed(found: Measured, span: intervals.Span, seed: int) -> tuple[PolicyRow, ...]:
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


def _q(found: Measured, learner: str) -> tuple[types.FloatArray | None, str]:
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
