"""Gates: what a dataset must measure up to. One that does not fails the build, and nothing is published.

A gate compares one number of `Measures` with a threshold of the build's config. A number that cannot be measured fails
its gate: nobody asked for a gate that lets the unknown pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from logforge.core import Estimate, bracketed, plural
from logforge.dataset.quality.leak_probe import leak_auc
from logforge.schemas import CheckFailed, Problem, UnknownName, UsageError
from logforge.shards import SplitArrays


@dataclass(frozen=True)
class Measures:
    """What gates look at, measured on the logged (not the augmented) rows of a dataset, each when it is asked for.

    `transitions` and `conflicts` are the frames of a build, `arrays` those of its splits.
    """

    transitions: pl.DataFrame
    conflicts: pl.DataFrame
    arrays: Mapping[str, SplitArrays]
    seed: int = 0

    @cached_property
    def logged(self) -> pl.DataFrame:
        """The transitions that are no augmented copy."""
        return self.transitions.filter(pl.col("parent_id").is_null())

    @cached_property
    def failure_share(self) -> Estimate:
        """Failures among the episodes whose outcome is known."""
        known = self.logged.select("episode_id", "success").drop_nulls().unique()
        if known.is_empty():
            return Estimate(None, reason="no episode has a known outcome")
        return Estimate(known.filter(~pl.col("success")).height / known.height)

    @cached_property
    def conflict_rate(self) -> Estimate:
        """Decisions in a state (exact key) whose logs contradict one another.

        Every kind of conflict counts but `contrast`: other actions with other outcomes are what is learnt from. A `label`
        contradicts in every state of its trajectory.
        """
        if self.logged.is_empty():
            return Estimate(None, reason="there is no logged decision")
        wrong = self.conflicts.filter(pl.col("kind") != "contrast", pl.col("level") == "exact")
        labels = wrong.filter(pl.col("kind") == "label").select(episode_id="episode_a")
        along = self.logged.join(labels, on="episode_id", how="semi")["state_key"]
        hit = self.logged["state_key"].is_in([*wrong["state_key"], *along])
        return Estimate(float(hit.to_numpy().mean()))

    @cached_property
    def coverage(self) -> Estimate:
        """States (canonical key) in which more than one valid action was tried, among those seen at least twice.

        A state seen once has one action whatever the agents are like, so it says nothing.
        """
        states = (
            self.logged.filter("action_valid")
            .group_by("state_key_canonical")
            .agg(seen=pl.len(), actions=pl.col("action_id").n_unique())
            .filter(pl.col("seen") > 1)
        )
        if states.is_empty():
            return Estimate(None, reason="no state was seen twice")
        return Estimate(states.filter(pl.col("actions") > 1).height / states.height)

    @cached_property
    def leak_auc(self) -> Estimate:
        """How well the first observation predicts success on tasks that were not seen (see leak_probe.py)."""
        chosen = [(split, part, ~part.augmented) for split, part in self.arrays.items()]
        return leak_auc(
            np.concatenate(
                [part.observations[part.observation_offsets[:-1]][own] for _, part, own in chosen]
            ),
            np.concatenate([part.success[own] for _, part, own in chosen]),
            np.concatenate([np.char.add(split, part.groups[own].astype(str)) for split, part, own in chosen]),
            self.seed,
        )


class Gate(NamedTuple):
    """A gate: the number it looks at, on which side of the threshold that must lie, and what it is for."""

    measure: Callable[[Measures], Estimate]
    least: bool
    meaning: str


GATES: dict[str, Gate] = {
    "min_failure_share": Gate(lambda m: m.failure_share, True, "share of failures among known outcomes"),
    "max_conflict_rate": Gate(lambda m: m.conflict_rate, False, "share of decisions in contradicting states"),
    "min_coverage": Gate(lambda m: m.coverage, True, "share of states, seen twice, with two actions or more"),
    "max_leak_auc": Gate(lambda m: m.leak_auc, False, "AUC of success predicted from the first state"),
}
"""Every gate, by the name of its threshold in the config (`min-failure-share = 0.1`)."""
REMEDY = "ingest other logs, mend what the reason names, or set another threshold for the gate"


class Passed(NamedTuple):
    """A gate that a dataset passed: what was measured against its threshold."""

    gate: str
    threshold: float
    value: float


def check_thresholds(thresholds: Mapping[str, float]) -> None:
    """Raise UnknownName for a gate that there is not, and UsageError for a threshold outside [0, 1]."""
    for name, threshold in thresholds.items():
        if name not in GATES:
            raise UnknownName("gate", name, list(GATES))
        if not 0 <= threshold <= 1:
            raise UsageError(f"{name} {threshold} is no share", "give a number from 0 to 1")


def pass_gates(thresholds: Mapping[str, float], measures: Measures) -> list[Passed]:
    """What each gate measured. Raises CheckFailed naming every gate that is not met; without thresholds nothing is measured."""
    passed, problems = [], []
    for name, gate in GATES.items():
        if name not in thresholds:
            continue
        found, threshold = gate.measure(measures), thresholds[name]
        value = found.value
        if value is None:
            problems.append(Problem(f"{gate.meaning} cannot be measured: {found.reason}", rule=name))
        elif (value < threshold) if gate.least else (value > threshold):
            wanted = "at least" if gate.least else "at most"
            what = f"{gate.meaning} is {bracketed(found, '{:.3g}')}, must be {wanted} {threshold:g}"
            problems.append(Problem(what, rule=name))
        else:
            passed.append(Passed(name, threshold, value))
    if problems:
        raise CheckFailed(f"{len(problems)} of {plural(len(thresholds), 'gate')} not met", problems, REMEDY)
    return passed
