"""The networks of fitted Q evaluation: all bootstrap members side by side, and one step of regression.

Columns that the data's rows do not need are turned away first: rows of a text state are few beside their columns, so an
orthonormal basis of the rows holds all that they say in fewer numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import FloatArray, IntArray
from logforge.learning.policies import forward, make_network
from logforge.shards import SplitArrays

if TYPE_CHECKING:
    import torch

HIDDEN: Final = 64
BATCH: Final = 512
LEARNING_RATE: Final = 3e-3
TARGET_RATE: Final = 0.5
"""Share of the way the target network moves to the fitted one with each update."""
MOST_TURNED: Final = 10_000
"""Rows of more data fill their columns anyway."""
_RANK = 1e-4
"""A direction with a smaller singular value, beside the largest, is rounding."""


class OutOfBag(NamedTuple):
    """Q of each observation by the members that never drew its episode: their sum [N + E, A], and how many they are [E]."""

    sums: FloatArray
    counts: IntArray

    def q(self, held: SplitArrays) -> FloatArray:
        """Their mean [N + E, A]; 0 in an episode that every member drew."""
        many = np.repeat(self.counts, np.diff(held.observation_offsets))
        found: FloatArray = self.sums / np.maximum(many, 1)[:, None]
        return found

    def plus(self, other: OutOfBag) -> OutOfBag:
        """Those of two fits."""
        return OutOfBag(self.sums + other.sums, self.counts + other.counts)


class Decisions(NamedTuple):
    """What is asked of every member: V of M observations under a policy's `chances` [M, A], and Q of the `actions` taken at some
    of them (`rows`) [N]."""

    chances: NDArray[Any]
    rows: IntArray
    actions: NDArray[Any]


class ByMember(NamedTuple):
    """Each member's V of M observations [K, M], and its Q of N decisions [K, N]."""

    states: FloatArray
    taken: FloatArray


class Rows(NamedTuple):
    """Transitions as tensors: `places` and `next_places` are rows of the observations, `weights` [members, rows] is how often a
    member drew their episode."""

    places: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    goes_on: torch.Tensor
    next_places: torch.Tensor
    next_choices: torch.Tensor
    weights: torch.Tensor


class Fit:
    """The networks of all members, side by side: each parameter has the member as its first axis.

    `choices` are the policy's action for each observation, or its chances of every action.
    """

    def __init__(
        self,
        held: SplitArrays,
        choices: NDArray[Any],
        counts: IntArray,
        gamma: float,
        span: tuple[float, float],
        seed: int,
    ) -> None:
        import torch

        self.gamma, self.span, self.counts = gamma, span, counts
        self.generator = torch.Generator().manual_seed(seed)
        self.turn = _basis(held.observations)
        self.observed = self._seen(held.observations)
        sizes = (self.observed.shape[1], HIDDEN, HIDDEN, held.action_size)
        self.online = make_network(sizes, [self.generator] * len(counts))
        self.online[0] *= (sizes[0] / held.observation_size) ** 0.5  # begins as with all columns
        self.target = [part.clone() for part in self.online]
        # Networks start near 0 and move in steps of the learning rate: they fit returns in units of their spread.
        self.centre = float(held.returns.mean())
        self.scale = float(held.returns.std()) or 1.0
        self.optimiser = torch.optim.Adam([part.requires_grad_() for part in self.online], lr=LEARNING_RATE)
        self.owners = np.repeat(np.arange(held.episode_count), np.diff(held.observation_offsets))
        self.rows = _rows(held, choices, counts)
        first = held.observation_offsets[:-1]
        self.starts = self.observed[torch.from_numpy(np.array(first))]
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
            follow = self._q(self.target, self.observed[batch.next_places], batch.next_choices)
            goal = (batch.rewards + self.gamma * batch.goes_on * follow).clamp(*self.span)
        guess = self._q(self.online, self.observed[batch.places], batch.actions)
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
                forward(self.target, self._seen(part)).mean(dim=0)
                for part in np.array_split(observations, max(1, len(observations) // 4096))
            ]
            return self._whole(torch.cat(parts))

    def by_member(self, observations: NDArray[np.float32], asked: Decisions) -> ByMember:
        """What each member alone says of a policy's decisions, by its target network."""
        import torch

        count = len(self.counts)
        states, taken = np.empty((count, len(observations))), np.empty((count, len(asked.rows)))
        with torch.no_grad():
            for part in np.array_split(np.arange(len(observations)), max(1, len(observations) // 4096)):
                q = self._whole(forward(self.target, self._seen(observations[part])))
                states[:, part] = (q * asked.chances[part]).sum(axis=2)
                here = np.flatnonzero(np.isin(asked.rows, part))
                taken[:, here] = q[:, asked.rows[here] - part[0], asked.actions[here]]
        return ByMember(states, taken)

    def out_of_bag(self) -> OutOfBag:
        """Q of every action at the data's observations, by the members that never drew their episode."""
        import torch

        sums = np.zeros((len(self.observed), self.target[-1].shape[-1]))
        with torch.no_grad():
            for member, drawn in enumerate(self.counts):
                rows = np.flatnonzero(drawn[self.owners] == 0)
                one = [part[member : member + 1] for part in self.target]
                sums[rows] += self._whole(forward(one, self.observed[torch.from_numpy(rows)])[0])
        return OutOfBag(sums, (self.counts == 0).sum(axis=0))

    def _whole(self, scores: torch.Tensor) -> FloatArray:
        found: FloatArray = (self.centre + self.scale * scores).clamp(*self.span).numpy().astype(np.float64)
        return found

    def _seen(self, observations: NDArray[np.float32]) -> torch.Tensor:
        import torch

        rows = torch.from_numpy(np.array(observations, np.float32))
        return rows if self.turn is None else rows @ self.turn

    def _batch(self) -> Rows:
        import torch

        size = len(self.rows.rewards)
        if size <= BATCH:
            return self.rows
        picked = torch.randint(size, (BATCH,), generator=self.generator)
        *parts, weights = self.rows
        return Rows._make([*(part[picked] for part in parts), weights[:, picked]])


def _basis(observations: NDArray[np.float32]) -> torch.Tensor | None:
    """Orthonormal directions [columns, rank] that hold the rows; None where they are no fewer than half of the columns."""
    import torch

    size, columns = observations.shape
    if not size or size > MOST_TURNED:
        return None
    rows = torch.from_numpy(np.array(observations, np.float64))
    squares, directions = torch.linalg.eigh(rows @ rows.T if size < columns else rows.T @ rows)
    lengths = squares.clamp(min=0).sqrt()
    kept = lengths > _RANK * lengths[-1]
    if not kept.any() or 2 * int(kept.sum()) > columns:
        return None
    found = directions[:, kept]
    return (rows.T @ found / lengths[kept] if size < columns else found).float()


def _rows(held: SplitArrays, choices: NDArray[Any], counts: IntArray) -> Rows:
    import torch

    weights = counts[:, held.episode_index]
    rows = held.observation_rows
    return Rows(
        places=torch.from_numpy(rows),
        actions=torch.from_numpy(held.actions.astype(np.int64)),
        rewards=torch.from_numpy(held.rewards.astype(np.float32)),
        goes_on=torch.from_numpy((~held.terminals).astype(np.float32)),
        next_places=torch.from_numpy(rows + 1),
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
