"""The settings of a training run, and what every backend gives back on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from logforge.policy import PolicyBundle
from logforge.schemas.errors import UnknownName, UsageError
from logforge.shards import Shard

Backend = Literal["torch", "d3rlpy"]
BACKENDS: Final[tuple[str, ...]] = get_args(Backend)
ALGORITHMS: Final = {"torch": ("cql", "dqn", "bcq", "iql", "bc"), "d3rlpy": ("cql", "dqn", "bcq", "bc")}
"""What each backend can train."""
BEHAVIOUR_PENALTY: Final = 0.01
"""On large logits of cloning. Without it a clone of few episodes grows sure of what it learnt by heart (validation
log-likelihood −5.0 against −2.4 on 27 tau-bench episodes, action match the same); d3rlpy's default of 0.5 evens all chances
out."""
_POINTS = 10
_GOLDEN_ROWS = 5


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run. CQL's are the preset that was measured (docs/design.md, §9).

    `members` policies are trained of each learner, with the seeds from `seed` on. `target_rate` is the share by which
    target networks follow in an update (torch alone). `threshold` is BCQ's, `expectile` and `beta` are IQL's.
    """

    algo: str = "cql"
    backend: str = "torch"
    seed: int = 0
    members: int = 1
    updates: int = 2000
    batch_size: int = 128
    learning_rate: float = 1e-3
    alpha: float = 1.0
    threshold: float = 0.3
    expectile: float = 0.9
    beta: float = 3.0
    target_rate: float = 0.005
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.backend not in BACKENDS:
            raise UnknownName("backend", self.backend, BACKENDS)
        if self.algo not in ALGORITHMS[self.backend]:
            raise UnknownName(f"algorithm of the backend {self.backend}", self.algo, ALGORITHMS[self.backend])
        wrong = {
            "updates": self.updates < 1,
            "members": self.members < 1,
            "batch_size": self.batch_size < 1,
            "learning_rate": not 0 < self.learning_rate < np.inf,
            "alpha": not 0 <= self.alpha < np.inf,
            "threshold": not 0 < self.threshold < 1,
            "expectile": not 0 < self.expectile < 1,
            "beta": not 0 < self.beta < np.inf,
            "target_rate": not 0 < self.target_rate <= 1,
            "hidden": not self.hidden or min(self.hidden) < 1,
            "seed": not 0 <= self.seed <= 2**32 - max(1, self.members),
        }
        for name in (name for name, bad in wrong.items() if bad):
            remedy = "give a number above 0 and below 1" if name in _SHARES else "give a positive number"
            raise UsageError(f"{name} = {getattr(self, name)} cannot be", remedy)

    @property
    def seeds(self) -> tuple[int, ...]:
        """One per member."""
        return tuple(range(self.seed, self.seed + self.members))


_SHARES = frozenset({"threshold", "expectile", "target_rate"})


class Point(NamedTuple):
    """A member at a point of its training: its mean losses since the last point, and the policy as it is."""

    seed: int
    update: int
    losses: dict[str, float]
    bundle: PolicyBundle


def is_point(update: int, updates: int) -> bool:
    """Ten times on the way, and at the end."""
    return update == updates or update % max(1, updates // _POINTS) == 0


def golden_rows(shard: Shard) -> NDArray[Any]:
    """Observations [rows, features] by which a saved policy proves that it was loaded as it was."""
    rows = np.unique(np.linspace(0, len(shard.observations) - 1, _GOLDEN_ROWS).astype(int))
    return np.array(shard.observations[rows], dtype=np.float32)
