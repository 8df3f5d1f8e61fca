"""Rules that every row obeys, and gates that stop a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.quality.arrays import validate_arrays
    from logforge.dataset.quality.gates import Measures, Passed, check_thresholds, pass_gates
    from logforge.dataset.quality.leak_probe import leak_auc
    from logforge.dataset.quality.transitions import Allowance, in_order_of_names, validate

__all__ = [
    "Allowance", "Measures", "Passed", "check_thresholds", "in_order_of_names", "leak_auc", "pass_gates",
    "validate", "validate_arrays",
]  # fmt: skip

face(
    __name__,
    arrays="validate_arrays",
    gates="Measures Passed check_thresholds pass_gates",
    leak_probe="leak_auc",
    transitions="Allowance in_order_of_names validate",
)
