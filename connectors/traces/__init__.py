"""Spans of tracing tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.traces.attributes import escape, number_of
    from logforge.connectors.traces.envelopes import Where
    from logforge.connectors.traces.history import with_rewards
    from logforge.connectors.traces.messages import inside

__all__ = ["Where", "escape", "inside", "number_of", "with_rewards"]

face(
    __name__,
    attributes="escape number_of",
    envelopes="Where",
    history="with_rewards",
    messages="inside",
)
