"""What a policy is worth: estimated from the log, or played."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.evaluation.config import EstimateConfig, PlayConfig
    from logforge.evaluation.pipeline import evaluate
    from logforge.evaluation.playing import play
    from logforge.evaluation.sample_efficiency import curve_area, interactions_to, outcomes

__all__ = [
    "EstimateConfig", "PlayConfig", "curve_area", "evaluate", "interactions_to", "outcomes", "play",
]  # fmt: skip

face(
    __name__,
    config="EstimateConfig PlayConfig",
    pipeline="evaluate",
    playing="play",
    sample_efficiency="curve_area interactions_to outcomes",
)
