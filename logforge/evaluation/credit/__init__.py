"""Which steps earned the return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.evaluation.credit.agreement import credit_agreement
    from logforge.evaluation.credit.config import CreditConfig
    from logforge.evaluation.credit.key_steps import read_key_steps, scored
    from logforge.evaluation.credit.pipeline import credit_of, fit_values
    from logforge.evaluation.credit.targets import targets_of

__all__ = [
    "CreditConfig", "credit_agreement", "credit_of", "fit_values", "read_key_steps", "scored",
    "targets_of",
]  # fmt: skip

face(
    __name__,
    agreement="credit_agreement",
    config="CreditConfig",
    key_steps="read_key_steps scored",
    pipeline="credit_of fit_values",
    targets="targets_of",
)
