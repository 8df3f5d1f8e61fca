"""How well policies do for how much data: success and steps of some episodes, and what a learning curve says.

A curve has the success reached after so many interactions (episodes, or steps). Two curves are compared by their area, which
needs no goal, and by the interactions to a goal, which are censored where the goal was never reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import Estimate, bootstrap_mean
from logforge.rewards import Floats
from logforge.schemas import UsageError


class Outcomes(NamedTuple):
    """The share of successes, and the mean steps of the successes; no value where there are too few, with the reason."""

    success: Estimate
    steps: Estimate


class Reached(NamedTuple):
    """Interactions to a goal; None where it was never reached in the `seen` interactions of the curve."""

    interactions: float | None
    seen: float

    def __str__(self) -> str:
        if self.interactions is None:
            return f"never reached (by {self.seen:,.0f})"
        return f"{self.interactions:,.0f}"


def outcomes(
    success: NDArray[np.bool_], steps: NDArray[Any], groups: NDArray[Any] | None = None, *, seed: int = 0
) -> Outcomes:
    """Success and steps of episodes (one entry each), with 95 % intervals from a bootstrap over `groups` (default: episodes)."""
    owners = np.arange(len(success)) if groups is None else groups
    shares = bootstrap_mean(success.astype(np.float64), owners, seed=seed)
    return Outcomes(shares, bootstrap_mean(steps[success].astype(np.float64), owners[success], seed=seed))


def curve_area(interactions: Sequence[float], success: Sequence[float]) -> float:
    """The area under the curve (trapezoids) over the range of its interactions: the mean success on the way, from 0 to 1."""
    at, values = _curve(interactions, success)
    return float(np.trapezoid(values, at) / (at[-1] - at[0]))


def interactions_to(goal: float, interactions: Sequence[float], success: Sequence[float]) -> Reached:
    """Where the curve first comes to the goal, on the straight line between two of its points."""
    at, values = _curve(interactions, success)
    reached = np.flatnonzero(values >= goal)
    if not len(reached):
        return Reached(None, float(at[-1]))
    first = int(reached[0])
    if not first:
        return Reached(float(at[0]), float(at[-1]))
    share = (goal - values[first - 1]) / (values[first] - values[first - 1])
    return Reached(float(at[first - 1] + share * (at[first] - at[first - 1])), float(at[-1]))


def _curve(interactions: Sequence[float], success: Sequence[float]) -> tuple[Floats, Floats]:
    at, values = np.asarray(interactions, np.float64), np.asarray(success, np.float64)
    if at.shape != values.shape or len(at) < 2 or (np.diff(at) <= 0).any():
        raise UsageError(
            "this is no learning curve",
            "give two points or more, by rising interactions, and a success for each",
        )
    return at, values
