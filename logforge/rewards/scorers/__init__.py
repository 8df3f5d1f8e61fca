"""Terms that read texts: overlap, similarity, judges, test results, facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.rewards.scorers.base import Reads, Ready, Resources, Score, Scorer, each
    from logforge.rewards.scorers.cross_fit import FOLDS, Models
    from logforge.rewards.scorers.inputs import every_text
    from logforge.rewards.scorers.registry import check_call, reads_of
    from logforge.rewards.scorers.run import ready_scorers, run_scorers, scorer_record

__all__ = [
    "FOLDS", "Models", "Reads", "Ready", "Resources", "Score", "Scorer", "check_call", "each",
    "every_text", "reads_of", "ready_scorers", "run_scorers", "scorer_record",
]  # fmt: skip

face(
    __name__,
    base="Reads Ready Resources Score Scorer each",
    cross_fit="FOLDS Models",
    inputs="every_text",
    registry="check_call reads_of",
    run="ready_scorers run_scorers scorer_record",
)
