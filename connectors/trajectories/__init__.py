"""Trajectory formats: ATIF, ADP, ReAct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.trajectories.react_lines import Block, cut
    from logforge.connectors.trajectories.react_text import Run, looks_like_react, read_blocks

__all__ = ["Block", "Run", "cut", "looks_like_react", "read_blocks"]

face(
    __name__,
    react_lines="Block cut",
    react_text="Run looks_like_react read_blocks",
)
