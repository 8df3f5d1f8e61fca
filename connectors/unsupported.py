"""Shapes that are known and not read: a file of one is refused in words that say what it is."""

from __future__ import annotations

from logforge.connectors.base import Head

RULE = "unsupported_shape"
"""The rule under which such a file or record is quarantined."""

VOICE = "a voice simulation of tau2-bench (`ticks` of audio on both sides): it has no turns, and is not read"
"""Why a simulation with `ticks` is refused."""


def unsupported(head: Head) -> str | None:
    """What a file is whose shape is known and not read; None for any other."""
    if (
        head.container in ("object", "array")
        and {"ticks", "task_id"} <= head.top
        and "messages" not in head.top
    ):
        return VOICE
    return None
