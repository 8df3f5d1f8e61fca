"""Off-policy evaluation: fitted Q evaluation (FQE) of a policy on held-out episodes, with an episode bootstrap.

Q^π is fitted by regression on r + γ Q'(s', π(s')). The bootstrap is cut where an episode truly ended and goes on through
its final observation where the log was merely cut off. All bootstrap members are trained at once in one batched network,
each from its own start and on its own resample of whole episodes, so the interval covers the noise of the fit as well.
FQE is a guess wherever the policy does what the log never did, and there it tends to be too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.arrays import SplitArrays
from logforge.networks import forward, make_network
from logforge.optional import need
from logforge.progress import Tick
from logforge.schemas.errors import Mismatch, UsageError

if TYPE_CHECKING:
    import torch

MIN_EPISODES: Final = 5
"""With fewer independent held-out episodes (split groups) a bootstrap over them says nothing, so nothing is said."""
MEMBERS: Final = 20
UPDATES: Final = 300
"""Of one round. Rounds follow each other until the value stays; a policy that goes round in circles takes the most."""
ROUNDS: Final = 6
HIDDEN: Final = 64
BATCH: Final = 512
LEARNING_RATE: Final = 3e-3
TARGET_RATE: Final = 0.5
"""Share of the way the target network moves to the fitted one with each update."""
SETTLED: Final = 0.1
"""A value that moves by no more than this share of the returns' spread from one round to the next has settled."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Estimate(NamedTuple):
    """A number with its 95 % interval, or the reason why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


class Span(NamedTuple):
    """The range that returns can lie in."""

    low: float
    high: float


class Fitted(NamedTuple):
    """FQE's answer: the policy's value by bootstrap member, and how far their mean moved in the last round."""

    values: FloatArray
    drift: float
    tolerance: float

    @property
    def unsettled(self) -> str:
        """Why the values are no estimate; empty when they are."""
        if abs(self.drift) <= self.tolerance:
            return ""
        return f"the fit did not settle (the value still moved by {self.drift:+.2g}); more updates may help"

    def estimate(self) -> Estimate:
        """Mean of the members and its 95 % interval."""
        return Estimate(None, reason=self.unsettled) if self.unsettled else interval(self.values)


class QValues(NamedTuple):
    """Q of every action for each observation [N + E, A], the mean of the members; `drift` and `tolerance` as in `Fitted`."""

    q: FloatArray
    drift: float
    tolerance: float

    @property
    def unsettled(self) -> str:
        """Why the values are weak; empty when the fit has settled."""
        return Fitted(self.q, self.drift, self.tolerance).unsettled


def refusal(held: SplitArrays) -> str:
    """Why no value can be estimated from these episodes; empty when it can."""
    groups = len(np.unique(held.groups))
    if groups < MIN_EPISODES:
        return f"only {groups} independent held-out episodes (split groups), {MIN_EPISODES} are needed"
    return "" if held.terminals.any() else "no held-out episode is complete"


def possible_returns(
    rewards: NDArray[Any], terminals: NDArray[np.bool_], gamma: float, seen: tuple[float, float] | None = None
) -> Span:
    """The range a return can lie in: a step that goes on may be repeated for ever, one that ends is paid once.

    Upwards the returns `seen` in the train split bind as well, stretched by their own width: a Q that runs away runs up.
    Downwards they bind only without discounting: a policy that goes round in circles is worse than any log.
    """
    bounds = [float(pick(rewards[terminals])) for pick in (np.min, np.max) if terminals.any()]
    bounds += [
        _for_ever(float(pick(rewards[~terminals])), gamma) for pick in (np.min, np.max) if not terminals.all()
    ]
    if not bounds:
        raise UsageError("there are no transitions to bound returns with", "name a split that holds some")
    low, high = min(bounds), max(bounds)
    if seen is not None:
        width = max(seen[1] - seen[0], abs(seen[0]), abs(seen[1]))
        low, high = low if np.isfinite(low) else seen[0] - width, min(high, seen[1] + width)
    return Span(low, high)


def _for_ever(reward: float, gamma: float) -> float:
    if gamma < 1:
        return reward / (1 - gamma)
    return float(np.copysign(np.inf, reward)) if reward else 0.0


def needed_rows(held: SplitArrays) -> IntArray:
    """The observations at which FQE has to know what the policy would do."""
    follow = held.observation_rows[~held.terminals] + 1
    return np.union1d(held.observation_offsets[:-1], follow).astype(np.int64)


def fitted_q(
    held: SplitArrays,
    choices: NDArray[Any],
    *,
    gamma: float,
    span: Span,
    members: int = MEMBERS,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> Fitted:
    """The policy's value by FQE.

    `choices` holds the policy's action for each observation; only those of `needed_rows` are looked at. Equal seeds give
    every policy the same resamples and the same starting weights, so that differences between policies are paired.
    """
    asked = choices[needed_rows(held)]
    _refuse(held)
    if (asked < 0).any() or (asked >= held.action_size).any():
        remedy = "give one valid action id per transition"
        raise UsageError("FQE needs a choice of the policy wherever an episode goes on", remedy)
    with _settled(held, choices, gamma, span, members, updates, seed, progress) as (fit, drift):
        return Fitted(fit.values(), drift, SETTLED * fit.scale)


def q_values(
    data: SplitArrays,
    chances: NDArray[Any],
    observations: NDArray[np.float32],
    *,
    gamma: float,
    span: Span,
    members: int = MEMBERS,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> QValues:
    """Q^π of all actions at `observations`, fitted by FQE on `data`.

    `chances` [N + E, A] are π's probabilities at the observations of `data`. Raises UsageError where FQE has too little.
    """
    _refuse(data)
    if chances.shape != data.masks.shape:
        expected, remedy = (
            list(data.masks.shape),
            "give the policy's chances at every observation of the data",
        )
        raise Mismatch("chances", expected, list(chances.shape), remedy)
    with _settled(data, chances, gamma, span, members, updates, seed, progress) as (fit, drift):
        return QValues(fit.all_actions(observations), drift, SETTLED * fit.scale)


def _refuse(held: SplitArrays) -> None:
    if reason := refusal(held):
        raise UsageError(f"FQE cannot estimate a value: {reason}", "ingest more episodes and build again")


@contextmanager
def _settled(
    held: SplitArrays,
    choices: NDArray[Any],
    gamma: float,
    span: Span,
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> Iterator[tuple[_Fit, float]]:
    """A fit that has gone on until its value stays, or for all its rounds, and how far the last round moved it."""
    need("torch", "train")
    with one_thread():
        fit = _Fit(held, choices, resamples(held.groups, members, seed), gamma, span, seed)
        values, drift = fit.values(), np.inf
        for number in range(ROUNDS):
            fit.round(updates, _from(progress, number * updates, ROUNDS * updates))
            values, earlier = fit.values(), values
            drift = float(values.mean() - earlier.mean())
            if number and abs(drift) <= SETTLED * fit.scale:
                break
        yield fit, drift


def _from(progress: Tick | None, start: int, total: int) -> Callable[[int], None]:
    if progress is None:
        return lambda done: None
    return lambda done: progress(start + done, total, "fitting Q")


def resamples(groups: NDArray[Any], members: int, seed: int) -> IntArray:
    """How often each member draws each episode [members, episodes].

    Whole groups are drawn: trials of one task are no independent episodes. It depends on the grouping and the seed alone.
    """
    owner = np.unique(groups, return_inverse=True)[1]
    count = int(owner.max()) + 1 if len(owner) else 0
    chances = np.full(count, 1 / max(count, 1))
    drawn = np.random.default_rng([seed, 1]).multinomial(count, chances, size=members).astype(np.int64)
    expanded: IntArray = drawn[:, owner]
    return expanded


def interval(values: FloatArray) -> Estimate:
    """Mean of bootstrap members and the 95 % interval by Student's t: percentiles of a few members are far too narrow."""
    from scipy.stats import t

    members = len(values)
    spread = float(values.std(ddof=1)) * float(np.sqrt(1 + 1 / members))
    half = float(t.ppf(0.975, members - 1)) * spread
    centre = float(values.mean())
    return Estimate(centre, centre - half, centre + half)


