"""Returns to go: G_t = r_t + γ_t G_{t+1}, exact at any length and γ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from logforge.core import Span
from logforge.schemas import UsageError

Floats = npt.NDArray[np.float64]
Offsets = npt.NDArray[np.int64]

USUAL: Final = 0.9
"""Discounts and λ of practice lie from here to 1."""


def returns_to_go(rewards: Floats, offsets: Offsets, gamma: float | Floats) -> Floats:
    """The discounted sum of rewards from each step to its episode's end.

    Episode i is `rewards[offsets[i]:offsets[i + 1]]`. `gamma` is one discount, or one for each step (see `time_discounts`).
    The additions are those of the recursion itself, in its order. A NaN reward makes the episode's earlier returns NaN.
    """
    check_cuts(rewards, offsets)
    discounts = as_discounts(gamma, len(rewards))
    returns = np.empty(len(rewards), dtype=np.float64)
    carry = np.zeros(len(offsets) - 1, dtype=np.float64)
    for rows in last_to_first(offsets):
        carry = rewards[rows] + discounts[rows] * carry[: len(rows)]
        returns[rows] = carry
    return returns


def last_to_first(offsets: Offsets) -> Iterator[Offsets]:
    """The steps of all episodes in lock step: the last step of each, then the one before it of those that have one, …

    Longer episodes come first, so the episodes of a turn are the first of those of the turn before it.
    """
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    longest_first, ends = lengths[order], offsets[1:][order]
    # how many episodes have at least k steps, for every k
    alive = np.searchsorted(-longest_first, -np.arange(1, lengths.max(initial=0) + 1), side="right")
    for back, count in enumerate(alive.tolist(), 1):
        yield ends[:count] - back


def unusual(name: str, value: float) -> str:
    """That a discount, or λ, lies below what is usual ([0.9, 1]; no more than 1 is allowed); empty where it does not."""
    if value >= USUAL:
        return ""
    steps = 1 / (1 - value)
    return f"{name} {value:g} lies outside [{USUAL:g}, 1]: what comes more than about {steps:.0f} steps later hardly counts"


def time_discounts(gamma: float, seconds: Floats, unit_s: float) -> Floats:
    """γ^(Δt/unit): one discount for each step, `seconds` after which the next decision was taken. NaN counts as one unit."""
    if not unit_s > 0 or (seconds < 0).any():
        raise UsageError(
            "a time or its unit is negative", "seconds are at least 0, and the unit lies above 0"
        )
    units = np.where(np.isnan(seconds), 1.0, seconds / unit_s)
    return as_discounts(gamma, len(seconds)) ** units


def as_discounts(gamma: float | Floats, count: int) -> Floats:
    """One discount for each of `count` steps. Raises UsageError outside (0, 1]."""
    discounts = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (count,))
    if not np.all((np.asarray(gamma) > 0) & (np.asarray(gamma) <= 1)):
        raise UsageError(f"gamma is {gamma}", "it lies in (0, 1]")
    return discounts


def check_cuts(rewards: Floats, offsets: Offsets) -> None:
    """Raise UsageError when `offsets` do not cut the steps into episodes."""
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(rewards) or (np.diff(offsets) < 0).any():
        raise UsageError(
            "offsets do not cut the rewards into episodes", "they rise from 0 to the number of rewards"
        )


def possible_returns(
    rewards: NDArray[Any],
    terminals: NDArray[np.bool_],
    timeouts: NDArray[np.bool_],
    gamma: float,
    seen: tuple[float, float] | None = None,
) -> Span:
    """The range a return can lie in: a step that goes on may be repeated for ever, one that ends is paid once.

    What a cut-off episode's last step pays may hang on its being the last (`at: end`), so it is paid once, and followed by
    anything. Upwards the returns `seen` in the train split bind as well, stretched by their own width: a Q that runs away runs
    up. Downwards they bind only without discounting: a policy that goes round in circles is worse than any log.
    """
    if not len(rewards):
        raise UsageError("there are no transitions to bound returns with", "name a split that holds some")
    cut = timeouts if not timeouts.all() else np.zeros_like(timeouts)  # with nothing else, they stand for all
    going_on = rewards[~(terminals | cut)]
    bounds = [*_extremes(rewards[terminals]), *(_for_ever(one, gamma) for one in _extremes(going_on))]
    low, high = min(bounds), max(bounds)
    if cut.any():
        least, most = _extremes(rewards[cut])
        low, high = min(low, least + gamma * low), max(high, most + gamma * high)
    if seen is not None:
        width = max(seen[1] - seen[0], abs(seen[0]), abs(seen[1]))
        low, high = low if np.isfinite(low) else seen[0] - width, min(high, seen[1] + width)
    return Span(low, high)


def _extremes(rewards: NDArray[Any]) -> tuple[float, ...]:
    return (float(rewards.min()), float(rewards.max())) if len(rewards) else ()


def _for_ever(reward: float, gamma: float) -> float:
    if gamma < 1:
        return reward / (1 - gamma)
    return float(np.copysign(np.inf, reward)) if reward else 0.0
