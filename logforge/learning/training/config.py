"""The settings of a training run, and what every backend gives back on the way. Loads nothing heavy: the command line reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from logforge.core import option
from logforge.schemas import UnknownName, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logforge.learning.policies import PolicyBundle
    from logforge.shards import Shard

Backend = Literal["torch", "d3rlpy"]
BACKENDS: Final[tuple[str, ...]] = get_args(Backend)
D3RLPY_LEARNERS: Final = ("cql", "dqn", "bcq", "bc")
"""What the backend d3rlpy makes, by the names of `algo` (d3rlpy_backend.py)."""
BEHAVIOUR_PENALTY: Final = 0.01
"""On large logits of cloning. Without it a clone of few episodes grows sure of what it learnt by heart (validation
log-likelihood −5.0 against −2.4 on 27 tau-bench episodes, action match the same); d3rlpy's default of 0.5 evens all chances
out."""
ONE_HEAD, TWO_HEADS = "tool", "tool+template"
_GOLDEN_ROWS = 5
_TEXTS = "text_q"


def algorithms(backend: str) -> tuple[str, ...]:
    """What a backend can train."""
    if backend == "d3rlpy":
        return D3RLPY_LEARNERS
    from logforge.learning.training.learners import LEARNERS

    return tuple(LEARNERS)


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run. CQL's are the preset that was measured (docs/design.md, §9).

    `members` policies are trained of each learner, with the seeds from `seed` on. `anneal` lets the learning rate fall to 0 in
    a straight line, and `target_rate` is the share by which target networks follow in an update (both torch alone).
    `threshold` is BCQ's, `expectile` and `beta` are IQL's. A run is measured
    at the end of each of `epochs` equal parts. `passes` above 0 sets the updates to so many passes over the train split.
    `clip_targets` keeps TD targets in the range of possible returns (torch alone). `gamma` and `step_cost` replace the
    dataset's discount and take something off every step's reward (logforge/learning/training/continual.py). `preset` is where the other
    settings came from (logforge/learning/training/presets.py).

    `heads` adds a second output over argument templates (template_head.py, torch alone). `warm_start` is a run or a policy of
    one to go on from, `ewc` and `kl` hold to it (`kl_target` lets `kl` follow the divergence), and `replay` is an earlier dataset of
    which `replay_share` of each batch is drawn (continual.py, torch alone).

    `policy_conditioned` gives the network over texts a vector of the policy that decided (policy_vectors.py).
    """

    algo: str = option(
        "cql",
        "cql, dqn, bcq, iql, bc or text_q (CQL over the texts of the actions); cloning is always trained beside it.",
    )
    backend: str = option(
        "torch", "torch: masked learners, all members at once. d3rlpy: its own, without masks in training."
    )
    seed: int = option(0, "Of the first member.")
    members: int = option(1, "Policies trained of each learner, one seed each.")
    updates: int = option(2000, "Gradient steps.")
    passes: float = option(0.0, "Instead of --updates: passes over the train split.", shown=False)
    epochs: int = option(10, "Parts of the run; each ends with a measurement.")
    batch_size: int = option(128)
    learning_rate: float = option(1e-3)
    alpha: float = option(1.0, "CQL's weight of conservatism.")
    threshold: float = option(0.3, "BCQ: an action competes above this share of the likeliest one's chance.")
    expectile: float = option(0.9, "IQL's.")
    beta: float = option(3.0, "IQL's weight of the advantage.")
    target_rate: float = option(0.005, "How fast target networks follow (torch).")
    anneal: bool = option(False, "Let the learning rate fall to 0 over the run (torch).", switch=True)
    hidden: tuple[int, ...] = (64, 64)
    clip_targets: bool = option(
        True, "Keep TD targets in the range of possible returns (torch).", switch=True
    )
    gamma: float | None = option(None, "Another discount than the dataset's.")
    step_cost: float = option(0.0, "Taken off the reward of every step.", shown=False)
    preset: str = option(
        "default",
        "Settings by name: default, sparse, sparse-text, article-a or article-a-text; options given beside it win.",
    )
    heads: str = option(
        ONE_HEAD,
        "Also choose among the argument templates of the tool (torch).",
        metavar="tool|tool+template",
    )
    warm_start: str | None = option(None, "A run, or a policy of one, to go on from (torch).", metavar="RUN")
    ewc: float = option(
        0.0, "Hold each weight to the earlier one as far as its data made it sure.", shown=False
    )
    kl: float = option(0.0, "Hold the choices to those of the earlier policy.", shown=False)
    kl_target: float | None = option(
        None, "Let --kl follow: doubled above this divergence (nats), halved below."
    )
    replay: str | None = option(None, "An earlier dataset to draw from too (torch).", metavar="DATASET")
    replay_share: float = option(0.2, "Of each batch.")
    policy_conditioned: bool = option(
        False, "text_q: also tell the policies of the log apart, by their fingerprints.", switch=True
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.backend not in BACKENDS:
            raise UnknownName("backend", self.backend, BACKENDS)
        if self.algo not in (known := algorithms(self.backend)):
            raise UnknownName(f"algorithm of the backend {self.backend}", self.algo, known)
        wrong = {
            "updates": self.updates < 1,
            "passes": not 0 <= self.passes < inf,
            "epochs": self.epochs < 1,
            "gamma": self.gamma is not None and not 0 < self.gamma <= 1,
            "step_cost": not isfinite(self.step_cost),
            "members": self.members < 1,
            "batch_size": self.batch_size < 1,
            "learning_rate": not 0 < self.learning_rate < inf,
            "alpha": not 0 <= self.alpha < inf,
            "threshold": not 0 < self.threshold < 1,
            "expectile": not 0 < self.expectile < 1,
            "beta": not 0 < self.beta < inf,
            "target_rate": not 0 < self.target_rate <= 1,
            "hidden": not self.hidden or min(self.hidden) < 1,
            "ewc": not 0 <= self.ewc < inf,
            "kl": not 0 <= self.kl < inf,
            "kl_target": self.kl_target is not None and not 0 < self.kl_target < inf,
            "replay_share": not 0 <= self.replay_share < 1,
            "seed": not 0 <= self.seed <= 2**32 - max(1, self.members),
        }
        for name in (name for name, bad in wrong.items() if bad):
            remedy = "give a number above 0 and below 1" if name in _SHARES else "give a positive number"
            raise UsageError(f"{name} = {getattr(self, name)} cannot be", remedy)
        self._check_going_on()
        self._check_texts()

    def _check_going_on(self) -> None:
        if self.heads not in (ONE_HEAD, TWO_HEADS):
            raise UnknownName("choice of heads", self.heads, (ONE_HEAD, TWO_HEADS))
        for name in ("ewc", "kl"):
            if getattr(self, name) and self.warm_start is None:
                raise UsageError(
                    f"{name} holds a policy to an earlier one, and none is given", "give --warm-start"
                )
        if self.kl_target is not None and not self.kl:
            raise UsageError(
                "kl_target says how far a policy may go, and nothing holds it", "give --kl to begin with"
            )
        asked = {"warm_start": self.warm_start, "replay": self.replay, "heads": self.heads != ONE_HEAD}
        for name in (name for name, given in asked.items() if given and self.backend != "torch"):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"the backend {self.backend} has no {option}", "leave out --backend")

    def _check_texts(self) -> None:
        """A network over texts has one output, and first-layer columns that no other policy has."""
        if self.algo != _TEXTS and self.policy_conditioned:
            raise UsageError(f"{self.algo} knows no policies' vectors", f"give --algo {_TEXTS}")
        asked = {"warm-start": self.warm_start is not None, "heads": self.heads != ONE_HEAD}
        asked["replay"] = self.policy_conditioned and self.replay is not None
        for name in (name for name, given in asked.items() if given and self.algo == _TEXTS):
            what = "conditioned on policies has" if name == "replay" else "has"
            raise UsageError(f"{_TEXTS} {what} no --{name}", f"leave out --{name}, or give another --algo")

    @property
    def seeds(self) -> tuple[int, ...]:
        """One per member."""
        return tuple(range(self.seed, self.seed + self.members))

    @property
    def clips(self) -> bool:
        """Whether TD targets stay in the range of possible returns."""
        return self.clip_targets and self.backend == "torch"

    def sized(self, transitions: int) -> TrainConfig:
        """With the updates that so many passes over a split of this size take; as it is where none are asked for."""
        if not self.passes:
            return self
        return replace(self, updates=max(1, ceil(self.passes * transitions / self.batch_size)))


_SHARES = frozenset({"threshold", "expectile", "target_rate"})


class Point(NamedTuple):
    """A member at the end of an epoch: its mean losses since the last one, and the policy as it is."""

    seed: int
    epoch: int
    update: int
    losses: dict[str, float]
    bundle: PolicyBundle


def epoch_of(update: int, config: TrainConfig) -> int:
    """The epoch that this update ends, from 1 on; 0 for an update in the middle of one."""
    before, after = ((count * config.epochs) // config.updates for count in (update - 1, update))
    return after if after > before else 0


def golden_rows(shard: Shard) -> NDArray[Any]:
    """Observations [rows, features] by which a saved policy proves that it was loaded as it was."""
    import numpy as np

    rows = np.unique(np.linspace(0, len(shard.observations) - 1, _GOLDEN_ROWS).astype(int))
    return np.array(shard.observations[rows], dtype=np.float32)
