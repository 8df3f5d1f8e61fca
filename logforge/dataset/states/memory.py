"""What an agent remembers of the whole episode, however long ago: what each action last answered, and what the user said.

The window of a state forgets; this does not. It is a fold: events go in one by one, in the order of their positions, and
`recall` says what is known after them. So a conversation that goes on costs the same at each event.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

PENDING: Final = "pending"
"""The status of a call whose result was not known at the decision."""
FAILURES: Final = frozenset({"error", "timeout", "refused"})
"""The result statuses that count as errors so far."""

SAID_KEPT: Final = 64
"""So many of the user's messages are remembered, the newest: a state does not grow with the episode."""


class Remembered(NamedTuple):
    """What is known of one action: how often it was taken, the number of the last step that did, that step's status, and
    the text of the last answer that was no failure. What the user says next answers an action of speaking."""

    action: str
    calls: int
    last: int
    status: str
    answer: str | None


class Memory(NamedTuple):
    """What is remembered: of each action, by name, and what the user said after their first message (the newest of it, see
    SAID_KEPT)."""

    actions: tuple[Remembered, ...] = ()
    said: tuple[str, ...] = ()


class EpisodeMemory:
    """The fold. Tell it each decision once it is known, each result as it comes, and what the user says."""

    def __init__(self) -> None:
        self._actions: dict[str, Remembered] = {}
        self._said: deque[str] = deque(maxlen=SAID_KEPT)
        self._spoke: str | None = None
        self._opened = False

    def decided(self, number: int, action: str, is_tool: bool) -> None:
        """Decision `number`, counted from 0, was to call a tool or to speak."""
        before = self._actions.get(action)
        calls, answer = (before.calls + 1, before.answer) if before else (1, None)
        self._actions[action] = Remembered(action, calls, number, PENDING, answer)
        if not is_tool:
            self._spoke = action

    def answered(self, number: int, action: str, status: str | None, text: str | None) -> None:
        """The result of decision `number` came."""
        known, status = self._actions[action], status or PENDING
        if number == known.last:
            known = known._replace(status=status)
        if status not in FAILURES:
            known = known._replace(answer=text)
        self._actions[action] = known

    def heard(self, text: str | None) -> None:
        """The user said something."""
        if self._spoke is not None:
            self.answered(self._actions[self._spoke].last, self._spoke, "ok", text)
            self._spoke = None
        if self._opened and text:
            self._said.append(text)
        self._opened = True

    def recall(self) -> Memory:
        """What is remembered now."""
        return Memory(tuple(self._actions[name] for name in sorted(self._actions)), tuple(self._said))
