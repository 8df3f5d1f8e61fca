"""Which setting of a sweep to take: the highest lower bound among those that keep to what the log supports, and the default
where nothing is measurably better than it. Where none solved any case in the simulator there is nothing to choose by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import BaseReport, Estimate, Lines, Noise, bracketed, picked, pooled, share, table
from logforge.core import difference as paired
from logforge.learning.training import MOST_OOD

By = Literal["fqe", "success"]
F64 = NDArray[np.float64]


class Tried(NamedTuple):
    """One setting: its FQE values [seeds, bootstrap members] and why they are no estimate, the episodes that succeeded [seeds,
    episodes] where it was played, and the means over seeds of what was measured on validation."""

    setting: dict[str, float]
    values: F64
    unsettled: str
    played: F64 | None
    means: dict[str, float]

    @property
    def fqe(self) -> Estimate:
        """The mean value with its 95 % interval."""
        return Estimate(None, reason=self.unsettled) if self.unsettled else _of_members(self.values)

    @property
    def success(self) -> Estimate:
        """The share of successes in the simulator with its 95 % interval."""
        return Estimate(None, reason="not played") if self.played is None else share(self.played)

    def score(self, by: By) -> Estimate:
        """What it is ranked by."""
        return self.success if by == "success" else self.fqe

    def minus(self, other: Tried, by: By) -> Estimate:
        """The difference, seed by seed and resample by resample (or episode by episode)."""
        if by == "success" and self.played is not None and other.played is not None:
            return paired(self.played, other.played)
        if reason := self.unsettled or other.unsettled:
            return Estimate(None, reason=reason)
        return _of_members(self.values - other.values)

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {**self.setting, **picked(self, "fqe", "success"), **self.means}


class Choice(NamedTuple):
    """Which one, why, and how it differs from the default. Without `made` nothing could be chosen, and `place` is the default's."""

    place: int
    reason: str
    difference: Estimate
    by: By
    made: bool = True


def _of_members(values: F64) -> Estimate:
    """Seeds and the bootstrap are two sources of noise; bootstrap members already spread as the mean does."""
    members = values.shape[1]
    drawn = Noise(float(values.mean(axis=0).var(ddof=1)) * (1 + 1 / members), members - 1)
    half, centre = pooled(drawn, Noise.among(values.mean(axis=1))).half, float(values.mean())
    return Estimate(centre, centre - half, centre + half)


def choose(tried: Sequence[Tried], default: int, by: By) -> Choice:
    """The setting to take."""
    supported = [k for k, one in enumerate(tried) if one.means.get("ood_share", 0.0) <= MOST_OOD]
    known = [k for k in supported if tried[k].score(by).low is not None]
    if by == "success" and not any(tried[k].success.value for k in known or range(len(tried))):
        which = " that keeps to the log" if len(known) not in (0, len(tried)) else ""
        cases = max((one.played.shape[1] for one in tried if one.played is not None), default=0)
        why = f"no setting{which} solved any of {cases} cases"
        return Choice(default, why, Estimate(None, reason=why), by, made=False)
    if not known:
        why = "none can be estimated" if supported else f"all take unsupported actions in over {MOST_OOD:.0%}"
        return Choice(
            default, f"not distinguishable: keep the default ({why})", Estimate(None, reason=why), by
        )
    best = max(known, key=lambda k: (tried[k].score(by).low or 0.0, k == default))
    if best == default:
        return Choice(default, "the default has the highest lower bound", Estimate(0.0, 0.0, 0.0), by)
    difference = tried[best].minus(tried[default], by)
    if default not in supported:
        return Choice(best, "the default takes too many unsupported actions", difference, by)
    if difference.low is not None and difference.low > 0:
        return Choice(best, "measurably better than the default", difference, by)
    return Choice(default, "not distinguishable: keep the default", difference, by)


_HEADER = ("", "alpha", "gamma", "step cost", "FQE (95 %)", "success (95 %)", "ood", "like bc", "improvement")  # fmt: skip


@dataclass(frozen=True)
class SweepReport(BaseReport):
    """What was tried and taken. `stopped`: the run of the chosen setting was ended by an alarm."""

    run: str
    dataset: dict[str, str]
    simulator: str | None
    config: dict[str, Any]
    tried: tuple[Tried, ...]
    default: dict[str, float]
    choice: Choice
    stopped: bool

    @property
    def failed(self) -> bool:
        """Whether nothing could be chosen, or the run of the chosen setting was ended by an alarm."""
        return self.stopped or not self.choice.made

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data; it is also what sweep.json holds."""
        told = picked(
            self, "run", "dataset", "simulator", "config", "tried", "default", "chosen", "choice", "stopped"
        )
        return {"schema_version": 1, **told}

    @property
    def chosen(self) -> dict[str, float] | None:
        """The setting that was taken, where one was."""
        return self.tried[self.choice.place].setting if self.choice.made else None

    def lines(self) -> Lines:
        """A ranked table and the choice."""
        order = sorted(range(len(self.tried)), key=lambda k: -_low(self.tried[k].score(self.choice.by)))
        judged = f"success in {self.simulator}" if self.simulator else "FQE on validation"
        taken = self.tried[self.choice.place].setting.items()
        setting = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in taken)
        yield f"{len(order)} settings, ranked by the lower bound of {judged}\n"
        yield table(_HEADER, [self._cells(k) for k in order]) + "\n"
        yield from (f"— {one.setting}: {one.unsettled}" for one in self.tried if one.unsettled)
        if self.choice.made:
            yield f"chosen: {setting}: {self.choice.reason}{self._gained()}"
            yield f"run: {self.run}"
        else:
            yield f"nothing chosen: {self.choice.reason}; give more --updates, or a log with more successes"
            yield f"run, of the default ({setting}): {self.run}"
        if self.stopped:
            yield f"an alarm ended that run, its best checkpoint is kept: logforge doctor {self.run}"

    def _gained(self) -> str:
        """How the best setting differs from the default, where it is another."""
        if self.choice.difference == Estimate(0.0, 0.0, 0.0):
            return ""
        return f" (difference {bracketed(self.choice.difference, '{:+.3f}')})"

    def _cells(self, place: int) -> tuple[object, ...]:
        one = self.tried[place]
        mark = "→" if self.choice.made and place == self.choice.place else ""
        mark += " default" if one.setting == self.default else ""
        shares = (one.means.get(name) for name in ("ood_share", "clone_share", "improvement"))
        scores = bracketed(one.fqe, "{:.3f}"), bracketed(one.success, "{:.1%}")
        return mark.strip(), *(f"{value:g}" for value in one.setting.values()), *scores, *shares


def _low(score: Estimate) -> float:
    return -np.inf if score.low is None else score.low
