"""What the agent knew, in symbols: one state per decision, each a function of what lies strictly before it.

A decision's *cut* is the position of its turn (of the first call of its parallel group). Known are messages and
results below the cut, and the names and arguments of the group's earlier calls. Nothing that describes the episode
as a whole enters, except its task; the mask is what was offered at that decision. A call whose result is not known is `pending`, even
when the log will never hold one: the absence of a result shows only in hindsight.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import xxhash

from logforge.dataset.states.memory import FAILURES, PENDING, Memory
from logforge.texts import mask_volatile

__all__ = ["FAILURES", "PENDING", "GroupCall", "PastCall", "State", "Turn", "canonical_key", "state_key"]

_MASKED_TEXTS: Final = 4096


class Turn(NamedTuple):
    """A message of the window."""

    role: str
    content: str | None


class PastCall(NamedTuple):
    """An earlier tool step with what was known of its result. `latency` is the seconds it took, where that is known: as time
    it is a feature, but no part of a state's key."""

    action: str
    status: str
    error_class: str | None
    arguments: str = "{}"
    result: str | None = None
    latency: float | None = None


class GroupCall(NamedTuple):
    """An earlier call of the same parallel group."""

    action: str
    arguments: str


class State(msgspec.Struct, frozen=True):
    """What was known before a decision. Oldest first; `mask` holds the names of the allowed actions, sorted; `memory` is what
    is known of the whole episode.

    `elapsed` is the time in seconds from the first to the last message known that have one, `hour` the latter's hour
    of day in UTC. Both are features, but no part of a state's key.
    """

    task: str | None
    window: tuple[Turn, ...]
    thought: str | None
    history: tuple[PastCall, ...]
    group: tuple[GroupCall, ...]
    steps_used: int
    errors: int
    mask: tuple[str, ...]
    memory: Memory = Memory()
    elapsed: float | None = None
    hour: float | None = None


def state_key(state: State) -> str:
    """32 hex digits: equal for states that are equal in all but time."""
    return _key(state, lambda text: text)


def canonical_key(state: State) -> str:
    """The same with numbers, ids, dates and names masked in every text and in arguments."""
    return _key(state, _masked)


def _key(state: State, text: Callable[[str | None], str | None]) -> str:
    symbols = (
        text(state.task),
        [(role, text(content)) for role, content in state.window],
        text(state.thought),
        [(c.action, c.status, c.error_class, text(c.arguments), text(c.result)) for c in state.history],
        [(action, text(arguments)) for action, arguments in state.group],
        state.steps_used,
        state.errors,
        state.mask,
        [(*known[:4], text(known.answer)) for known in state.memory.actions],
        [text(said) for said in state.memory.said],
    )
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(symbols))


@lru_cache(maxsize=_MASKED_TEXTS)
def _masked(text: str | None) -> str | None:
    return None if text is None else mask_volatile(text)
