"""One file a command: options and printing, no logic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.cli.commands import main

__all__ = ["main"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = face(
        __name__,
        commands="main",
    )
