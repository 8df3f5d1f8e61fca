"""What the doctor looks at, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.learning.training import CONSERVATIVE, FINDINGS, Limits, TrainConfig, reach
from logforge.shards import Shard


@dataclass(frozen=True)
class Symptom:
    """What is seen, why it is so, what to do, and the numbers."""

    rule: str
    symptom: str
    cause: str
    remedy: str
    figures: dict[str, Any] = field(default_factory=dict)


def told(rule: str, figures: Mapping[str, Any], case: str = "", **words: Any) -> Symptom:
    """A finding of the catalogue with its figures; `words` are what its texts name beside them."""
    return Symptom(rule, *FINDINGS[rule].tell(case, **figures, **words), dict(figures))


class Patient(NamedTuple):
    """A run: its record, settings, and the train split in the rewards it was trained on."""

    run: dict[str, Any]
    config: TrainConfig
    train: Shard

    @property
    def learner(self) -> str:
        """The first member's policy."""
        return self.config.algo

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers of the checkpoint that was kept of the learner's first member."""
        return dict(self.run["policies"][self.learner])

    @property
    def limits(self) -> Limits:
        """What the learner's Q is held against."""
        train = self.train
        low, high = self.run.get("possible_returns") or reach(self.config, train)
        span = (-math.inf if low is None else low, math.inf if high is None else high)
        alpha = self.config.alpha if self.learner in CONSERVATIVE else 0.0
        return Limits.of(span, alpha, train.returns, train.actions, clipped=self.config.clips)
