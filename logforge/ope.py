"""Off-policy evaluation: fitted Q evaluation (FQE) of a policy on held-out episodes, with an episode bootstrap.

Q^π is fitted by regression on r + γ Q'(s', π(s')). The bootstrap is cut where an episode truly ended and goes on through
its final observation where the log was merely cut off. All bootstrap members are trained at once in one batched network,
each from its own start and on its own resample of whole episodes, so the interval covers the noise of the fit as well.
FQE says little about decisions the log never made: it overrates them more often than not (docs/design.md, §9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.optional import need
from logforge.schemas.errors import UsageError

if TYPE_CHECKING:
    import torch

    from logforge.shards import Shard

MIN_EPISODES: Final = 5
"""With fewer held-out episodes a bootstrap over episodes says nothing, so nothing is said."""
MEMBERS: Final = 20
UPDATES: Final = 600
HIDDEN: Final = 64
BATCH: Final = 1024
LEARNING_RATE: Final = 3e-3
TARGET_RATE: Final = 0.03
"""Share of the way the target network moves to the fitted one with each update."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Progress = Callable[[int, int, str], None]


class Estimate(NamedTuple):
    """A number with its 95 % interval, or the reason why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, float | str | None]:
        """The estimate as JSON data."""
        return self._asdict()


class Span(NamedTuple):
    """The returns that are possible."""

    low: float
    high: float


@dataclass(frozen=True)
class Trajectories:
    """The episodes of one split by row: transition i was decided at observation `rows[i]` and led to `rows[i] + 1`."""

    observations: NDArray[np.float32]
    masks: NDArray[np.bool_]
    actions: IntArray
    rewards: FloatArray
    returns_to_go: FloatArray
    terminals: NDArray[np.bool_]
    rows: IntArray
    episodes: IntArray
    starts: IntArray

    @classmethod
    def of(cls, shard: Shard) -> Trajectories:
        """The trajectories of a shard; an episode without a decision has no value to estimate and is left out."""
        lengths = np.diff(shard.episode_offsets)
        kept = np.flatnonzero(lengths)
        firsts = np.asarray(shard.observation_offsets[:-1], dtype=np.int64)
        episodes = np.repeat(np.arange(len(kept)), lengths[kept])
        steps = np.arange(len(episodes)) - np.repeat(np.cumsum(lengths[kept]) - lengths[kept], lengths[kept])
        return cls(
            observations=np.asarray(shard.observations, dtype=np.float32),
            masks=np.asarray(shard.masks, dtype=bool),
            actions=np.asarray(shard.actions, dtype=np.int64),
            rewards=np.asarray(shard.rewards, dtype=np.float64),
            returns_to_go=np.asarray(shard.returns, dtype=np.float64),
            terminals=np.asarray(shard.terminals, dtype=bool),
            rows=firsts[kept][episodes] + steps,
            episodes=episodes,
            starts=firsts[kept],
        )

    @property
    def count(self) -> int:
        """How many episodes there are."""
        return len(self.starts)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which episodes truly ended."""
        ended = np.zeros(self.count, dtype=bool)
        ended[self.episodes[self.terminals]] = True
        return ended

    @property
    def needed(self) -> IntArray:
        """The observations at which FQE has to know what the policy would do."""
        return np.union1d(self.starts, self.rows[~self.terminals] + 1)

    @property
    def returns(self) -> FloatArray:
        """The discounted return of each episode as logged; that of a truncated one is only a part."""
        return self.returns_to_go[self.rows == self.starts[self.episodes]]


def refusal(held: Trajectories) -> str:
    """Why no value can be estimated from these episodes; empty when it can."""
    if held.count < MIN_EPISODES:
        return f"only {held.count} held-out episodes, {MIN_EPISODES} are needed"
    if not held.complete.any():
        return "no held-out episode is complete"
    return ""


