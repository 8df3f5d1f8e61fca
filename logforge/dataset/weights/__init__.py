"""What a step counts for in training, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.weights.curriculum import (
        STAGES_FILE,
        StageOutcome,
        difficulty_frame,
        load_stage,
        stage_outcomes,
        stages_file,
        without,
    )
    from logforge.dataset.weights.files import load_weights
    from logforge.dataset.weights.parts import Weights, parts_told, weigh, weight_parts

__all__ = [
    "STAGES_FILE", "StageOutcome", "Weights", "difficulty_frame", "load_stage", "load_weights",
    "parts_told", "stage_outcomes", "stages_file", "weigh", "weight_parts", "without",
]  # fmt: skip

face(
    __name__,
    curriculum="STAGES_FILE StageOutcome difficulty_frame load_stage stage_outcomes stages_file without",
    files="load_weights",
    parts="Weights parts_told weigh weight_parts",
)
