"""A session, a source or a user leaves the store and all that was made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.forgetting import pipeline
    from logforge.forgetting.pipeline import complete, forget

__all__ = ["complete", "forget", "pipeline"]

face(
    __name__,
    pipeline="complete forget",
)
