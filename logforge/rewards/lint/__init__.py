"""How a reward could be gamed, tried on worlds and on the log itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.rewards.lint.cloning import CloneRisk, clone_risk, fixed_point
    from logforge.rewards.lint.diff import (
        Mover,
        TermMean,
        kendall,
        mover_table,
        movers,
        reward_diff,
        term_means,
    )
    from logforge.rewards.lint.pipeline import DEFAULT_ALPHA, TYPICAL_STEPS, lint
    from logforge.rewards.lint.rules import spec_findings
    from logforge.rewards.lint.trial import Trial, recorded_trial
    from logforge.rewards.lint.world import AGAIN, ASK, BUSY, FAIL, GHOST, STOP, TALK, WORK

__all__ = [
    "AGAIN", "ASK", "BUSY", "DEFAULT_ALPHA", "FAIL", "GHOST", "STOP", "TALK", "TYPICAL_STEPS", "WORK",
    "CloneRisk", "Mover", "TermMean", "Trial", "clone_risk", "fixed_point", "kendall", "lint",
    "mover_table", "movers", "recorded_trial", "reward_diff", "spec_findings", "term_means",
]  # fmt: skip

face(
    __name__,
    cloning="CloneRisk clone_risk fixed_point",
    diff="Mover TermMean kendall mover_table movers reward_diff term_means",
    pipeline="DEFAULT_ALPHA TYPICAL_STEPS lint",
    rules="spec_findings",
    trial="Trial recorded_trial",
    world="AGAIN ASK BUSY FAIL GHOST STOP TALK WORK",
)
