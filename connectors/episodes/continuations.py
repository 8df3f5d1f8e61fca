"""Requests of one conversation repeat all of it: which request continues which, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import xxhash

T = TypeVar("T")


@dataclass
class Continuations(Generic[T]):
    """Takes requests in the log's order. `chains` are the conversations, each the list of its requests."""

    chains: list[list[T]] = field(default_factory=list)
    latest: T | None = None
    """The request that was added last."""
    _ends: dict[str, list[int]] = field(default_factory=dict)
    _answered: dict[str, T] = field(default_factory=dict)

    def add(self, asked: Sequence[str], reply: Sequence[str], item: T) -> None:
        """Add a request: `asked` names its messages, `reply` the answer's (texts that are equal for equal messages).

        It continues the conversation of which everything, the answer included, is the beginning of what it asks; the
        longest one when there are several.
        """
        self.latest = item
        ends = _prefixes([*asked, *reply])
        for prefix in reversed(ends[: len(asked) + 1]):
            if self._ends.get(prefix):
                chain = self._ends[prefix].pop()
                self.chains[chain].append(item)
                break
        else:
            chain = len(self.chains)
            self.chains.append([item])
        if ends[-1]:
            self._ends.setdefault(ends[-1], []).append(chain)
        if reply:
            self._answered.setdefault(ends[-1], item)

    def told(self, asked: Sequence[str]) -> dict[int, T]:
        """Which request got the answers among these messages, by their index, also where another conversation has it:
        a conversation that branches off holds what was said before."""
        names = enumerate(_prefixes(asked)[1:])
        return {index: self._answered[name] for index, name in names if name in self._answered}


def _prefixes(names: Sequence[str]) -> list[str]:
    """One name for each beginning of the list; "" for the empty one, which continues nothing."""
    found = [""]
    for name in names:
        found.append(xxhash.xxh3_128_hexdigest(f"{found[-1]}\x1f{name}".encode()))
    return found
