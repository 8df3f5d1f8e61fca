"""What a run's dataset tells: too few episodes or successes, a reward that pays for going round, one that pays for giving up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.evaluation.tuning.symptoms import Patient, Symptom
from logforge.learning.training.notes import SMALL_TRAIN
from logforge.schemas.manifest import Manifest
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import Shard

if TYPE_CHECKING:
    from logforge.rewards.lint.rules import Finding

FEW_SUCCESSES: Final = 0.15
"""Of episodes with a known outcome. Simulated logs without competent behaviour had 0.07 and 0.13, mixes with it 0.28 and 0.30."""
REPEATS: Final = 3
"""An action that is paid so often in one episode, before its end, can be farmed."""
_FEW = 5


def data_symptoms(patient: Patient) -> Iterator[Symptom]:
    """Everything found."""
    yield from _paid_loop(patient)
    yield from _early_exit(patient)
    yield from _size(patient.train)
    yield from _outcomes(patient.train)


def _size(train: SplitArrays) -> Iterator[Symptom]:
    count = int((~train.augmented).sum())
    if count < SMALL_TRAIN:
        yield Symptom(
            "few_episodes",
            f"{count} train episodes",
            f"below about {SMALL_TRAIN} no gain over cloning was measured: rare good moves are not seen often enough",
            "ingest more logs; until then cloning of the successes is the better controller",
            {"episodes": count, "needed": SMALL_TRAIN},
        )


def _outcomes(train: SplitArrays) -> Iterator[Symptom]:
    known = train.success != -1
    wins, count = int((train.success == 1).sum()), int(known.sum())
    if not count:
        yield Symptom(
            "no_outcomes",
            "no train episode says whether it succeeded",
            "the logs tell no outcome",
            "log `success`, or derive it in the reward spec; without it only the rewards tell good from bad",
            {"known": 0},
        )
    elif wins / count < FEW_SUCCESSES:
        yield Symptom(
            "few_successes",
            f"{wins} of {count} train episodes with a known outcome succeeded ({wins / count:.0%})",
            "no competent behaviour in the logs: coverage decides, not the algorithm",
            "add episodes of a better agent, of a rule or of people; no setting makes up for them",
            {"successes": wins, "known": count, "share": wins / count},
        )


class Loop(NamedTuple):
    """An action that is paid again and again: the mean pay, the most often it was paid in one episode, what going on with it
    for as long as the longest episode would return, and what successes return."""

    action: str
    pay: float
    most: int
    returns: float
    success: float


def paid_loop(train: SplitArrays, manifest: Manifest) -> Loop | None:
    """The most rewarding action to repeat, where repeating it returns more than successes do."""
    won = _returns(train, train.success == 1)
    if not len(won):
        return None
    last = np.zeros(train.size, bool)
    last[train.episode_offsets[1:] - 1] = True
    paid = ~last & (train.rewards > 0)
    pair = train.episode_index.astype(np.int64) * train.action_size + train.actions
    often = np.bincount(pair[paid], minlength=train.episode_count * train.action_size)
    repeated = paid & (often[pair] >= REPEATS)
    horizon, gamma = int(np.diff(train.episode_offsets).max()), manifest.gamma
    rounds = float(horizon) if gamma == 1 else (1 - gamma**horizon) / (1 - gamma)
    found = None
    for action in np.unique(train.actions[repeated]):
        pay = float(train.rewards[repeated & (train.actions == action)].mean())
        most = int(often[action :: train.action_size].max())
        loop = Loop(manifest.actions[action], pay, most, pay * rounds, float(won.mean()))
        if loop.returns > loop.success and (found is None or loop.returns > found.returns):
            found = loop
    return found


def _paid_loop(patient: Patient) -> Iterator[Symptom]:
    loop = paid_loop(patient.train, patient.train.manifest)
    if loop is not None:
        yield Symptom(
            "paid_loop",
            f"{loop.action!r} is paid {loop.pay:+.2g} again and again (up to {loop.most} times in one episode)",
            f"the reward can be farmed: to go on with it returns {loop.returns:.3g}, successes return {loop.success:.3g}",
            "pay it once (`once`, `max_per_episode`) or as a potential; `logforge reward lint` names the term",
            loop._asdict(),
        )
        return
    for item in _linted(patient.train, "paid_cycle"):
        yield Symptom(
            "paid_loop", item.what, "the reward spec can be farmed", item.remedy, dict(item.figures)
        )


def _early_exit(patient: Patient) -> Iterator[Symptom]:
    """Quick failures that return more than successes do."""
    train = patient.train
    won = train.success == 1
    lengths = np.diff(train.episode_offsets)
    if won.any():
        quick = (train.success == 0) & (lengths <= np.quantile(lengths[won], 0.25))
        lost, gained = _returns(train, quick), _returns(train, won)
        if len(lost) >= _FEW and len(gained) and lost.mean() > gained.mean():
            yield Symptom(
                "early_exit",
                f"{len(lost)} quick failures return {lost.mean():.3g} on average, successes {gained.mean():.3g}",
                "to give up at once is what the reward makes best",
                "pay success more, charge failure, or lower the cost of a step; `logforge reward lint` shows the break-even",
                {"quick_failures": len(lost), "their_return": float(lost.mean()), "success_return": float(gained.mean())},
            )  # fmt: skip
            return
    for item in _linted(train, "early_exit"):
        yield Symptom(
            "early_exit", item.what, "to give up is what the spec makes best", item.remedy, dict(item.figures)
        )


def _returns(train: SplitArrays, which: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Of the complete episodes among these."""
    whole = train.terminals[train.episode_offsets[1:] - 1]
    found: NDArray[np.float32] = train.returns[train.episode_offsets[:-1]][which & whole]
    return found


def _linted(train: Shard, rule: str) -> Iterator[Finding]:
    """Errors of `logforge reward lint` in the spec that the dataset was built with, where the small world can run it."""
    from logforge.rewards.lint.pipeline import TYPICAL_STEPS
    from logforge.rewards.lint.rules import spec_findings
    from logforge.rewards.lint.trial import recorded_trial

    trial = recorded_trial(train.manifest)
    if trial is None:
        return
    lengths = np.diff(train.episode_offsets)[train.success == 1]
    typical = round(float(np.median(lengths))) if len(lengths) else TYPICAL_STEPS
    for item in spec_findings(trial.spec, trial, typical):
        if item.rule == rule and item.level == "error":
            yield item
