"""Off-policy evaluation: FQE, importance sampling, support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.learning.ope import fqe
    from logforge.learning.ope.fqe import Fitted
    from logforge.learning.ope.fqe_fit import ByMember, Decisions
    from logforge.learning.ope.importance_sampling import ESTIMATED_CAP, ROBUST, Importance, importance
    from logforge.learning.ope.support import Similar, Support, similar_actions

__all__ = [
    "ESTIMATED_CAP", "ROBUST", "ByMember", "Decisions", "Fitted", "Importance", "Similar", "Support",
    "fqe", "importance", "similar_actions",
]  # fmt: skip

face(
    __name__,
    fqe="Fitted",
    fqe_fit="ByMember Decisions",
    importance_sampling="ESTIMATED_CAP Importance ROBUST importance",
    support="Similar Support similar_actions",
)
