"""What the checkpoints that a run keeps are worth: fitted Q evaluation on the validation split, with fewer members, updates and
episodes than `logforge evaluate` takes, in the run's own rewards and discount.

It costs CPU seconds, so it is done once, of the first member's policies; those that decide alike share one fit. It tells a run that
went wrong from one that went right. What a policy is worth is for `evaluate` to say, on episodes that chose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logforge.core import Estimate, intervals
from logforge.learning.ope import Fitted
from logforge.learning.ope import fqe as ope
from logforge.learning.policies import PolicyBundle
from logforge.learning.training.monitors import thinned
from logforge.shards import SplitArrays

MEMBERS: Final = 5
UPDATES: Final = 100
DECISIONS: Final = 250
EPISODES: Final = 40
"""Evenly spaced episodes with about so many decisions, and at least so many episodes, stand for a larger validation split."""
TRIAL: Final = 300
"""A run of fewer updates is a trial, and takes less time than its value would: none is fitted."""
NO_VALIDATION: Final = "there is no validation split"


def kept_values(
    policies: Mapping[str, PolicyBundle],
    train: SplitArrays,
    held: SplitArrays | None,
    *,
    gamma: float,
    seen: tuple[float, float] | None,
    updates: int,
) -> dict[str, Estimate]:
    """The value of each policy's first states with its 95 % interval, or the reason why there is none.

    `seen` is the range of the train split's returns, `updates` is how long the run was.
    """
    if held is None:
        return dict.fromkeys(policies, Estimate(None, reason=NO_VALIDATION))
    whole = held
    if held.size:
        held = thinned(held, max(DECISIONS / held.size, EPISODES / held.episode_count))
    if reason := _refusal(held, updates):
        return dict.fromkeys(policies, Estimate(None, reason=reason))
    span = ope.reachable(train, whole, gamma, seen)
    needed = ope.needed_rows(held)
    fits: dict[bytes, Fitted] = {}
    found = {}
    for name, policy in policies.items():
        choices = policy.choose(held.observations, held.masks)
        key = choices[needed].tobytes()
        if key not in fits:
            fits[key] = ope.fitted_q(held, choices, gamma=gamma, span=span, members=MEMBERS, updates=UPDATES)
        found[name] = intervals.within(fits[key].estimate(), span)
    return found


def _refusal(held: SplitArrays, updates: int) -> str:
    if updates < TRIAL:
        return f"a run of {updates} updates is a trial: from {TRIAL} on a value is fitted"
    return ope.refusal(held).replace("held-out", "validation")
