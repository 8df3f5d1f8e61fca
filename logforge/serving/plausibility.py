"""Whether what a policy decides is like the policy: numbers, weights in memory, entropy, scores, repeated calls, support.

Limits come from the policy's own card (logforge/learning/policies/typical_behaviour.py): what it does in the states it was trained on. Corrupted memory shows in the
weights' hash to the bit; a fault elsewhere, or conversations unlike the dataset's, show in what is decided.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from math import comb, isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.learning.policies import Range, entropies, playable

if TYPE_CHECKING:
    from logforge.learning.policies import Decision, PolicyBundle

_ROUNDING: Final = 1e-6

Check = Literal["weights", "finite", "entropy", "score", "repeated", "support"]

SLACK: Final = 0.1
"""So far outside the range that was seen, as a share of it, a score may lie: states that come are not those of the log. An entropy
may lie half way from what was seen to the least and the most that there can be."""
AT_LEAST: Final = 3
"""So often a call may be made in a row, and fewer decisions of a window may be without support, whatever the log shows."""
WINDOW: Final = 20
"""So many of the latest decisions are looked at for the share without support."""
CHANCE: Final = 1e-3
"""A share without support counts where the policy's own share would give as many in a window more rarely than this."""


class Doubt(NamedTuple):
    """One sign that a decision is not to be trusted: which check, what was found and what the limit is, in words."""

    check: Check
    found: str
    limit: str

    def __str__(self) -> str:
        return f"{self.check}: {self.found}, {self.limit}"


@dataclass(frozen=True)
class Verdict:
    """Of all decisions that were watched: how many there were, and how many of them each check doubted."""

    decisions: int
    doubts: dict[Check, int]

    @property
    def is_plausible(self) -> bool:
        """Whether nothing was doubted."""
        return not self.doubts


class Watch:
    """Watches the decisions of one policy in one session. `every`: the weights' hash is taken anew after so many decisions, and
    whenever something else is doubted."""

    def __init__(self, policy: PolicyBundle, every: int = 100) -> None:
        self.policy, self._every = policy, every
        self._supported: deque[bool] = deque(maxlen=WINDOW)
        self._decisions = 0
        self._doubts: Counter[Check] = Counter()

    @property
    def verdict(self) -> Verdict:
        """What was seen so far."""
        return Verdict(self._decisions, dict(sorted(self._doubts.items())))

    def before(self, observation: NDArray[Any]) -> tuple[Doubt, ...]:
        """Doubts for which nothing is to be decided: the policy gives no finite scores for this observation [features]."""
        with np.errstate(all="ignore"):
            scores = self.policy.scores(np.asarray(observation)[None])
        if np.isfinite(scores).all():
            return ()
        self._decisions += 1
        count = int((~np.isfinite(scores)).sum())
        seen = "" if np.isfinite(observation).all() else "; the observation holds such numbers itself"
        return self._noted(
            [Doubt("finite", f"{count} of {scores.size} scores are NaN or infinity{seen}", "none may be")]
        )

    def see(self, decision: Decision, mask: NDArray[Any]) -> tuple[Doubt, ...]:
        """Doubts about a decision under its mask [actions]."""
        self._decisions += 1
        found = [*self._numbers(decision, mask), *self._support(decision)]
        return self._noted(found, is_due=self._decisions % self._every == 0)

    def call(self, action: str, times: int) -> tuple[Doubt, ...]:
        """Doubts about a call whose arguments are known, which was just made so many times in a row (Session.times)."""
        most = self.most_in_a_row(action)
        if times < most:
            return ()
        again = f"{action} for the {times + 1}th time in a row with the same arguments"
        return self._noted([Doubt("repeated", again, f"{most} may be")])

    def most_in_a_row(self, action: str) -> int:
        """So often in a row the same call of this action may be made."""
        habits = self.policy.card.habits
        return max(AT_LEAST, habits.runs.get(action, 1) if habits else AT_LEAST)

    def _noted(self, found: list[Doubt], is_due: bool = False) -> tuple[Doubt, ...]:
        if (found or is_due) and not self.policy.is_intact:
            found.insert(
                0,
                Doubt("weights", "the weights in memory are not those of the file", "load the policy again"),
            )
        self._doubts.update(doubt.check for doubt in found)
        return tuple(found)

    def _numbers(self, decision: Decision, mask: NDArray[Any]) -> list[Doubt]:
        habits = self.policy.card.habits
        if habits is None:
            return []
        allowed = playable(np.asarray(mask)[None], self.policy.card.actions)
        entropy = float(entropies(decision.scores[None], allowed)[0])
        score = float(decision.scores[decision.action])
        found = [_outside("score", score, habits.score, habits.score.wider(SLACK))]
        if isfinite(entropy) and habits.entropy is not None:
            found.append(_outside("entropy", entropy, habits.entropy, habits.entropy.towards(0.0, 1.0)))
        return [doubt for doubt in found if doubt is not None]

    def _support(self, decision: Decision) -> list[Doubt]:
        habits = self.policy.card.habits
        if decision.supported is None or habits is None or habits.unsupported is None:
            return []
        self._supported.append(decision.supported)
        count, size = self._supported.count(False), len(self._supported)
        usual = (habits.unsupported * habits.states + 1) / (habits.states + 2)
        if count < AT_LEAST or at_least(count, size, usual) >= CHANCE:
            return []
        return [
            Doubt(
                "support",
                f"{count} of the last {size} decisions are hardly ever taken in the log",
                f"usually {usual:.0%} are",
            )
        ]


def _outside(check: Check, value: float, seen: Range, limits: Range) -> Doubt | None:
    if limits.low - _ROUNDING <= value <= limits.high + _ROUNDING:
        return None
    return Doubt(check, f"{value:.4g}", f"in the train split from {seen.low:.4g} to {seen.high:.4g}")


def at_least(count: int, size: int, chance: float) -> float:
    """The chance of `count` or more of `size` where each has this chance, apart from the others."""
    return sum(comb(size, k) * chance**k * (1 - chance) ** (size - k) for k in range(count, size + 1))
