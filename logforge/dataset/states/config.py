"""What a state holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from logforge.core import option
from logforge.dataset.states.goal_summary import WHOLE, check_summary
from logforge.schemas import UnknownName, UsageError

BLOCKS = ("task", "last_message", "window", "thought", "history", "memory", "group", "meta", "mask")
"""Every block of a vector, in its order."""


def _blocks_without(names: Iterable[str]) -> tuple[str, ...]:
    """The blocks but those. Raises UnknownName."""
    left_out = tuple(names)
    for name in left_out:
        if name not in BLOCKS:
            raise UnknownName("state block", name, BLOCKS)
    return tuple(name for name in BLOCKS if name not in left_out)


@dataclass(frozen=True)
class StateConfig:
    """What a state holds. `blocks` leaves blocks out of the vector (for ablations), never out of the symbols.

    `answer_size` numbers tell what an action last answered, `memory_columns` hold all answers, and `fact_columns` what they
    say word for word (memory_features.py). `goal` names the summary of the task that its columns hold (goal_summary.py).
    """

    window_turns: int = option(10, "How many of the latest messages a state holds.", least=1)
    history: int = option(5, "How many of the latest tool calls a state holds, a slot each.", least=1)
    decay: float = 0.8
    step_budget: int = option(
        30, "Steps an episode is taken to have: what is left of them is part of a state.", least=1
    )
    answer_size: int = 16
    memory_columns: int = 512
    fact_columns: int = 512
    goal: str = option(
        WHOLE,
        "What of the task's text a state holds: whole, or a summary of it (central, lead).",
        metavar="SUMMARY",
    )
    blocks: tuple[str, ...] = option(
        BLOCKS,
        "A block that states are to lack (thought, window, …); may be given again.",
        "--without",
        given=(),
        read=_blocks_without,
        metavar="BLOCK",
    )

    def __post_init__(self) -> None:
        for name in (
            "window_turns",
            "history",
            "step_budget",
            "answer_size",
            "memory_columns",
            "fact_columns",
        ):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise UsageError(f"state setting {name} is {value!r}", "give a whole number of at least 1")
        if not isinstance(self.decay, int | float) or not 0 < self.decay <= 1:
            raise UsageError(f"state setting decay is {self.decay!r}", "give a number above 0 and up to 1")
        check_summary(self.goal)
        unknown = [name for name in self.blocks if name not in BLOCKS]
        if unknown:
            raise UnknownName("state block", str(unknown[0]), BLOCKS)
        if not self.blocks:
            raise UsageError("no state block is left", f"name some of {', '.join(BLOCKS)}")
        object.__setattr__(self, "decay", float(self.decay))
        object.__setattr__(self, "blocks", tuple(name for name in BLOCKS if name in self.blocks))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "blocks": list(self.blocks)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StateConfig:
        """The inverse of `to_dict`; settings left out take their defaults."""
        known = [field.name for field in fields(cls)]
        for name in data:
            if name not in known:
                raise UnknownName("state setting", name, known)
        blocks = data.get("blocks", BLOCKS)
        if not isinstance(blocks, list | tuple):
            raise UsageError(f"state setting blocks is {blocks!r}", "give a list of names")
        return cls(**{**data, "blocks": tuple(blocks)})
