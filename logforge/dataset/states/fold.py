"""What the agent knows so far, kept up to date event by event: the one way from a log, or a live session, to a State.

An event costs the same however long the episode is; what is kept are the newest messages and calls, counters, and the
calls that wait for an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from logforge.dataset.states.events import Answered, Decided, Said, events_of
from logforge.dataset.states.memory import FAILURES, PENDING, EpisodeMemory
from logforge.dataset.states.symbolic_state import GroupCall, PastCall, State, Turn
from logforge.schemas import Episode, UsageError


class Knowledge:
    """Of one episode. `window_turns` and `history` say how many messages and tool calls a State holds."""

    def __init__(self, task: str | None, window_turns: int, history: int) -> None:
        self.task = task
        self.decisions = 0
        """How many there were so far."""
        self._window: deque[Turn] = deque(maxlen=window_turns)
        self._thought: str | None = None
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._history: deque[PastCall] = deque(maxlen=history)
        self._calls = 0
        self._errors = 0
        self._unsaid: list[tuple[int, Decided]] = []
        self._waiting: dict[int, tuple[int, Decided]] = {}
        self._memory = EpisodeMemory()
        self.group: int | None = None
        """The parallel group of the latest decision."""
        self._before: dict[str, Any] = {}
        self._since: list[GroupCall] = []
        self._now: dict[str, Any] | None = None

    def say(self, event: Said) -> None:
        """A message; the decisions it carries become part of the history."""
        self.commit()
        self._window.append(Turn(event.role, event.content))
        self._thought = event.thought or self._thought
        if event.role == "user":
            self._memory.heard(event.content)
        if event.at is not None:
            self._last_at = event.at / 1e6
            if self._first_at is None:
                self._first_at = self._last_at

    def commit(self) -> None:
        """The decisions so far become part of the history."""
        self._now = None
        for number, decided in self._unsaid:
            self._memory.decided(number, decided.action, decided.is_tool)
            if decided.is_tool:
                self._waiting[number] = self._calls, decided
                self._calls += 1
                self._history.append(PastCall(decided.action, PENDING, None, decided.arguments))
        self._unsaid.clear()

    def decide(self, event: Decided) -> int:
        """A decision; returns its number."""
        if event.group is None or event.group != self.group:
            self.group = event.group
            self._before = {} if event.group is None else self._known()
            self._since = self._together()
        number, self.decisions = self.decisions, self.decisions + 1
        self._unsaid.append((number, event))
        self._since.append(GroupCall(event.action, event.arguments))
        return number

    def awaits(self, decision: int) -> bool:
        """Whether a decision is a call that has been made known and has no result yet."""
        return decision in self._waiting

    def answer(self, event: Answered) -> None:
        """A call's result. Raises UsageError for a decision that waits for none."""
        if not self.awaits(event.decision):
            remedy = "answer each call once, after the message that makes it"
            raise UsageError(f"decision {event.decision} waits for no result", remedy)
        self._now = None
        call, decided = self._waiting.pop(event.decision)
        self._memory.answered(event.decision, decided.action, event.status, event.content)
        self._errors += event.status in FAILURES
        slot = call - self._calls + len(self._history)
        if slot >= 0:
            status = event.status or PENDING
            self._history[slot] = PastCall(
                decided.action, status, event.error_class, decided.arguments, event.content, event.latency_s
            )

    def state(self, mask: tuple[str, ...], group: int | None = None) -> State:
        """What is known before the next decision; before one of the same parallel group, what was known before its first."""
        if group is not None and group == self.group:
            known, together = self._before, self._since
        else:
            known, together = self._known(), self._together()
        return State(**known, group=tuple(together), steps_used=self.decisions, mask=mask)

    def _known(self) -> dict[str, Any]:
        """The fields of a State that the events so far decide."""
        if self._now is None:
            first, last = self._first_at, self._last_at
            self._now = {
                "task": self.task,
                "window": tuple(self._window),
                "thought": self._thought,
                "history": tuple(self._history),
                "errors": self._errors,
                "memory": self._memory.recall(),
                "elapsed": None if first is None or last is None else max(0.0, last - first),
                "hour": None if last is None else last % 86_400 / 3600,
            }
        return self._now

    def _together(self) -> list[GroupCall]:
        """The decisions whose message has not been said yet."""
        return [GroupCall(decided.action, decided.arguments) for _, decided in self._unsaid]


def states_of(
    episode: Episode, masks: Sequence[tuple[str, ...]], window_turns: int, history: int
) -> list[State]:
    """The state before each step, and the final one, which sees the whole episode. `masks` names what was allowed in each."""
    knowledge = Knowledge(episode.task, window_turns, history)
    states: list[State] = []
    for event in events_of(episode):
        if isinstance(event, Decided):
            states.append(knowledge.state(masks[len(states)], event.group))
            knowledge.decide(event)
        elif isinstance(event, Said):
            knowledge.say(event)
        elif isinstance(event, Answered):
            knowledge.answer(event)
    return [*states, knowledge.state(masks[len(states)])]
