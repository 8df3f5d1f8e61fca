"""Returns to go: G_t = r_t + γ G_{t+1}, exact at any length and γ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from logforge.schemas.errors import UsageError


def returns_to_go(
    rewards: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64], gamma: float
) -> npt.NDArray[np.float64]:
    """The discounted sum of rewards from each step to its episode's end.

    Episode i is `rewards[offsets[i]:offsets[i + 1]]`. All episodes are walked in lock step from their ends, so the
    additions are those of the recursion itself, in its order. A NaN reward makes the episode's earlier returns NaN.
    """
    _check(rewards, offsets, gamma)
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    longest_first, ends = lengths[order], offsets[1:][order]
    returns = np.empty(len(rewards), dtype=np.float64)
    carry = np.zeros(len(lengths), dtype=np.float64)
    # how many episodes have at least k steps, for every k
    alive = np.searchsorted(-longest_first, -np.arange(1, lengths.max(initial=0) + 1), side="right")
    for back, count in enumerate(alive.tolist(), 1):
        rows = ends[:count] - back
        carry = rewards[rows] + gamma * carry[:count]
        returns[rows] = carry
    return returns


def _check(rewards: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64], gamma: float) -> None:
    if not 0 < gamma <= 1:
        raise UsageError(f"gamma is {gamma}", "it lies in (0, 1]")
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(rewards) or (np.diff(offsets) < 0).any():
        raise UsageError(
            "offsets do not cut the rewards into episodes", "they rise from 0 to the number of rewards"
        )
