"""What a run's dataset tells: too few episodes or successes, a reward that pays for going round, one that pays for giving up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.evaluation.tuning.symptoms import Patient, Symptom, told
from logforge.learning.training import FEW_SUCCESSES, QUICK_FAILURES, REPEATS, few_episodes
from logforge.schemas import Manifest
from logforge.shards import Shard, SplitArrays


def data_symptoms(patient: Patient) -> Iterator[Symptom]:
    """Everything found."""
    yield from _paid_loop(patient)
    yield from _early_exit(patient)
    yield from _size(patient.train)
    yield from _outcomes(patient.train)


def _size(train: SplitArrays) -> Iterator[Symptom]:
    if few := few_episodes(train):
        yield told("few_episodes", few)


def _outcomes(train: SplitArrays) -> Iterator[Symptom]:
    known = train.success != -1
    wins, count = int((train.success == 1).sum()), int(known.sum())
    if not count:
        yield told("no_outcomes", {"known": 0})
    elif wins / count < FEW_SUCCESSES:
        yield told("few_successes", {"successes": wins, "known": count, "share": wins / count})


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
        yield told("paid_loop", loop._asdict())
        return
    yield from _linted(patient.train, "paid_cycle", "paid_loop")


def _early_exit(patient: Patient) -> Iterator[Symptom]:
    """Quick failures that return more than successes do."""
    train = patient.train
    won = train.success == 1
    lengths = np.diff(train.episode_offsets)
    if won.any():
        quick = (train.success == 0) & (lengths <= np.quantile(lengths[won], 0.25))
        lost, gained = _returns(train, quick), _returns(train, won)
        if len(lost) >= QUICK_FAILURES and len(gained) and lost.mean() > gained.mean():
            figures = {
                "quick_failures": len(lost),
                "their_return": float(lost.mean()),
                "success_return": float(gained.mean()),
            }
            yield told("early_exit", figures)
            return
    yield from _linted(train, "early_exit", "early_exit")


def _returns(train: SplitArrays, which: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Of the complete episodes among these."""
    whole = train.terminals[train.episode_offsets[1:] - 1]
    found: NDArray[np.float32] = train.returns[train.episode_offsets[:-1]][which & whole]
    return found


def _linted(train: Shard, linted: str, rule: str) -> Iterator[Symptom]:
    """What `logforge reward lint` calls an error by the rule `linted` in the dataset's spec, where the small world can run it."""
    from logforge.rewards.lint import TYPICAL_STEPS, recorded_trial, spec_findings

    trial = recorded_trial(train.manifest)
    if trial is None:
        return
    lengths = np.diff(train.episode_offsets)[train.success == 1]
    typical = round(float(np.median(lengths))) if len(lengths) else TYPICAL_STEPS
    for item in spec_findings(trial.spec, trial, typical):
        if item.rule == linted and item.level == "error":
            yield told(rule, dict(item.figures), "spec", what=item.what, advice=item.remedy)
