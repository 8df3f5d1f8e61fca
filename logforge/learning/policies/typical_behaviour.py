"""What a policy does in the states of its train split, noted on its card: by it serving tells what is unlike the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from logforge.learning.policies.card import Habits, Range
from logforge.schemas import UsageError, Vocabulary

if TYPE_CHECKING:
    from logforge.learning.policies.bundle import PolicyBundle
    from logforge.shards import SplitArrays

_STATES: Final = 4096
"""So many states are looked at, spread evenly over the split."""


def habits_of(policy: PolicyBundle, split: SplitArrays) -> Habits:
    """What the policy does in states of the split; raises UsageError where no state allows an action."""
    places = np.unique(np.linspace(0, split.size - 1, _STATES).astype(int))
    rows = split.observation_rows[places]
    rows = rows[playable(split.masks[rows], policy.card.actions).any(axis=1)]
    if not len(rows):
        raise UsageError("no state of the train split allows an action", "build a dataset with actions")
    observations, masks = np.asarray(split.observations[rows], np.float32), split.masks[rows]
    scores, chosen = policy.scores(observations), policy.choose(observations, masks)
    spread = entropies(scores, playable(masks, policy.card.actions))
    support, own = policy.support(observations, masks), np.arange(len(rows))
    hardly = None if support is None else float((support[own, chosen] < policy.card.support_floor).mean())
    seen = spread[np.isfinite(spread)]
    return Habits(
        states=len(rows),
        entropy=_range(seen) if len(seen) else None,
        score=_range(scores[own, chosen]),
        unsupported=hardly,
        runs=_runs(split, policy.card.actions),
    )


def playable(masks: NDArray[Any], actions: tuple[str, ...]) -> NDArray[np.bool_]:
    """What may be chosen [rows, actions]: what the masks allow, without the actions that no policy takes."""
    found = np.array(masks, dtype=bool)
    found[:, Vocabulary(actions).unplayable] = False
    return found


def entropies(scores: NDArray[Any], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The entropy of softmax over the allowed scores of each row, as a share of the most it can be; NaN where one is allowed."""
    masked = np.where(allowed, scores.astype(np.float64), -np.inf)
    powers = np.exp(masked - masked.max(axis=1, keepdims=True))
    chances = powers / powers.sum(axis=1, keepdims=True)
    logs = np.log(chances, where=chances > 0, out=np.zeros_like(chances))
    most = np.log(np.maximum(allowed.sum(axis=1), 1))
    found = np.full(len(scores), np.nan)
    np.divide(-(chances * logs).sum(axis=1), most, where=most > 0, out=found)
    return found


def _range(numbers: NDArray[Any]) -> Range:
    return Range(float(numbers.min()), float(numbers.max()))


def _runs(split: SplitArrays, actions: tuple[str, ...]) -> dict[str, int]:
    """Borders lie where the action or the episode changes."""
    taken, episodes = np.asarray(split.actions), split.episode_index
    borders = np.flatnonzero((np.diff(taken) != 0) | (np.diff(episodes) != 0)) + 1
    begins = np.concatenate([[0], borders])
    longest = np.zeros(len(actions), int)
    np.maximum.at(longest, taken[begins], np.diff([*begins, len(taken)]))
    return {actions[place]: int(longest[place]) for place in np.flatnonzero(longest > 1)}
