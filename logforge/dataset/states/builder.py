"""The one StateBuilder, used to build datasets and to serve: episodes to symbols, symbols to vectors.

Symbols and keys are in logforge/dataset/states/symbolic_state.py, the columns of a vector in logforge/dataset/states/features.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from logforge.dataset.actions import ActionSpace, renamed
from logforge.dataset.states import features
from logforge.dataset.states.config import BLOCKS, StateConfig
from logforge.dataset.states.features import Block
from logforge.dataset.states.fold import states_of
from logforge.dataset.states.memory_features import memory_block
from logforge.dataset.states.symbolic_state import State, canonical_key, state_key
from logforge.schemas import Episode, FeatureSlice, Mismatch
from logforge.texts import TextVectors, is_blank

__all__ = ["BLOCKS", "State", "StateBuilder", "StateConfig", "canonical_key", "state_key"]


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
