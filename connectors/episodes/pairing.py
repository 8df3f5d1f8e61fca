"""Which call a result answers: by its id, or by its place behind the turn that made the calls."""

from __future__ import annotations

_UNIQUE = 12
"""Ids of fewer characters (`c1`, `call_0`) are counted within a session and repeat between sessions."""


def is_unique(identifier: str | None) -> bool:
    """True for an id that is long enough to be no counter."""
    return identifier is not None and len(identifier) >= _UNIQUE


class OpenCalls:
    """Of one episode. A result goes to the nearest preceding unanswered call of its id; without an id, to the earliest
    unanswered call of the latest turn with calls."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        """The unanswered calls of the latest turn, in order."""
        self._by_id: dict[str, list[int]] = {}
        self._ids: dict[int, str] = {}
        self._turns: dict[int, int] = {}
        self._turn = 0

    def turn(self) -> None:
        """The calls from here on are another turn's."""
        self._turn += 1
        self.waiting = []

    def add(self, call: int, call_id: str | None) -> None:
        """A call of the latest turn; ids may repeat, between turns and within one."""
        self.waiting.append(call)
        if call_id is not None:
            self._by_id.setdefault(call_id, []).append(call)
            self._ids[call] = call_id
            self._turns[call] = self._turn

    def take(self, call_id: str | None) -> int | None:
        """The call that a result answers, which waits no longer; None when there is none."""
        if call_id is None:
            return self.close(self.waiting[0]) if self.waiting else None
        calls = self._by_id.get(call_id)
        if not calls:
            return None
        first = len(calls) - 1
        while first > 0 and self._turns[calls[first - 1]] == self._turns[calls[-1]]:
            first -= 1
        return self.close(calls[first])

    def close(self, call: int) -> int:
        """This call waits no longer."""
        if call in self.waiting:
            self.waiting.remove(call)
        if call in self._ids:
            self._by_id[self._ids.pop(call)].remove(call)
        return call

    def knows(self, call_id: str) -> bool:
        """True for an id that some call had."""
        return call_id in self._by_id
