"""Outcomes that do not stand in the logs: files and rules that label stored episodes and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.outcomes.pipeline import label_file, label_where, remove

__all__ = ["label_file", "label_where", "remove"]

face(
    __name__,
    pipeline="label_file label_where remove",
)
