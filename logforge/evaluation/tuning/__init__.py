"""Many runs compared, and one run diagnosed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.evaluation.tuning.config import SweepConfig
    from logforge.evaluation.tuning.diagnosis import diagnose
    from logforge.evaluation.tuning.sweeping import sweep

__all__ = ["SweepConfig", "diagnose", "sweep"]

face(
    __name__,
    config="SweepConfig",
    diagnosis="diagnose",
    sweeping="sweep",
)
