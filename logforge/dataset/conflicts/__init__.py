"""Alike states in which unlike actions were taken or unlike results came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.conflicts.groups import find_conflicts
    from logforge.dataset.conflicts.near import near_states
    from logforge.dataset.conflicts.policy import (
        FLAG_ALL,
        Policy,
        contradicted,
        factors,
        read_policy,
        set_aside,
    )
    from logforge.dataset.conflicts.rows import (
        DEMONSTRATION,
        Decisions,
        comparable,
        decisions_in,
        decisions_of,
    )
    from logforge.dataset.conflicts.views import ConflictView, Narrowed, count, render, sides

__all__ = [
    "DEMONSTRATION", "FLAG_ALL", "ConflictView", "Decisions", "Narrowed", "Policy", "comparable",
    "contradicted", "count", "decisions_in", "decisions_of", "factors", "find_conflicts", "near_states",
    "read_policy", "render", "set_aside", "sides",
]  # fmt: skip

face(
    __name__,
    groups="find_conflicts",
    near="near_states",
    policy="FLAG_ALL Policy contradicted factors read_policy set_aside",
    rows="DEMONSTRATION Decisions comparable decisions_in decisions_of",
    views="ConflictView Narrowed count render sides",
)
