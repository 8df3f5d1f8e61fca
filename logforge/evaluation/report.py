"""What `logforge evaluate` tells of a run: rows of policies, the verdict, and how the estimators go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from logforge.core import BaseReport, Estimate, Lines, bracketed, picked, plain, table
from logforge.dataset.weights import StageOutcome
from logforge.evaluation.episode_metrics import EpisodeMetrics
from logforge.evaluation.families import Generalisation
from logforge.learning.ope import ROBUST, Importance, Support

LOGGED: Final = "logged"


class PolicyRow(NamedTuple):
    """One policy on the held-out decisions, or a learner's trained members on average. `like_bc` is the share of decisions on which
    it agrees with cloning, `members` the value of each member by its name."""

    policy: str
    value: Estimate
    match: Estimate
    like_bc: float | None = None
    support: Support | None = None
    favourite: tuple[str, float] | None = None
    members: Mapping[str, float] = {}
    importance: Importance | None = None

    @property
    def iqm(self) -> float | None:
        """The interquartile mean of the members' values (Agarwal et al. 2021); None with fewer than four."""
        from scipy.stats import trim_mean

        return float(trim_mean([*self.members.values()], 0.25)) if len(self.members) > 3 else None

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON data."""
        unlike = ("never_logged", "no_similar_state")
        return {
            "policy": self.policy,
            "value": plain(self.value),
            "action_match": plain(self.match),
            "like_bc": self.like_bc,
            **(picked(self.support, *unlike) if self.support else dict.fromkeys(unlike)),
            **picked(self, "favourite", "members", "iqm", "importance"),
        }

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        shares = (
            self.like_bc,
            *((self.support.never_logged, self.support.no_similar_state) if self.support else (None, None)),
        )
        return (
            self.policy,
            bracketed(self.value, "{:.2f}"),
            bracketed(self.match, "{:.0%}"),
            *("—" if share is None else f"{share:.0%}" for share in shares),
        )


class Verdict(NamedTuple):
    """Is the learner better than cloning? None where that cannot be said."""

    better: bool | None
    text: str
    against: str | None = None
    difference: Estimate = Estimate(None)


@dataclass(frozen=True)
class EvaluationReport(BaseReport):
    """What is known of a run's policies from held-out episodes."""

    run: str
    dataset: str
    dataset_hash: str
    split: str
    episodes: int
    complete: int
    decisions: int
    rows: tuple[PolicyRow, ...]
    verdict: Verdict
    caveats: tuple[str, ...]
    settings: dict[str, Any]
    log: EpisodeMetrics
    """How the logged episodes went."""
    stages: tuple[StageOutcome, ...] = ()
    """The logged outcomes by stage, where the dataset has a curriculum."""
    generalisation: Generalisation | None = None
    """The same policies on the held-out task family, where the dataset has one."""

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data; what has no number is null, with its reason."""
        told = super().as_dict()
        return {("policies" if name == "rows" else name): value for name, value in told.items()}

    def lines(self) -> Lines:
        """The report as text, up to 100 columns wide."""
        size = f"{self.episodes} episodes ({self.complete} complete), {self.decisions} decisions"
        header = ("policy", "value (95 %)", "action match (95 %)", "like bc", "never logged", "no similar")
        yield f"{self.dataset} ({self.dataset_hash[:12]}), {self.split}: {size}\n"
        yield table(header, [row.cells() for row in self.rows]) + "\n"
        for row in self.rows:
            if row.value.reason:
                yield _wrapped(f"— value of {row.policy}: {row.value.reason}")
            if row.match.reason and row.policy != LOGGED:
                yield _wrapped(f"— action match of {row.policy}: {row.match.reason}")
            yield _wrapped(_of_members(row)) if row.members else None
        yield _wrapped(f"the log: {self.log.told()}")
        yield from self._weighed()
        yield _wrapped(f"verdict: {self.verdict.text}")
        if self.generalisation:
            *lines_of, told = self.generalisation.lines()
            yield from ("", *lines_of, _wrapped(told))
        for stage in self.stages:
            success = "—" if stage.success is None else f"{stage.success:.0%}"
            yield f"stage {stage.stage}: {stage.episodes} episodes, logged success {success} of {stage.known} known"
        yield from (_wrapped(f"caveat: {caveat}") for caveat in self.caveats)

    def _weighed(self) -> list[str]:
        """The estimators by importance sampling, and how they go with FQE."""
        weighed = [(row, row.importance) for row in self.rows if row.importance is not None]
        cells = [
            (row.policy, name, bracketed(one.estimate, "{:.2f}"), f"{one.ess:.1f}")
            for row, found in weighed
            for name, one in found.estimates.items()
            if one.estimate.value is not None and one.ess is not None
        ]
        header = ("policy", "estimator", "value (95 %)", "effective episodes")
        lines = ["", table(header, cells), ""] if cells else []
        whole = self.complete == self.episodes
        told = [agreement(row.policy, row.value, found, whole) for row, found in weighed]
        alike = {one.estimate.reason for _, found in weighed for one in found.estimates.values()}
        if len(alike) == 1 and (reason := alike.pop()):  # what the log lacks, it lacks for every policy
            told = [f"importance sampling cannot judge these policies: {reason}"]
        return [*lines, *map(_wrapped, told)]


def agreement(policy: str, fqe: Estimate, found: Importance, whole: bool) -> str:
    """How importance sampling goes with FQE, in a line. Of logs with cut-off episodes (not `whole`) only what goes on through them
    is compared with it: the others judge another horizon."""
    known = found.known
    reasons = [one.estimate.reason for one in found.estimates.values() if one.estimate.reason]
    # effective sizes differ by estimator, and one will do
    kinds = {reason.partition(" of ")[0]: reason for reason in reasons}
    missing = f"; the others: {'; '.join(kinds.values())}" if known and reasons else ""
    if not known:
        return f"importance sampling cannot judge {policy}: {'; '.join(kinds.values())}"
    if fqe.low is None or fqe.high is None:
        return f"{policy}: FQE has no value to hold {', '.join(known)} against{missing}"
    asked = {name: one for name, one in known.items() if whole or name in ROBUST}
    apart = [name for name, one in asked.items() if _apart(one, fqe)]
    if apart:
        said = ", ".join(f"{name} {bracketed(known[name], '{:.2f}')}" for name in apart)
        return f"the estimators of {policy} disagree: FQE {bracketed(fqe, '{:.2f}')}, {said}; trust none of them{missing}"
    if not asked:
        return f"{policy}: {', '.join(known)} judge the logged horizon and are not held against FQE{missing}"
    alone = "" if set(asked) - set(ROBUST) else " (which correct FQE's own Q: no independent word)"
    return f"{policy}: {', '.join(asked)} agree with FQE{alone}{missing}"


def _apart(one: Estimate, other: Estimate) -> bool:
    pairs = ((one.low, other.high), (other.low, one.high))
    return any(low is not None and high is not None and low > high for low, high in pairs)


def _of_members(row: PolicyRow) -> str:
    points = ", ".join(f"{name} {value:.2f}" for name, value in row.members.items())
    middle = "" if row.iqm is None else f"; interquartile mean {row.iqm:.2f}"
    return f"members of {row.policy}: {points}{middle}"


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=True)
