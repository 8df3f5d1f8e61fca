"""The page itself: sections, charts, style."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.report.page.context import Context
    from logforge.report.page.html import page
    from logforge.report.page.section import (
        BARS,
        Bars,
        Columns,
        Finding,
        Heat,
        Level,
        Number,
        Query,
        Section,
        Table,
        numbers_of,
        plain,
        stacked,
        table_of,
    )

__all__ = [
    "BARS", "Bars", "Columns", "Context", "Finding", "Heat", "Level", "Number", "Query", "Section",
    "Table", "numbers_of", "page", "plain", "stacked", "table_of",
]  # fmt: skip

face(
    __name__,
    context="Context",
    html="page",
    section="BARS Bars Columns Finding Heat Level Number Query Section Table numbers_of plain "
    "stacked table_of",
)
