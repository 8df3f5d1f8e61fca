"""One module a section of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.report.sections import (
        advice,
        balance,
        characteristics,
        clone,
        conflicts,
        conservation,
        coverage,
        drift,
        duplicates,
        entropy,
        failures,
        labels,
        laziness,
        leak,
        overlap,
        returns,
        sources,
        splits,
        sufficiency,
        terms,
    )
    from logforge.report.sections.failures import labelled

__all__ = [
    "advice", "balance", "characteristics", "clone", "conflicts", "conservation", "coverage", "drift",
    "duplicates", "entropy", "failures", "labelled", "labels", "laziness", "leak", "overlap", "returns",
    "sources", "splits", "sufficiency", "terms",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = face(
        __name__,
        failures="labelled",
    )
