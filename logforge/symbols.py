"""What the agent knew, in symbols: one state per decision, each a function of what lies strictly before it.

A decision's *cut* is the position of its turn (of the first call of its parallel group). Known are messages and
results below the cut, and the names and arguments of the group's earlier calls. Nothing that describes the episode
as a whole enters, except its task; the mask is what was offered at that decision. A call whose result is not known is `pending`, even
when the log will never hold one: the absence of a result shows only in hindsight.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec
import xxhash

from logforge.canonical import mask_volatile
from logforge.schemas.episode import Episode, Step

PENDING: Final = "pending"
"""The status of a call whose result was not known at the decision."""
FAILURES: Final = frozenset({"error", "timeout", "refused"})
"""The result statuses that count as errors so far."""
_END: Final = 2**62
_MASKED_TEXTS: Final = 4096


class Turn(NamedTuple):
    """A message of the window."""

    role: str
    content: str | None


class PastCall(NamedTuple):
    """An earlier tool step with what was known of its result."""

    action: str
    status: str
    error_class: str | None


class GroupCall(NamedTuple):
    """An earlier call of the same parallel group."""

    action: str
    arguments: str


class State(msgspec.Struct, frozen=True):
    """What was known before a decision. Oldest first; `mask` holds the names of the allowed actions, sorted.

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
    elapsed: float | None = None
    hour: float | None = None


def states_of(
    episode: Episode, masks: Sequence[tuple[str, ...]], window_turns: int, history: int
) -> list[State]:
    """The state before each step, and the final one, which sees the whole episode. `masks` names what was allowed in each."""
    log = _Log(episode)
    cuts = [*_cuts(episode.steps), _END]
    pairs = zip(cuts, masks, strict=True)
    return [log.state(index, cut, mask, window_turns, history) for index, (cut, mask) in enumerate(pairs)]


def _cuts(steps: Sequence[Step]) -> list[int]:
    """The position of each step's turn; calls of one parallel group share that of its first call."""
    first: dict[int, int] = {}
    return [
        step.position if step.parallel_group is None else first.setdefault(step.parallel_group, step.position)
        for step in steps
    ]


class _Log:
    """An episode laid out for looking up what lies below a position."""

    def __init__(self, episode: Episode) -> None:
        messages, self.steps = episode.messages, episode.steps
        self.task = episode.task
        self.positions = [m.position for m in messages]
        self.turns = tuple(Turn(m.role, m.content) for m in messages)
        self.thoughts = [(m.position, m.thought) for m in messages if m.thought]
        self.times = [(m.position, m.created_at / 1e6) for m in messages if m.created_at is not None]
        self.step_positions = [step.position for step in self.steps]
        self.tools = [step for step in self.steps if step.kind == "tool"]
        self.tools_before = [0, *accumulate(step.kind == "tool" for step in self.steps)]
        self.failures = sorted(step.result_position or 0 for step in self.tools if _fails(step))

    def state(self, index: int, cut: int, mask: tuple[str, ...], window_turns: int, history: int) -> State:
        before = bisect_left(self.step_positions, cut, 0, index)
        known = bisect_left(self.positions, cut)
        tools = self.tools_before[before]
        thoughts = _below(self.thoughts, cut)
        times = _below(self.times, cut)
        return State(
            task=self.task,
            window=self.turns[max(0, known - window_turns) : known],
            thought=self.thoughts[thoughts - 1][1] if thoughts else None,
            history=tuple(_past(step, cut) for step in self.tools[max(0, tools - history) : tools]),
            group=tuple(GroupCall(step.action, step.arguments) for step in self.steps[before:index]),
            steps_used=index,
            errors=bisect_left(self.failures, cut),
            mask=mask,
            elapsed=max(0.0, self.times[times - 1][1] - self.times[0][1]) if times else None,
            hour=self.times[times - 1][1] % 86_400 / 3600 if times else None,
        )


def _below(items: Sequence[tuple[int, object]], cut: int) -> int:
    return bisect_left(items, cut, key=lambda item: item[0])


def _fails(step: Step) -> bool:
    known_later = step.result_position is not None and step.result_position > step.position
    return known_later and step.result_status in FAILURES


def _past(step: Step, cut: int) -> PastCall:
    if step.result_position is None or step.result_position >= cut:
        return PastCall(step.action, PENDING, None)
    return PastCall(step.action, step.result_status or PENDING, step.error_class)


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
        state.history,
        [(action, text(arguments)) for action, arguments in state.group],
        state.steps_used,
        state.errors,
        state.mask,
    )
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(symbols))


@lru_cache(maxsize=_MASKED_TEXTS)
def _masked(text: str | None) -> str | None:
    return None if text is None else mask_volatile(text)
