"""Seven metrics of episodes, for logs and for what is played: how often they succeed, how they act, what they cost.

Intervals are 95 % percentiles of a bootstrap over groups of episodes that belong together. Where every episode with a verdict has the
same one, a bootstrap would give no width: that of logforge/core/intervals.py stands in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import Estimate, bracketed, share
from logforge.schemas import CLARIFY, RESPOND
from logforge.shards import SplitArrays

SEVEN: Final = (
    "success", "steps_of_successes", "reward", "invalid_calls", "tool_entropy", "decision_ms", "resources"
)  # fmt: skip
"""The keys that every policy's metrics have."""
_RESAMPLES = 1000

Floats = NDArray[np.float64]


UNTIMED: Final = Estimate(None, reason="a log does not say how long a decision took")


class Bucket(NamedTuple):
    """The episodes of one difficulty."""

    episodes: int
    success: Estimate
    steps_of_successes: Estimate


@dataclass(frozen=True)
class EpisodeMetrics:
    """The metrics of one policy's episodes. `reward` is the sum of an episode's rewards, `invalid_calls` a share of the tool calls,
    `tool_entropy` that of the distribution of tools called, in bits; `decision_ms` is the time of one decision, `resources` the CPU
    seconds of 1,000 decisions and the peak memory of the process in MB (None: nobody measured)."""

    episodes: int
    decisions: int
    success: Estimate
    steps_of_successes: Estimate
    reward: Estimate
    invalid_calls: Estimate
    tool_entropy: Estimate
    decision_ms: Estimate = UNTIMED
    resources: dict[str, float] | None = None
    buckets: dict[str, Bucket] = field(default_factory=dict)

    def told(self) -> str:
        """A line for people."""
        return (
            f"success {bracketed(self.success, '{:.0%}')}, steps of successes {bracketed(self.steps_of_successes, '{:.1f}')}, "
            f"mean reward {bracketed(self.reward, '{:+.2f}')}, invalid calls {bracketed(self.invalid_calls, '{:.1%}')}, "
            f"tool entropy {bracketed(self.tool_entropy, '{:.2f}')} bits"
        )


def metrics_of(
    splits: Sequence[SplitArrays],
    actions: Sequence[str],
    buckets: Mapping[str, Sequence[NDArray[np.bool_]]] | None = None,
) -> EpisodeMetrics:
    """The metrics of the episodes of some splits, all but those of time. `actions` names the ids; `buckets` marks, split by split, the
    episodes of each.

    A call is invalid when its tool is unknown or was not on offer.
    """
    sums = _Sums.of(splits, actions)
    marked = {name: _Sums.of(splits, actions, kept) for name, kept in (buckets or {}).items()}
    return EpisodeMetrics(
        episodes=sum(arrays.episode_count for arrays in splits),
        decisions=sum(arrays.size for arrays in splits),
        success=sums.success(),
        steps_of_successes=sums.steps(),
        reward=sums.share("reward", "episodes", "there is no episode"),
        invalid_calls=sums.share("invalid", "calls", "no tool was called"),
        tool_entropy=sums.entropy(),
        buckets={
            name: Bucket(int(one["episodes"].sum()), one.success(), one.steps())
            for name, one in marked.items()
        },
    )


class _Sums:
    """What is counted, by group: so a resample of groups is a weighting of rows."""

    def __init__(self, columns: dict[str, Floats], tools: Floats) -> None:
        self._columns, self._tools = columns, tools
        groups = len(tools)
        rng = np.random.default_rng(0)
        self._weights = (
            rng.multinomial(groups, np.full(groups, 1 / max(groups, 1)), _RESAMPLES)
            if groups
            else np.zeros((1, 0))
        )

    def __getitem__(self, name: str) -> Floats:
        return self._columns[name]

    @classmethod
    def of(
        cls,
        splits: Sequence[SplitArrays],
        actions: Sequence[str],
        kept: Sequence[NDArray[np.bool_]] | None = None,
    ) -> _Sums:
        """Those of the episodes that are kept; a group has all its episodes in one split."""
        chosen = kept or [np.ones(arrays.episode_count, np.bool_) for arrays in splits]
        found = [_counted(arrays, actions, some) for arrays, some in zip(splits, chosen, strict=True)]
        columns = {name: np.concatenate([one[0][name] for one in found]) for name in found[0][0]}
        return cls(columns, np.concatenate([one[1] for one in found]))

    def share(self, part: str, of: str, otherwise: str) -> Estimate:
        """The ratio of two sums."""
        top, bottom = self._columns[part], self._columns[of]
        if not bottom.sum():
            return Estimate(None, reason=otherwise)
        return self._measure(top.sum() / bottom.sum(), _ratio(self._weights @ top, self._weights @ bottom))

    def success(self) -> Estimate:
        """The share of successes among episodes whose outcome is known."""
        found = self.share("won", "known", "no outcome is known")
        if found.value not in (0, 1):
            return found
        known = np.count_nonzero(self._columns["known"])
        return share(np.full((1, known), found.value))

    def steps(self) -> Estimate:
        """The mean length of successes."""
        return self.share("steps", "won", "nothing succeeded")

    def entropy(self) -> Estimate:
        """Of the tools called, in bits."""
        if not self._tools.sum():
            return Estimate(None, reason="no tool was called")
        found = _entropy(np.vstack([self._tools.sum(axis=0), self._weights @ self._tools]))
        return self._measure(found[0], found[1:])

    def _measure(self, value: float, drawn: Floats) -> Estimate:
        drawn = drawn[np.isfinite(drawn)]
        if len(self._tools) < 2 or not len(drawn):
            return Estimate(float(value), reason="one group of episodes has no spread")
        low, high = np.percentile(drawn, (2.5, 97.5))
        return Estimate(float(value), float(low), float(high))


def _counted(
    arrays: SplitArrays, actions: Sequence[str], chosen: NDArray[np.bool_]
) -> tuple[dict[str, Floats], Floats]:
    """Sums by group [G] of the chosen episodes, and how often each action was a tool call [G, A]."""
    count, episode, taken = arrays.episode_count, arrays.episode_index, np.asarray(arrays.actions)
    tool = ~np.isin(np.array(actions), (RESPOND, CLARIFY))[taken]
    offered = np.asarray(arrays.masks[arrays.observation_rows])[np.arange(arrays.size), taken]
    won = np.asarray(arrays.success) == 1
    by_episode: dict[str, NDArray[Any]] = {
        "episodes": np.ones(count),
        "known": np.asarray(arrays.success) >= 0,
        "won": won,
        "steps": np.where(won, np.diff(arrays.episode_offsets), 0),
        "reward": np.bincount(episode, arrays.rewards, count),
        "calls": np.bincount(episode, tool, count),
        "invalid": np.bincount(episode, tool & ~offered, count),
    }
    names, group = np.unique(np.asarray(arrays.groups)[chosen], return_inverse=True)
    columns: dict[str, Floats] = {
        name: np.bincount(group, values[chosen].astype(np.float64), len(names)).astype(np.float64)
        for name, values in by_episode.items()
    }
    place = np.full(count, -1)
    place[chosen] = group
    counted = tool & chosen[episode]
    tools = np.zeros((len(names), len(actions)))
    np.add.at(tools, (place[episode[counted]], taken[counted]), 1)
    return columns, tools


def _ratio(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return top / bottom


def _entropy(counts: Floats) -> Floats:
    shares = _ratio(counts, counts.sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        bits = np.where(shares > 0, -shares * np.log2(shares), 0.0)
    found: Floats = np.where(counts.sum(axis=1) > 0, bits.sum(axis=1), np.nan)
    return found