def possible_returns(
    rewards: FloatArray,
    terminals: NDArray[np.bool_],
    gamma: float,
    seen: tuple[float, float] | None = None,
) -> Span:
    """The range a return can lie in: a step that goes on can be repeated for ever, one that ends is paid once.

    Where that is far wider than the returns `seen` in the train split, the seen range stretched by its own width on both
    sides is the bound.
    """
    lows, highs = [], []
    if terminals.any():
        lows.append(float(rewards[terminals].min()))
        highs.append(float(rewards[terminals].max()))
    if not terminals.all():
        lows.append(_for_ever(float(rewards[~terminals].min()), gamma))
        highs.append(_for_ever(float(rewards[~terminals].max()), gamma))
    if not lows:
        raise UsageError("there are no transitions to bound returns with")
    low, high = min(lows), max(highs)
    if seen is not None:
        width = max(seen[1] - seen[0], abs(seen[0]), abs(seen[1]))
        low, high = max(low, seen[0] - width), min(high, seen[1] + width)
    return Span(low, high)


def _for_ever(reward: float, gamma: float) -> float:
    if gamma < 1:
        return reward / (1 - gamma)
    return float(np.copysign(np.inf, reward)) if reward else 0.0


def fitted_q_values(
    held: Trajectories,
    choices: NDArray[Any],
    *,
    action_size: int,
    gamma: float,
    span: Span,
    members: int = MEMBERS,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Progress | None = None,
) -> FloatArray:
    """The policy's value by FQE, one number per bootstrap member.

    `choices` holds the policy's action for each observation; only those at `held.needed` are looked at. Equal seeds give
    every policy the same resamples and the same starting weights, so that differences between policies are paired.
    """
    reason = refusal(held)
    if reason:
        raise UsageError(f"FQE cannot estimate a value: {reason}")
    if (choices[held.needed] < 0).any() or (choices[held.needed] >= action_size).any():
        raise UsageError("FQE needs a choice of the policy wherever an episode goes on")
    need("torch", "off-policy evaluation", "train")
    counts = resamples(held.count, members, seed)
    with one_thread():
        fit = _Fit(held, choices, counts, action_size, gamma, span, seed)
        for update in range(updates):
            fit.update()
            if progress is not None:
                progress(update + 1, updates, "fitting Q")
        starts = fit.start_values()
    return np.asarray((starts * counts).sum(axis=1) / counts.sum(axis=1), dtype=np.float64)


def resamples(episodes: int, members: int, seed: int) -> IntArray:
    """How often each member draws each episode [members, episodes]; it depends on nothing but the three numbers."""
    chances = np.full(episodes, 1 / episodes)
    return np.random.default_rng([seed, 1]).multinomial(episodes, chances, size=members)


def interval(values: FloatArray) -> Estimate:
    """Mean and 2.5–97.5 percentiles of the members' values."""
    low, high = np.percentile(values, [2.5, 97.5])
    return Estimate(float(values.mean()), float(low), float(high))


