"""Whether a store or a dataset is still sound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.checks.pipeline import check, check_store

__all__ = ["check", "check_store"]

face(
    __name__,
    pipeline="check check_store",
)
