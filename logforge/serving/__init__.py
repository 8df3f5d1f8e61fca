"""A policy in a live session: states from events, guards, the action parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.serving.action_parser import call_text, parse_action
    from logforge.serving.guards import Gate
    from logforge.serving.plausibility import Watch
    from logforge.serving.server import StateServer
    from logforge.serving.session import Session

__all__ = ["Gate", "Session", "StateServer", "Watch", "call_text", "parse_action"]

face(
    __name__,
    action_parser="call_text parse_action",
    guards="Gate",
    plausibility="Watch",
    server="StateServer",
    session="Session",
)
