"""Which connectors came near to a file, and what they looked for and did not find.

A connector says only how sure it is. So it is shown a head whose sets of keys remember what they were asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from logforge.connectors import registry
from logforge.connectors.records import Connector, Head

_SHOWN = 3


class Question(NamedTuple):
    """Keys that a connector looked for at a path of the first record: all of them, or one of them."""

    path: str
    keys: frozenset[str]
    needs_all: bool
    found: frozenset[str]

    @property
    def is_met(self) -> bool:
        """Whether what it looked for is there."""
        return self.found == self.keys if self.needs_all else bool(self.found)

    def named(self, keys: Iterable[str]) -> list[str]:
        """Keys with the path to them."""
        return sorted(f"{self.path}.{key}" if self.path else key for key in keys)


@dataclass(frozen=True)
class Near:
    """A connector that knows some of the keys, and why it left the file alone."""

    connector: str
    found: tuple[str, ...]
    missing: tuple[str, ...]
    """Each a key, or several of which one would do (`a or b`)."""

    @property
    def line(self) -> str:
        """For people."""
        found = ", ".join(self.found)
        if not self.missing:
            return f"{self.connector}: knows {found}, but not the rest of what the file begins with"
        return f"{self.connector}: found {found}; looked for {', '.join(self.missing)} in vain"


class _Asked(set[str]):
    """Keys that remember what they were asked for."""

    def __init__(self, keys: Iterable[str], path: str, asked: list[Question]) -> None:
        super().__init__(keys)
        self.path, self.asked = path, asked

    def _note(self, keys: Iterable[Any], needs_all: bool) -> None:
        wanted = frozenset(key for key in keys if isinstance(key, str))
        if wanted:
            self.asked.append(Question(self.path, wanted, needs_all, wanted & frozenset(iter(self))))

    def __contains__(self, key: object) -> bool:
        self._note([key], True)
        return super().__contains__(key)

    def __ge__(self, other: Set[Any]) -> bool:
        self._note(other, True)
        return super().__ge__(other)

    def __and__(self, other: Set[Any]) -> set[str]:
        self._note(other, False)
        return set(super().__and__(other))

    def __rand__(self, other: Set[Any]) -> set[str]:
        return self & other

    def __or__(self, other: Set[Any]) -> _Asked:  # type: ignore[override]
        return _Asked({*self, *other}, self.path, self.asked)

    def __ror__(self, other: Set[Any]) -> _Asked:
        return self | other


class _AskedPaths(dict[str, set[str]]):
    """The keys by path, each set of which remembers; a path that is not there too."""

    def __init__(self, keys: dict[str, set[str]], asked: list[Question]) -> None:
        super().__init__({path: _Asked(held, path, asked) for path, held in keys.items()})
        self.asked = asked

    def get(self, path: str, default: Any = None) -> Any:
        """The set at a path."""
        found = super().get(path)
        return _Asked((), path, self.asked) if found is None and default is not None else found


def near_connectors(head: Head) -> tuple[Near, ...]:
    """The connectors that found most of what they looked for and claimed nothing, the nearest first."""
    ranked = []
    for connector in registry().values():
        asked = _asked(connector, head)
        if asked is None:
            continue
        if asked and asked[-1].is_met:
            asked.pop()  # what it found last made it leave the file alone
        found = {name for question in asked for name in question.named(question.found)}
        missing = _missing(asked, found)
        if found and not any(name in found for name in missing):
            share = len(found) / (len(found) + len(missing))
            ranked.append(
                (-len(found) * share, connector.name, Near(connector.name, tuple(sorted(found)), missing))
            )
    return tuple(near for *_, near in sorted(ranked, key=lambda one: one[:2])[:_SHOWN])


def _asked(connector: Connector, head: Head) -> list[Question] | None:
    """What a connector looked for; None when it claims the file, or failed at looking."""
    asked: list[Question] = []
    shown = head._replace(keys=_AskedPaths(head.keys, asked))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            claimed = connector.sniff(shown) > 0
        except Exception:
            return None
    return None if claimed else asked


def _missing(asked: list[Question], found: set[str]) -> tuple[str, ...]:
    """What was wanted as a whole and is not all there; and the last question, which decided, where one key would have done."""
    wanted: list[str] = []
    for question in asked:
        names = [name for name in question.named(question.keys) if name not in found]
        if question.is_met or not (question.needs_all or question is asked[-1]):
            continue
        wanted += names if question.needs_all else [" or ".join(names[:4])]
    return tuple(dict.fromkeys(wanted))[:6]
