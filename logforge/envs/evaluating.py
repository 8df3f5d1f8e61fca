"""What a policy is worth in a world: many episodes whose random numbers are the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logforge.core import Estimate, difference, share
from logforge.envs.behaviour import part
from logforge.envs.catalogue import make
from logforge.envs.episodes import Rollout, draws
from logforge.envs.it_ops import APPLIED, CHECKED
from logforge.envs.rollout import Policy, roll, seeing
from logforge.envs.wording import Script, script
from logforge.envs.world import Bools, Floats, World
from logforge.schemas import Mismatch


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
    def success(self) -> Estimate:
        """The share of successes."""
        return share(_one(self.successes))

    def minus(self, other: Evaluation) -> Estimate:
        """The difference of the shares of successes, episode by episode. Raises Mismatch unless they are the same episodes."""
        if (self.seed, len(self.successes)) != (other.seed, len(other.successes)):
            mine, theirs = (f"{len(e.successes)} episodes of seed {e.seed}" for e in (self, other))
            raise Mismatch(
                "evaluations to be compared", mine, theirs, "evaluate both with one seed and one number"
            )
        return difference(_one(self.successes), _one(other.successes))

    @property
    def mean_steps(self) -> float:
        """The mean length of successful episodes; NaN when there is none."""
        lengths = self.rollout.lengths[self.successes]
        return float(lengths.mean()) if len(lengths) else float("nan")


def _one(happened: Bools) -> Floats:
    """As one policy's episodes."""
    return happened.astype(np.float64)[None]


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


def checked_restarts(run: Rollout) -> Estimate:
    """`it-ops`: of the restarts before any other fix, the share that had looked at the status first."""
    restarts = run.actions == run.world.actions.index("restart_service")
    before = run.states[:, :-1]
    first = restarts & (before[:, :, APPLIED] == 0)
    looked = (before[:, :, CHECKED] > 0)[first]
    return (
        share(_one(looked))
        if len(looked)
        else Estimate(None, reason="nothing was restarted before another fix")
    )
