"""One module a section of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.report.sections.catalogue import SECTIONS
    from logforge.report.sections.failures import labelled

__all__ = ["SECTIONS", "labelled"]

face(
    __name__,
    catalogue="SECTIONS",
    failures="labelled",
)
