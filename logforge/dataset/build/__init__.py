"""The build: its stages in their order, from chosen episodes to a published folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.build.config import BuildConfig, Gates
    from logforge.dataset.build.earlier_dataset import (
        earlier_arguments,
        earlier_reduction,
        earlier_vocabulary,
    )
    from logforge.dataset.build.exclusion import Condition, read_conditions, truths
    from logforge.dataset.build.pipeline import build_dataset

__all__ = [
    "BuildConfig", "Condition", "Gates", "build_dataset", "earlier_arguments", "earlier_reduction",
    "earlier_vocabulary", "read_conditions", "truths",
]  # fmt: skip

face(
    __name__,
    config="BuildConfig Gates",
    earlier_dataset="earlier_arguments earlier_reduction earlier_vocabulary",
    exclusion="Condition read_conditions truths",
    pipeline="build_dataset",
)
