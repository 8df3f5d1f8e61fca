"""What a policy is worth in a world: many episodes whose random numbers are the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from logforge.envs import make
from logforge.envs.behaviour import part
from logforge.envs.it_ops import APPLIED, CHECKED
from logforge.envs.rollout import Policy, Rollout, draws, roll, seeing
from logforge.envs.wording import Script, script
from logforge.envs.world import Bools, Floats, World
from logforge.schemas.errors import Mismatch

_Z = 1.96


class Interval(NamedTuple):
    """A mean and its 95 % interval (normal approximation over independent episodes)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Evaluation:
    """Per episode: `successes` and `returns` (the discounted ±1 of the end), shape (n,). `rollout` holds the episodes whole."""

    rollout: Rollout
    gamma: float
    seed: int

    @property
    def successes(self) -> Bools:
        """Which episodes succeeded."""
        return self.rollout.successes

    @property
    def returns(self) -> Floats:
        """The return of each episode from its first step."""
        return self.rollout.returns(self.gamma)

    @property
    def success(self) -> Interval:
        """The share of successes."""
        return interval(self.successes.astype(np.float64))

    def minus(self, other: Evaluation) -> Interval:
        """The difference of the shares of successes, episode by episode. Raises Mismatch unless they are the same episodes."""
        if (self.seed, len(self.successes)) != (other.seed, len(other.successes)):
            mine, theirs = (f"{len(e.successes)} episodes of seed {e.seed}" for e in (self, other))
            raise Mismatch(
                "evaluations to be compared", mine, theirs, "evaluate both with one seed and one number"
            )
        return interval(self.successes.astype(np.float64) - other.successes)

    @property
    def mean_steps(self) -> float:
        """The mean length of successful episodes; NaN when there is none."""
        lengths = self.rollout.lengths[self.successes]
        return float(lengths.mean()) if len(lengths) else float("nan")


def interval(values: Floats) -> Interval:
    """The mean of independent values with its 95 % interval."""
    mean = float(values.mean())
    half = _Z * float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else float("inf")
    return Interval(mean, mean - half, mean + half)


def evaluate_policy(
    world: str | World,
    policy: Policy | str,
    episodes: int = 1000,
    seed: int = 0,
    *,
    gamma: float = 1.0,
    held_out: bool = False,
) -> Evaluation:
    """Play `episodes` of a policy (or of a behaviour's part by name), all at once.

    Two policies with one seed meet the same problems and the same luck: use `Evaluation.minus`. A policy that reads text
    gets it from `View.messages` and `View.episodes`, with `held_out` in wordings that no log has.
    """
    place = make(world) if isinstance(world, str) else world
    acting = seeing(part(policy)) if isinstance(policy, str) else policy
    told: Script = script(place.name, episodes, seed, held_out)
    return Evaluation(roll(place, acting, draws(episodes, seed), script=told), gamma, seed)


def checked_restarts(run: Rollout) -> Interval:
    """`it-ops`: of the restarts before any other fix, the share that had looked at the status first. NaN without any."""
    restarts = run.actions == run.world.actions.index("restart_service")
    before = run.states[:, :-1]
    first = restarts & (before[:, :, APPLIED] == 0)
    looked = (before[:, :, CHECKED] > 0)[first].astype(np.float64)
    return interval(looked) if len(looked) else Interval(*[float("nan")] * 3)
