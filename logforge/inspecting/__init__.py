"""What an unknown log is: its shape, who came near to reading it, and a mapping that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.inspecting.inspection import inspect

__all__ = ["inspect"]

face(
    __name__,
    inspection="inspect",
)
