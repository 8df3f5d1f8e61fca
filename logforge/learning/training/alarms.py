"""When a run goes wrong: rules on the rows of metrics of one policy, and which of its checkpoints is kept.

The rules follow from the range of possible returns. A target clipped to it is never above `high`; CQL's fixed point,
Q(a) = T(a) − α (π(a) / μ(a) − 1), is at most α above its target T. So Q up to `high` + α is what the method asks for. The
range's width on top is room for a network's errors between states (half of it where targets are not clipped, and nothing
holds what feeds on itself); what lies beyond and keeps growing runs away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import each
from logforge.learning.training.config import Point
from logforge.learning.training.findings import (
    ALARMS,
    FIT_GROWTH,
    PATIENCE,
    SURELY_ALIKE,
    TD_GROWTH,
    collapsed,
)

Row = Mapping[str, Any]


class Limits(NamedTuple):
    """What a policy's numbers are held against. `high` is the most that Q may be, `low` the least; `know_nothing` the squared
    error of a Q that is the same everywhere (the variance of returns); `log_favourite` the share of the log's commonest
    action."""

    low: float
    high: float
    know_nothing: float
    log_favourite: float

    @classmethod
    def of(
        cls,
        span: tuple[float, float],
        alpha: float,
        returns: NDArray[Any],
        actions: NDArray[Any],
        *,
        clipped: bool,
    ) -> Limits:
        """For a learner whose penalty weighs `alpha` (0 where it has none), of the train split's returns and actions.

        With `clipped` targets an error between states cannot feed itself, and has the whole width of the range for room.
        """
        low, high = span
        width = high - low if math.isfinite(high - low) else float(np.ptp(returns))
        slack = (1.0 if clipped else 0.5) * (width or 1.0)
        commonest = float(np.bincount(actions).max() / len(actions))
        return cls(low - alpha - slack, high + alpha + slack, float(np.var(returns)), commonest)


@dataclass(frozen=True)
class Alarm:
    """What was seen of one policy, when, and what to do. `stops`: training of that member ended with it."""

    rule: str
    policy: str
    epoch: int
    update: int
    what: str
    remedy: str
    stops: bool

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return each(self)


class Kept(NamedTuple):
    """A checkpoint: the policy, its row of metrics, and what each split group adds to its improvement."""

    point: Point
    row: dict[str, Any]
    gains: NDArray[np.float64] | None


class Watch:
    """One member in training: its rows so far, its checkpoints, and the alarm that stopped it."""

    def __init__(self, policy: str, limits: Limits) -> None:
        self.policy, self.limits = policy, limits
        self.rows: list[dict[str, Any]] = []
        self.last: Kept | None = None
        self.best: Kept | None = None
        self.stopped: Alarm | None = None

    def see(self, kept: Kept) -> None:
        """A new epoch."""
        self.rows.append(kept.row)
        self.stopped = next(_stopping(self.policy, self.rows, self.limits), None)
        if not is_finite(kept.row):
            return
        self.last = kept
        if self.best is None or _rank(kept.row, self.limits) > _rank(self.best.row, self.limits):
            self.best = kept

    @property
    def kept(self) -> Kept | None:
        """The last checkpoint; of a run that was stopped the best one. None where no epoch came out finite."""
        return self.best if self.stopped else self.last

    def warnings(self) -> Iterator[Alarm]:
        """What is worth saying of a run that went to its end."""
        if self.stopped is None and self.rows:
            last = self.rows[-1]
            if found := collapsed(last, self.limits.log_favourite, SURELY_ALIKE):
                yield _alarm("collapsed", self.policy, last, found, stops=False)


def is_finite(row: Row) -> bool:
    """Whether an epoch's numbers are numbers."""
    return bool(row["finite"])


def _rank(row: Row, limits: Limits) -> tuple[float, float, int]:
    """The nearer to the range, then by improvement; without a validation split the later one."""
    q = row.get("validation_max_q", 0.0)
    beyond = max(0.0, q - limits.high, limits.low - q)
    return -beyond, row.get("improvement", 0.0), 0 if "improvement" in row else row["update"]


def _stopping(policy: str, rows: Sequence[Row], limits: Limits) -> Iterator[Alarm]:
    last = rows[-1]
    if not is_finite(last):
        yield _alarm("not_finite", policy, last, {})
        return
    q = _growing(rows, "validation_max_q")
    if q and q[0] > limits.high:
        figures = {"first": q[0], "last": q[-1], "epochs": len(q)}
        figures |= {"possible": last["possible_high"], "limit": limits.high}
        yield _alarm("q_runs_away", policy, last, figures)
    errors = [row[key] for row in rows if (key := _error_key(row))]
    late = errors[-2:]
    grown = len(errors) > PATIENCE and min(late) > max(TD_GROWTH * min(errors), limits.know_nothing)
    if grown and _fits_worse(rows):
        figures = {"least": min(errors), "last": late[-1], "know_nothing": limits.know_nothing}
        yield _alarm("td_error_grows", policy, last, figures)


def _alarm(rule: str, policy: str, row: Row, figures: Mapping[str, Any], *, stops: bool = True) -> Alarm:
    told = ALARMS[rule].tell(**figures)
    return Alarm(rule, policy, row["epoch"], row["update"], told.words, told.remedy, stops)


def _error_key(row: Row) -> str:
    """Validation's, or the batches' own where there is no validation split."""
    return next((key for key in ("validation_td_error", "td_loss") if row.get(key) is not None), "")


def _fits_worse(rows: Sequence[Row]) -> bool:
    """Whether the batches' own error grew; also where no row tells it."""
    own = [row["td_loss"] for row in rows if row.get("td_loss") is not None]
    return not own or min(own[-2:]) > FIT_GROWTH * min(own)


def _growing(rows: Sequence[Row], key: str) -> list[float]:
    """The last PATIENCE values, where each is above the one before it."""
    found = [row[key] for row in rows[-PATIENCE:] if key in row]
    rises = all(after > before for before, after in pairwise(found))
    return found if len(found) == PATIENCE and rises else []