def bootstrap_mean(values: NDArray[Any], groups: NDArray[Any] | None = None, *, seed: int = 0) -> Estimate:
    """The mean of `values`, with the interval of a bootstrap over groups (2,000 resamples of whole groups).

    `groups` says which group each value belongs to; without it each value is one of its own.
    """
    owners = np.arange(len(values)) if groups is None else np.unique(groups, return_inverse=True)[1]
    sizes, sums = np.bincount(owners), np.bincount(owners, values)
    if len(sizes) < MIN_EPISODES:
        return Estimate(None, reason=f"only {len(sizes)} independent episodes, {MIN_EPISODES} are needed")
    counts = resamples(np.arange(len(sizes)), 2000, seed)
    low, high = np.percentile((counts @ sums) / (counts @ sizes), [2.5, 97.5])
    return Estimate(float(sums.sum() / sizes.sum()), float(low), float(high))


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


class _Rows(NamedTuple):
    """Transitions as tensors; `weights` [members, rows] is how often a member drew their episode."""

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    goes_on: torch.Tensor
    next_observations: torch.Tensor
    next_choices: torch.Tensor
    weights: torch.Tensor


class _Fit:
    """The networks of all members, side by side: each parameter has the member as its first axis.

    `choices` are the policy's action for each observation, or its chances of every action.
    """

    def __init__(
        self,
        held: SplitArrays,
        choices: NDArray[Any],
        counts: IntArray,
        gamma: float,
        span: Span,
        seed: int,
    ) -> None:
        import torch

        self.gamma, self.span, self.counts = gamma, span, counts
        self.generator = torch.Generator().manual_seed(seed)
        sizes = (held.observation_size, HIDDEN, HIDDEN, held.action_size)
        self.online = make_network(sizes, [self.generator] * len(counts))
        self.target = [part.clone() for part in self.online]
        # Networks start near 0 and move in steps of the learning rate: they fit returns in units of their spread.
        self.centre = float(held.returns.mean())
        self.scale = float(held.returns.std()) or 1.0
        self.optimiser = torch.optim.Adam([part.requires_grad_() for part in self.online], lr=LEARNING_RATE)
        self.rows = _rows(held, choices, counts)
        first = held.observation_offsets[:-1]
        self.starts = torch.from_numpy(held.observations[first])
        self.first_choices = _choices(choices[first])

    def round(self, updates: int, tick: Callable[[int], None]) -> None:
        """Some updates with a falling learning rate: the last ones calm the values down."""
        for update in range(updates):
            self.optimiser.param_groups[0]["lr"] = LEARNING_RATE * (1 - 0.99 * update / updates)
            self.update()
            tick(update + 1)

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
            torch._foreach_lerp_(self.target, self.online, TARGET_RATE)

    def values(self) -> FloatArray:
        """Each member's mean of Q(s0, π(s0)) over its resample, by the target network: an average over updates."""
        import torch

        with torch.no_grad():
            starts = self._q(self.target, self.starts, self.first_choices).clamp(*self.span)
        drawn = starts.numpy().astype(np.float64) * self.counts
        return np.asarray(drawn.sum(axis=1) / self.counts.sum(axis=1))

    def _q(self, network: list[torch.Tensor], inputs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        scores = forward(network, inputs)
        if actions.dim() == 2:  # chances: what the policy's draw is worth on average
            picked = (scores * actions).sum(dim=2)
        else:
            picked = scores.gather(2, actions.expand(len(scores), -1)[:, :, None])[:, :, 0]
        return self.centre + self.scale * picked

    def all_actions(self, observations: NDArray[np.float32]) -> FloatArray:
        """The members' mean Q of every action, by the target network."""
        import torch

        with torch.no_grad():
            parts = [
                forward(self.target, torch.from_numpy(np.array(part))).mean(dim=0)
                for part in np.array_split(observations, max(1, len(observations) // 4096))
            ]
            found = (self.centre + self.scale * torch.cat(parts)).clamp(*self.span)
        values: FloatArray = found.numpy().astype(np.float64)
        return values

    def _batch(self) -> _Rows:
        import torch

        size = len(self.rows.rewards)
        if size <= BATCH:
            return self.rows
        picked = torch.randint(size, (BATCH,), generator=self.generator)
        *parts, weights = self.rows
        return _Rows._make([*(part[picked] for part in parts), weights[:, picked]])


def _rows(held: SplitArrays, choices: NDArray[Any], counts: IntArray) -> _Rows:
    import torch

    weights = counts[:, held.episode_index]
    rows = held.observation_rows
    return _Rows(
        observations=torch.from_numpy(held.observations[rows]),
        actions=torch.from_numpy(held.actions.astype(np.int64)),
        rewards=torch.from_numpy(held.rewards.astype(np.float32)),
        goes_on=torch.from_numpy((~held.terminals).astype(np.float32)),
        next_observations=torch.from_numpy(held.observations[rows + 1]),
        # After a true end nothing is chosen; any id will do, its value is multiplied by 0.
        next_choices=_choices(_where_it_goes_on(held, choices[rows + 1])),
        weights=torch.from_numpy((weights / weights.mean(axis=1, keepdims=True)).astype(np.float32)),
    )


def _where_it_goes_on(held: SplitArrays, choices: NDArray[Any]) -> NDArray[Any]:
    over = held.terminals if choices.ndim == 1 else held.terminals[:, None]
    return np.where(over, 0, choices)


def _choices(choices: NDArray[Any]) -> torch.Tensor:
    """Action ids [rows], or chances [rows, actions]."""
    import torch

    return torch.from_numpy(np.asarray(choices, dtype=np.int64 if choices.ndim == 1 else np.float32))
