"""What was known strictly before a decision, as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.states.builder import StateBuilder
    from logforge.dataset.states.config import StateConfig
    from logforge.dataset.states.coverage import ThoughtLeak, WindowCut, thought_leak, window_cut
    from logforge.dataset.states.events import Answered, Decided, Event, Offered, Said, events_of
    from logforge.dataset.states.features import ROLES
    from logforge.dataset.states.fold import Knowledge
    from logforge.dataset.states.goal_summary import SUMMARIES
    from logforge.dataset.states.golden import (
        GOLDEN_FILE,
        GoldenState,
        digests,
        golden_file,
        golden_of,
        of_episodes,
        prove,
        read_golden,
    )
    from logforge.dataset.states.symbolic_state import State, canonical_key, state_key
    from logforge.dataset.states.text import TEMPLATE, parse_state, state_text
    from logforge.dataset.states.tool_history import history_ids

__all__ = [
    "GOLDEN_FILE", "ROLES", "SUMMARIES", "TEMPLATE", "Answered", "Decided", "Event", "GoldenState",
    "Knowledge", "Offered", "Said", "State", "StateBuilder", "StateConfig", "ThoughtLeak", "WindowCut",
    "canonical_key", "digests", "events_of", "golden_file", "golden_of", "history_ids", "of_episodes",
    "parse_state", "prove", "read_golden", "state_key", "state_text", "thought_leak", "window_cut",
]  # fmt: skip

face(
    __name__,
    builder="StateBuilder",
    config="StateConfig",
    coverage="ThoughtLeak WindowCut thought_leak window_cut",
    events="Answered Decided Event Offered Said events_of",
    features="ROLES",
    fold="Knowledge",
    goal_summary="SUMMARIES",
    golden="GOLDEN_FILE GoldenState digests golden_file golden_of of_episodes prove read_golden",
    symbolic_state="State canonical_key state_key",
    text="TEMPLATE parse_state state_text",
    tool_history="history_ids",
)
