"""The one StateBuilder, used to build datasets and to serve: episodes to symbols, symbols to vectors.

Symbols and keys are in logforge/dataset/states/symbols.py, the columns of a vector in logforge/dataset/states/features.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from logforge.dataset.actions.names import renamed
from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.states import features
from logforge.dataset.states.features import Block
from logforge.dataset.states.fold import states_of
from logforge.dataset.states.goal_summary import WHOLE, check_summary
from logforge.dataset.states.memory_features import memory_block
from logforge.dataset.states.symbols import State, canonical_key, state_key
from logforge.schemas.episode import Episode
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import FeatureSlice
from logforge.texts.encoders import TextVectors, is_blank

__all__ = ["BLOCKS", "State", "StateBuilder", "StateConfig", "canonical_key", "state_key"]

BLOCKS = ("task", "last_message", "window", "thought", "history", "memory", "group", "meta", "mask")
"""Every block of a vector, in its order."""


@dataclass(frozen=True)
class StateConfig:
    """What a state holds. `blocks` leaves blocks out of the vector (for ablations), never out of the symbols.

    `answer_size` numbers tell what an action last answered, `memory_columns` hold all answers, and `fact_columns` what they
    say word for word (memory_features.py). `goal` names the summary of the task that its columns hold (goal_summary.py).
    """

    window_turns: int = 10
    history: int = 5
    decay: float = 0.8
    step_budget: int = 30
    answer_size: int = 16
    memory_columns: int = 512
    fact_columns: int = 512
    goal: str = WHOLE
    blocks: tuple[str, ...] = BLOCKS

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


class StateBuilder:
    """Builds states for one action space. `text_size` is the size of the text vectors it will be given."""

    def __init__(self, config: StateConfig, space: ActionSpace, text_size: int) -> None:
        self.config, self.space, self.text_size = config, space, text_size

    def symbols(self, episode: Episode, now: list[str] | None = None) -> list[State]:
        """The state before each step, and the final one, in which the tools `now` are offered (without: those of the last step)."""
        episode = renamed(episode, self.space.vocabulary.aliases)
        offered = self.space.offered(episode, now)
        return states_of(episode, offered, self.config.window_turns, self.config.history)

    def texts(self, states: Iterable[State]) -> set[str]:
        """The texts whose vectors `vectors` needs; blank ones need none."""
        found = {text for state in states for block in self._blocks for text in block.texts(state)}
        return {text for text in found if text is not None and not is_blank(text)}

    def layout(self) -> list[FeatureSlice]:
        """The named columns of a vector, in order and without gaps."""
        named = [field for block in self._blocks for field in block.fields]
        edges = pairwise(accumulate((field.size for field in named), initial=0))
        return [
            FeatureSlice(f.name, start, stop, f.meaning)
            for f, (start, stop) in zip(named, edges, strict=True)
        ]

    @property
    def size(self) -> int:
        """How many columns a vector has."""
        return sum(block.size for block in self._blocks)

    def vectors(self, states: Sequence[State], lookup: TextVectors) -> npt.NDArray[np.float32]:
        """One row per state. `lookup` holds the (reduced) vectors of at least `texts(states)`."""
        if lookup.size != self.text_size:
            remedy = "reduce them with the dataset's own PCA"
            raise Mismatch("size of the text vectors", self.text_size, lookup.size, remedy)
        out = np.zeros((len(states), self.size), np.float32)
        start = 0
        for block in self._blocks:
            block.fill(out[:, start : start + block.size], states, lookup)
            start += block.size
        return out

    @cached_property
    def _blocks(self) -> list[Block]:
        config, vocabulary, size = self.config, self.space.vocabulary, self.text_size
        every = {
            "task": features.task_block(size, config.goal),
            "last_message": features.last_message_block(size),
            "window": features.window_block(size, config.window_turns, config.decay),
            "thought": features.thought_block(size),
            "history": features.history_block(size, config.history, vocabulary),
            "memory": memory_block(
                size,
                vocabulary,
                config.step_budget,
                config.answer_size,
                config.memory_columns,
                config.fact_columns,
            ),
            "group": features.group_block(vocabulary),
            "meta": features.meta_block(config.step_budget),
            "mask": features.mask_block(vocabulary),
        }
        return [every[name] for name in config.blocks]
