"""One HTML page on a store and a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.report.bad_case_files import write_bad_cases
    from logforge.report.bad_case_search import bad_cases
    from logforge.report.pipeline import report

__all__ = ["bad_cases", "report", "write_bad_cases"]

face(
    __name__,
    bad_case_files="write_bad_cases",
    bad_case_search="bad_cases",
    pipeline="report",
)
