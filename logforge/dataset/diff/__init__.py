"""What changed between two datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.diff.pipeline import diff_datasets

__all__ = ["diff_datasets"]

face(
    __name__,
    pipeline="diff_datasets",
)
