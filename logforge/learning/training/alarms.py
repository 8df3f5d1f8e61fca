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
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core.report import each
from logforge.learning.training.config import Point

Row = Mapping[str, Any]

PATIENCE: Final = 3
"""So many epochs in a row, each worse than the one before."""
TD_GROWTH: Final = 10.0
FIT_GROWTH: Final = 1.5
"""The batches' own TD error has to have grown too, so many times. Q that learns few episodes by heart errs more and more on others
while it fits its own: on 90 episodes of `it-ops` 10 times more in validation, and at most 1.2 times in batches; with targets that
feed on themselves both grow (1.7 times and more)."""
COLLAPSED: Final = 0.8
"""One action in more than this share of decisions."""
_SURE, _CLONE = 2.0, 0.95


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
            yield from _collapse(self.policy, self.rows[-1], self.limits)


def is_finite(row: Row) -> bool:
    """Whether an epoch's numbers are numbers."""
    return bool(row["finite"])


def _rank(row: Row, limits: Limits) -> tuple[float, float, int]:
    """The nearer to the range, then by improvement; without a validation split the later one."""
    q = row.get("validation_max_q", 0.0)
    beyond = max(0.0, q - limits.high, limits.low - q)
    return -beyond, row.get("improvement", 0.0), 0 if "improvement" in row else row["update"]


def _stopping(policy: str, rows: Sequence[Row], limits: Limits) -> Iterator[Alarm]:
    def alarm(rule: str, what: str, remedy: str) -> Alarm:
        return Alarm(rule, policy, rows[-1]["epoch"], rows[-1]["update"], what, remedy, True)

    if not is_finite(rows[-1]):
        yield alarm("not_finite", "a loss or a score is NaN or infinite", "lower --learning-rate")
        return
    q = _growing(rows, "validation_max_q")
    if q and q[0] > limits.high:
        yield alarm(
            "q_runs_away",
            f"max Q went from {q[0]:.3g} to {q[-1]:.3g} in {len(q)} epochs, where {rows[-1]['possible_high']:.3g} is the most a "
            f"return can be and up to {limits.high:.3g} is put down to the penalty and to errors",
            "clip targets (--clip-targets) where they are not, or lower --learning-rate; a lower --alpha makes it worse",
        )
    errors = [row[key] for row in rows if (key := _error_key(row))]
    late = errors[-2:]
    grown = len(errors) > PATIENCE and min(late) > max(TD_GROWTH * min(errors), limits.know_nothing)
    if grown and _fits_worse(rows):
        yield alarm(
            "td_error_grows",
            f"the TD error grew from {min(errors):.3g} to {late[-1]:.3g}: more than {TD_GROWTH:g} times, and beyond what knowing nothing "
            f"costs ({limits.know_nothing:.3g}, the variance of returns)",
            "clip targets (--clip-targets) where they are not, lower --learning-rate, or bring more episodes",
        )


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


def _collapse(policy: str, row: Row, limits: Limits) -> Iterator[Alarm]:
    if row.get("clone_share", 1.0) >= _CLONE:  # then it is the log's own
        return
    share = row.get("favourite_share", 0.0)
    gained = row.get("improvement", 0.0) > _SURE * row.get("improvement_se", 0.0)
    if share > COLLAPSED >= limits.log_favourite and not gained:
        yield Alarm(
            "collapsed", policy, row["epoch"], row["update"],
            f"one action, {row['favourite']!r}, in {share:.0%} of the decisions (the log's commonest: {limits.log_favourite:.0%}), and no "
            "improvement over the log",
            "`logforge doctor` tells the cause: over-estimation, or a reward that pays for it", False,
        )  # fmt: skip