def bootstrap_mean(values: FloatArray, weights: FloatArray | None = None, *, seed: int = 0) -> Estimate:
    """The mean over episodes (weighted by their sizes, where given) with an episode bootstrap of 2,000 resamples."""
    sizes = np.ones(len(values)) if weights is None else weights
    if len(values) < MIN_EPISODES:
        return Estimate(None, reason=f"only {len(values)} episodes, {MIN_EPISODES} are needed")
    counts = resamples(len(values), 2000, seed)
    means = (counts @ (values * sizes)) / (counts @ sizes)
    low, high = np.percentile(means, [2.5, 97.5])
    return Estimate(float(np.average(values, weights=sizes)), float(low), float(high))


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, so that sums come in one order on any machine; the earlier count comes back after."""
    import torch

    earlier = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(earlier)


class _Batch(NamedTuple):
    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    goes_on: torch.Tensor
    next_observations: torch.Tensor
    next_choices: torch.Tensor
    weights: torch.Tensor


class _Fit:
    """The networks of all members, side by side: each parameter has the member as its first axis."""

    def __init__(
        self,
        held: Trajectories,
        choices: NDArray[Any],
        counts: IntArray,
        action_size: int,
        gamma: float,
        span: Span,
        seed: int,
    ) -> None:
        import torch

        self.gamma, self.span = gamma, span
        self.generator = torch.Generator().manual_seed(seed)
        sizes = (held.observations.shape[1], HIDDEN, HIDDEN, action_size)
        self.online = _network(sizes, len(counts), self.generator)
        self.target = [part.clone() for part in self.online]
        # Networks start near 0 and move in steps of the learning rate: they fit returns in units of their spread.
        self.centre = float(held.returns_to_go.mean())
        self.scale = float(held.returns_to_go.std()) or 1.0
        self.optimiser = torch.optim.Adam([part.requires_grad_() for part in self.online], lr=LEARNING_RATE)
        self.rows = _rows(held, choices, counts)
        self.starts = torch.from_numpy(held.observations[held.starts])
        self.first = torch.from_numpy(np.asarray(choices[held.starts], dtype=np.int64))

    def update(self) -> None:
        """One step of regression on the target network's one-step return."""
        import torch

        batch = self._batch()
        with torch.no_grad():
            follow = self._q(self.target, batch.next_observations, batch.next_choices)
            goal = (batch.rewards + self.gamma * batch.goes_on * follow).clamp(*self.span)
        guess = self._q(self.online, batch.observations, batch.actions)
        loss = (batch.weights * ((guess - goal) / self.scale) ** 2).mean(dim=1).sum()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            for slow, fast in zip(self.target, self.online, strict=True):
                slow.lerp_(fast, TARGET_RATE)

    def start_values(self) -> FloatArray:
        """Q(s0, π(s0)) of each member and episode; the target network, an average over updates, is the calmer one."""
        import torch

        with torch.no_grad():
            values = self._q(self.target, self.starts, self.first).clamp(*self.span)
        return np.asarray(values.numpy(), dtype=np.float64)

    def _q(self, network: list[torch.Tensor], inputs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        scores = _forward(network, inputs)
        picked = scores.gather(2, actions.expand(len(scores), -1)[:, :, None])[:, :, 0]
        return self.centre + self.scale * picked

    def _batch(self) -> _Batch:
        import torch

        size = len(self.rows.rewards)
        if size <= BATCH:
            return self.rows
        picked = torch.randint(size, (BATCH,), generator=self.generator)
        *parts, weights = self.rows
        return _Batch(*(part[picked] for part in parts), weights[:, picked])


def _network(sizes: tuple[int, ...], members: int, generator: torch.Generator) -> list[torch.Tensor]:
    import torch

    parts = []
    for inputs, outputs in pairwise(sizes):
        bound = inputs**-0.5
        for shape in ((members, inputs, outputs), (members, 1, outputs)):
            parts.append((torch.rand(shape, generator=generator) * 2 - 1) * bound)
    return parts


def _forward(network: list[torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    """Scores [members, rows, actions] of inputs [rows, features]."""
    import torch

    hidden = torch.matmul(inputs, network[0]) + network[1]
    for weight, bias in zip(network[2::2], network[3::2], strict=True):
        hidden = torch.baddbmm(bias, torch.relu(hidden), weight)
    return hidden


def _rows(held: Trajectories, choices: NDArray[Any], counts: IntArray) -> _Batch:
    import torch

    weights = counts[:, held.episodes]
    return _Batch(
        observations=torch.from_numpy(held.observations[held.rows]),
        actions=torch.from_numpy(held.actions),
        rewards=torch.from_numpy(held.rewards.astype(np.float32)),
        goes_on=torch.from_numpy((~held.terminals).astype(np.float32)),
        next_observations=torch.from_numpy(held.observations[held.rows + 1]),
        # After a true end nothing is chosen; any id will do, its value is multiplied by 0.
        next_choices=torch.from_numpy(np.where(held.terminals, 0, choices[held.rows + 1]).astype(np.int64)),
        weights=torch.from_numpy((weights / weights.mean(axis=1, keepdims=True)).astype(np.float32)),
    )
