"""A dataset in other tools' forms: `catalogue` says which there are, each has a module that writes it, and
logforge/exports/pipeline.py chooses, opens and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.exports.catalogue import FORMATS, Options
    from logforge.exports.pipeline import export

__all__ = ["FORMATS", "Options", "export"]

face(
    __name__,
    catalogue="FORMATS Options",
    pipeline="export",
)
