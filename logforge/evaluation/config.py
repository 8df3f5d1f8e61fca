"""The settings of the estimates and of playing. Loads nothing heavy: the command line reads it."""

from __future__ import annotations

from dataclasses import dataclass

from logforge.core import option


@dataclass(frozen=True)
class EstimateConfig:
    """How a run's policies are estimated on held-out episodes."""

    dataset_path: str | None = option(
        None, "The dataset. Default: the one the run was trained on.", "--dataset", path="any"
    )
    split: str = option("test")
    seed: int = option(0)
    members: int = option(20, "Of its bootstrap; a learner's seeds share them.", "--fqe-members")
    updates: int = option(300, "Of a round of it. The time grows with both.", "--fqe-updates")


@dataclass(frozen=True)
class PlayConfig:
    """How a run's policies are played in a simulator."""

    simulator: str | None = option(None, "Play there: it-ops or support-escalation.", metavar="NAME")
    episodes: int = option(1000, "Played of each policy. Needs --simulator.", least=2)
    baselines: str = option(
        "none",
        "all: also what was logged, the rule by hand, and online RL in the simulator. Needs --simulator.",
    )
    held_out: bool = option(False, "Play in wordings that no log has.", "--held-out-wording")
