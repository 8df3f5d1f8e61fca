"""What the doctor looks at, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.alarms import Limits
from logforge.ope import possible_returns
from logforge.shards import Shard
from logforge.train_config import TrainConfig


@dataclass(frozen=True)
class Symptom:
    """What is seen, why it is so, what to do, and the numbers."""

    rule: str
    symptom: str
    cause: str
    remedy: str
    figures: dict[str, Any] = field(default_factory=dict)


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
        train, manifest = self.train, self.train.manifest
        span = possible_returns(train.rewards, train.terminals, manifest.gamma, manifest.return_range)
        alpha = self.config.alpha if self.learner == "cql" else 0.0
        return Limits.of(span, alpha, train.returns, train.actions, clipped=self.config.clips)
