"""Targets that bootstrap from a value function: n-step, TD(λ), GAE(λ) and Retrace(λ).

All of them stop at a true end, bootstrap at a truncation and never cross an episode. Shapes: N steps in E episodes;
`rewards` (N,), `offsets` (E + 1,) cut the steps into episodes, `terminal` (E,) says which truly ended, and `values` (N + E,)
holds V of every state, n + 1 for an episode of n steps (the rows of a shard's observations). γ is one discount, or one for
each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from logforge.rewards import Floats, Offsets, as_discounts, check_cuts, last_to_first, returns_to_go
from logforge.schemas import UnknownName, UsageError
from logforge.shards import Shard

Flags = npt.NDArray[np.bool_]
KINDS = ("return", "n_step", "td_lambda", "td", "gae", "retrace")


def targets_of(
    shard: Shard,
    kind: str = "td_lambda",
    values: Floats | None = None,
    *,
    taken: Floats | None = None,
    ratios: Floats | None = None,
    n: int = 1,
    lam: float = 0.95,
    gamma: float | Floats | None = None,
) -> Floats:
    """Targets or advantages of a split's N transitions.

    `return` needs no values: it is the sum of the logged rewards, which a truncation cuts short. `n_step` and `td_lambda`
    are targets of V; `td` (the TD error) and `gae` are advantages; `retrace` are targets of Q, and needs `taken`, Q of the
    logged actions, and `ratios` (see `retrace`). `values` are V of all N + E observations, as `logforge.evaluation.credit.pipeline` fits them.
    `gamma` is the dataset's by default, or a discount for each step. Raises UsageError for what is missing or does not fit.
    """
    if kind not in KINDS:
        raise UnknownName("kind of target", kind, list(KINDS))
    rewards, offsets = shard.rewards.astype(np.float64), np.asarray(shard.episode_offsets)
    discount = shard.manifest.gamma if gamma is None else gamma
    if kind == "return":
        return returns_to_go(rewards, offsets, discount)
    if values is None:
        raise UsageError(
            f"{kind} needs the values of states",
            "fit them: logforge.evaluation.credit.pipeline.fit_values(RUN)",
        )
    v = np.asarray(values, dtype=np.float64)
    steps = (rewards, v, offsets, shard.terminals[offsets[1:] - 1], discount)
    if kind == "n_step":
        return n_step(*steps, n)
    if kind != "retrace":
        return td_lambda(*steps, lam) if kind == "td_lambda" else gae(*steps, 0.0 if kind == "td" else lam)
    if taken is None or ratios is None:
        raise UsageError(
            "retrace needs Q of the logged actions and ratios of probabilities", "give `taken` and `ratios`"
        )
    return retrace(rewards, taken, v, ratios, *steps[2:], lam)


@dataclass(frozen=True)
class Valued:
    """Steps with the values of the states before and after each."""

    rewards: Floats
    offsets: Offsets
    discounts: Floats
    before: Floats
    after: Floats
    """V(s′); 0 where the episode truly ended."""

    @classmethod
    def of(
        cls, rewards: Floats, values: Floats, offsets: Offsets, terminal: Flags, gamma: float | Floats
    ) -> Valued:
        """Line up each step with V(s) and V(s′). Raises UsageError when the shapes do not fit."""
        check_cuts(rewards, offsets)
        episodes = len(offsets) - 1
        if len(terminal) != episodes or len(values) != len(rewards) + episodes:
            raise UsageError(
                f"{len(values)} values and {len(terminal)} ends for {len(rewards)} steps in {episodes} episodes",
                "an episode of n steps has n + 1 values and one end",
            )
        rows = np.arange(len(rewards)) + np.repeat(np.arange(episodes), np.diff(offsets))
        after = values[rows + 1].astype(np.float64)
        some = np.diff(offsets) > 0
        after[offsets[1:][terminal & some] - 1] = 0.0
        return cls(
            rewards, offsets, as_discounts(gamma, len(rewards)), values[rows].astype(np.float64), after
        )


def td_lambda(
    rewards: Floats, values: Floats, offsets: Offsets, terminal: Flags, gamma: float | Floats, lam: float
) -> Floats:
    """The λ-return G_t = r_t + γ[(1 − λ) V(s_{t+1}) + λ G_{t+1}] (Sutton and Barto 2018, §12.1).

    λ = 0 is the one-step target; λ = 1 is the return to go, with V of the last state behind a truncation.
    """
    steps = Valued.of(rewards, values, offsets, terminal, gamma)
    return _lambda_returns(steps, _share(lam, "lambda"))


def gae(
    rewards: Floats, values: Floats, offsets: Offsets, terminal: Flags, gamma: float | Floats, lam: float
) -> Floats:
    """The generalised advantage A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V(s_{t+1}) − V(s_t) (Schulman et al. 2016)."""
    steps = Valued.of(rewards, values, offsets, terminal, gamma)
    errors = steps.rewards + steps.discounts * steps.after - steps.before
    lam = _share(lam, "lambda")
    advantages = np.empty(len(rewards))
    carry = np.zeros(len(offsets) - 1)
    for rows in last_to_first(offsets):
        carry = errors[rows] + steps.discounts[rows] * lam * carry[: len(rows)]
        advantages[rows] = carry
    return advantages


def n_step(
    rewards: Floats, values: Floats, offsets: Offsets, terminal: Flags, gamma: float | Floats, n: int
) -> Floats:
    """r_t + γ r_{t+1} + … + γ^n V(s_{t+n}); where fewer than n steps are left, those, with V of the last state behind a
    truncation and nothing behind a true end."""
    if n < 1:
        raise UsageError(f"n is {n}", "it is at least 1")
    steps = Valued.of(rewards, values, offsets, terminal, gamma)
    last_of = np.repeat(offsets[1:] - 1, np.diff(offsets))
    first = np.arange(len(rewards))
    targets, weight = np.zeros(len(rewards)), np.ones(len(rewards))
    for ahead in range(min(n, int(np.diff(offsets).max(initial=0)))):
        row = np.minimum(first + ahead, last_of)
        inside = first + ahead <= last_of
        targets += np.where(inside, weight * steps.rewards[row], 0.0)
        weight = np.where(inside, weight * steps.discounts[row], weight)
    end = np.minimum(first + n - 1, last_of)
    return targets + weight * steps.after[end]


def retrace(
    rewards: Floats,
    taken: Floats,
    values: Floats,
    ratios: Floats,
    offsets: Offsets,
    terminal: Flags,
    gamma: float | Floats,
    lam: float,
) -> Floats:
    """Retrace(λ) targets of Q for the logged actions (Munos et al. 2016).

    `taken` (N,) is Q(s_t, a_t), `values` (N + E,) is Σ_a π(a|s) Q(s, a), and `ratios` (N,) are π(a_t|s_t) / μ(a_t|s_t), NaN
    where μ is not known: the trace is cut there, which leaves the one-step target.
    """
    steps = Valued.of(rewards, values, offsets, terminal, gamma)
    if (ratios < 0).any():
        raise UsageError("a ratio of probabilities is negative", "ratios are π(a|s) / μ(a|s)")
    cuts = _share(lam, "lambda") * np.minimum(1.0, np.nan_to_num(ratios, nan=0.0))
    return _traced(steps, cuts, taken)


def _lambda_returns(steps: Valued, lam: float) -> Floats:
    targets = np.empty(len(steps.rewards))
    carry = np.zeros(0)
    for rows in last_to_first(steps.offsets):
        ahead = steps.after[rows]
        if len(carry):  # nothing follows the last steps
            ahead = (1 - lam) * ahead + lam * carry[: len(rows)]
        carry = steps.rewards[rows] + steps.discounts[rows] * ahead
        targets[rows] = carry
    return targets


def _traced(steps: Valued, cuts: Floats, taken: Floats) -> Floats:
    targets = np.empty(len(steps.rewards))
    carry = np.zeros(0)
    for rows in last_to_first(steps.offsets):
        ahead = steps.after[rows]
        if len(carry):
            ahead = ahead + cuts[rows + 1] * (carry[: len(rows)] - taken[rows + 1])
        carry = steps.rewards[rows] + steps.discounts[rows] * ahead
        targets[rows] = carry
    return targets


def _share(number: float, what: str) -> float:
    if not 0 <= number <= 1:
        raise UsageError(f"{what} is {number}", "it lies in [0, 1]")
    return number
