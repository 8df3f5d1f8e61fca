"""One file a command: options and printing, no logic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.cli.commands import main

__all__ = ["main"]

face(
    __name__,
    commands="main",
)
