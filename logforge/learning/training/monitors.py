"""What is measured of a policy once an epoch, on validation decisions; `MEASURES` says what each number is.

The one that compares checkpoints is the one-step improvement over the log: the mean advantage A(s, a) = G − V(s) of the decisions
on which policy and log agree, each weighted by 1 / (the behaviour's chance of it). It is the first-order term of a policy's
gain over the log (Kakade and Langford 2002), estimated by importance sampling (Precup et al. 2000) with ratios cut at `CAP`.
What the log never did earns nothing in it, so a Q that runs away cannot raise it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import Span
from logforge.learning.policies import PolicyBundle
from logforge.schemas import Vocabulary
from logforge.shards import SplitArrays

OOD_CHANCE: Final = 0.02
"""An action that the cloned behaviour takes with a smaller chance counts as out of distribution."""
CAP: Final = 20.0
MOST_DECISIONS: Final = 20_000
"""Evenly spaced episodes stand for a larger validation split."""
_RIDGE = 0.01
_FEW = 5

MEASURES: Final = {
    "validation_match": "share of decisions on valid actions where the policy would have done what the log did",
    "validation_td_error": "mean squared one-step error of Q, in squared units of the return",
    "validation_mean_q": "mean over decisions of the chosen action's Q, in units of the return",
    "validation_max_q": "the largest of these",
    "soft_opc": "mean Q of the logged actions in successful episodes − the same in all whose outcome is known (soft off-policy classification, Irpan et al. 2019); null unless some succeeded and some failed",
    "possible_low": "the least a return can be",
    "possible_high": "the most a return can be",
    "q_above": "share of decisions whose chosen Q is above what is possible",
    "q_below": "share of decisions whose chosen Q is below what is possible",
    "start_q": "mean Q of the first states of complete episodes",
    "start_return": "mean realised return of the same episodes",
    "conservative_gap": "mean of log Σ exp Q over the actions on offer − Q of the logged one (CQL's penalty before α)",
    "softmax_entropy": "mean entropy of the softmax of the scores, in nats",
    "action_entropy": "entropy of which actions are chosen over all decisions, in nats",
    "favourite": "the action chosen most",
    "favourite_share": "the share of decisions that choose it",
    "clone_share": "share of decisions on which the policy agrees with cloning of the same seed",
    "ood_share": f"share of decisions whose chosen action the clone gives a chance below {OOD_CHANCE}",
    "improvement": "one-step improvement over the log: mean of agreement × min(1 / chance, 20) × (G − V), per decision, in units of the return",
    "improvement_se": "its standard error over split groups",
    "over_clone": "the same, minus that of cloning of the same seed",
    "over_clone_se": "its standard error",
}
"""The numbers of a row of metrics.jsonl, beside the losses."""


class Behaviour(NamedTuple):
    """Cloning of one seed at the validation decisions: chances [N, A], its choices [N], and what they gain (see `Monitor.gains`)."""

    chances: NDArray[np.float32]
    choices: NDArray[np.int32]
    gains: NDArray[np.float64] | None


class Measured(NamedTuple):
    """The numbers of one policy at one moment, and what each split group adds to its improvement (None: unknown)."""

    numbers: dict[str, Any]
    gains: NDArray[np.float64] | None


@dataclass(frozen=True)
class Monitor:
    """Validation decisions, and what stays the same of them in a run. `baseline` [N] is V of the log, `gauged` [N] says which
    decisions have a whole return and a valid action, `owners` [N] is the split group of each."""

    held: SplitArrays
    span: Span
    gamma: float
    vocabulary: Vocabulary
    baseline: NDArray[np.float64]
    gauged: NDArray[np.bool_]
    owners: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        train: SplitArrays,
        held: SplitArrays,
        span: Span,
        gamma: float,
        vocabulary: Vocabulary,
    ) -> Monitor:
        """A monitor on these validation episodes; V is a ridge regression of the train split's whole returns."""
        shown = _thinned(held)
        whole = np.asarray(shown.terminals)[shown.episode_offsets[1:] - 1][shown.episode_index]
        gauged = whole & ~np.isin(shown.actions, vocabulary.unplayable)
        groups = np.unique(shown.groups, return_inverse=True)[1].astype(np.int64)
        baseline = _values(train, shown.observations[shown.observation_rows])
        return cls(shown, span, gamma, vocabulary, baseline, gauged, groups[shown.episode_index])

    def behaviour(self, clone: PolicyBundle) -> Behaviour:
        """What cloning would do here."""
        rows = self.held.observation_rows
        observations, masks = self.held.observations[rows], self.held.masks[rows]
        choices, chances = clone.choose(observations, masks), clone.probabilities(observations, masks)
        return Behaviour(chances, choices, self.gains(choices, chances))

    def gains(self, choices: NDArray[np.int32], chances: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Agreement × min(1 / chance, CAP) × (G − V), summed over each split group; None with fewer than five groups."""
        held = self.held
        if len(np.unique(self.owners[self.gauged])) < _FEW:
            return None
        agreed = self.gauged & (choices == held.actions)
        chance = chances[np.arange(held.size), held.actions]
        ratio = np.minimum(1 / np.maximum(chance, 1 / CAP), CAP)
        gain = np.where(agreed, ratio * (held.returns - self.baseline), 0.0)
        found = np.bincount(self.owners, gain, minlength=int(self.owners.max()) + 1)
        return np.asarray(found, np.float64)

    def mean(self, gains: NDArray[np.float64]) -> tuple[float, float]:
        """The sum of gains per decision, and its standard error over split groups (that of a ratio of sums)."""
        sizes = np.bincount(self.owners[self.gauged], minlength=len(gains))
        total, there = int(sizes.sum()), sizes > 0
        mean = float(gains.sum() / total)
        rest = (gains - mean * sizes)[there]
        return mean, float(np.sqrt(len(rest)) * rest.std(ddof=1) / total)

    def measure(self, bundle: PolicyBundle, behaviour: Behaviour | None) -> Measured:
        """All numbers of a policy; those that need cloning only where it is given."""
        held, rows = self.held, self.held.observation_rows
        all_choices = bundle.choose(held.observations, held.masks)
        choices = all_choices[rows]
        known = ~np.isin(held.actions, self.vocabulary.unplayable)
        numbers: dict[str, Any] = {}
        if known.any():
            numbers["validation_match"] = float((choices == held.actions)[known].mean())
        if bundle.card.kind == "q":
            numbers |= self._values_of_q(bundle.scores(held.observations), all_choices)
        numbers |= self._spread(bundle, choices)
        if behaviour is None:
            return Measured(numbers, None)
        chance = behaviour.chances[np.arange(held.size), choices]
        numbers["clone_share"] = float((choices == behaviour.choices).mean())
        numbers["ood_share"] = float((chance < OOD_CHANCE).mean())
        gains = self.gains(choices, behaviour.chances)
        if gains is not None and behaviour.gains is not None:
            numbers["improvement"], numbers["improvement_se"] = self.mean(gains)
            numbers["over_clone"], numbers["over_clone_se"] = self.mean(gains - behaviour.gains)
        return Measured(numbers, gains)

    def _values_of_q(
        self, scores: NDArray[np.float32], choices: NDArray[np.int32]
    ) -> dict[str, float | None]:
        held, rows = self.held, self.held.observation_rows
        best = scores[np.arange(len(scores)), choices]
        taken = scores[rows, held.actions]
        goal = held.rewards + self.gamma * ~held.terminals * best[rows + 1]
        offered = np.array(held.masks[rows], dtype=bool)
        offered[:, self.vocabulary.unplayable] = False
        offered[np.arange(held.size), held.actions] = True
        whole = held.terminals[held.episode_offsets[1:] - 1]
        starts = held.episode_offsets[:-1][whole]
        numbers: dict[str, float | None] = {
            "validation_td_error": float(((taken - goal) ** 2).mean()),
            "validation_mean_q": float(best[rows].mean()),
            "validation_max_q": float(best[rows].max()),
            "possible_low": self.span.low,
            "possible_high": self.span.high,
            "soft_opc": _soft_opc(held, taken),
            "q_above": float((best[rows] > self.span.high).mean()),
            "q_below": float((best[rows] < self.span.low).mean()),
            "conservative_gap": float(
                (_log_sum_exp(np.where(offered, scores[rows], -np.inf)) - taken).mean()
            ),
        }
        if len(starts):
            numbers["start_q"] = float(best[rows[starts]].mean())
            numbers["start_return"] = float(held.returns[starts].mean())
        return numbers

    def _spread(self, bundle: PolicyBundle, choices: NDArray[np.int32]) -> dict[str, Any]:
        rows = self.held.observation_rows
        chances = bundle.probabilities(self.held.observations[rows], self.held.masks[rows], temperature=1.0)
        counts = np.bincount(choices, minlength=self.vocabulary.size) / self.held.size
        return {
            "softmax_entropy": float(_entropy(chances).mean()),
            "action_entropy": float(_entropy(counts)),
            "favourite": self.vocabulary.actions[int(counts.argmax())],
            "favourite_share": float(counts.max()),
        }


def one_outcome(held: SplitArrays) -> str:
    """Why episodes cannot be told apart by their outcome; empty when they can."""
    won, lost = int((held.success == 1).sum()), int((held.success == 0).sum())
    if won and lost:
        return ""
    return f"of {held.episode_count} validation episodes {won} are known to have succeeded and {lost} to have failed"


def _soft_opc(held: SplitArrays, taken: NDArray[Any]) -> float | None:
    if one_outcome(held):
        return None
    outcome = held.success[held.episode_index]
    return float(taken[outcome == 1].mean() - taken[outcome != -1].mean())


def _thinned(held: SplitArrays) -> SplitArrays:
    return thinned(held, MOST_DECISIONS / max(held.size, 1))


def thinned(held: SplitArrays, share: float) -> SplitArrays:
    """Evenly spaced episodes, this share of them; all where it is 1 or more."""
    if share >= 1:
        return held
    kept = np.diff(np.floor(np.arange(held.episode_count + 1) * share)) > 0
    return held.only(kept)


def _values(train: SplitArrays, observations: NDArray[np.float32]) -> NDArray[np.float64]:
    """V of the log at observations: ridge regression of whole returns on the standardised columns of evenly spaced decisions."""
    whole = train.terminals[train.episode_offsets[1:] - 1][train.episode_index]
    usable = np.flatnonzero(whole if whole.any() else np.ones(train.size, bool))
    picked = usable[np.unique(np.linspace(0, len(usable) - 1, min(len(usable), MOST_DECISIONS)).astype(int))]
    seen = np.asarray(train.observations[train.observation_rows[picked]], np.float64)
    returns = np.asarray(train.returns[picked], np.float64)
    centre, scale = seen.mean(axis=0), seen.std(axis=0)
    scale[scale < 1e-6] = np.inf
    columns = (seen - centre) / scale
    normal = columns.T @ columns + _RIDGE * len(columns) * np.eye(columns.shape[1])
    weights = np.linalg.solve(normal, columns.T @ (returns - returns.mean()))
    return np.asarray((observations - centre) / scale @ weights + returns.mean(), np.float64)


def _log_sum_exp(scores: NDArray[Any]) -> NDArray[Any]:
    top = scores.max(axis=1)
    return np.asarray(np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top)


def _entropy(chances: NDArray[Any]) -> NDArray[Any]:
    """Of the last axis, in nats."""
    return np.asarray(np.maximum(0.0, -(chances * np.log(np.maximum(chances, 1e-12))).sum(axis=-1)))
