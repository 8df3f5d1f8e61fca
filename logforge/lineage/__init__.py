"""From a number back to the line of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.lineage.explanation import explain
    from logforge.lineage.locate import holds, resolve, texts_at
    from logforge.lineage.source_bytes import moved

__all__ = ["explain", "holds", "moved", "resolve", "texts_at"]

face(
    __name__,
    explanation="explain",
    locate="holds resolve texts_at",
    source_bytes="moved",
)
