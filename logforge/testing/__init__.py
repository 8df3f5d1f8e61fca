"""The kit that tests a connector outside the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.testing.kit import ConformanceReport, check_connector
    from logforge.testing.laws import LAWS, count_json_records

__all__ = ["LAWS", "ConformanceReport", "check_connector", "count_json_records"]

face(
    __name__,
    kit="ConformanceReport check_connector",
    laws="LAWS count_json_records",
)
