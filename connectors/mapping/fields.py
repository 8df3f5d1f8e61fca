"""Reads the fields of one record: remembers which of its values were read, and sets aside those that cannot be.

What nothing read is the record's rest, which becomes the episode's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import Outcome, amount_of, cost_or_none, text_or_none, truth_of
from logforge.connectors.mapping.paths import Spot, Trail
from logforge.connectors.mapping.spec import Expression
from logforge.connectors.mapping.values import count_in, failed_in, micros_in, text_in, truth_in
from logforge.connectors.records import excerpt
from logforge.connectors.traces import inside, number_of
from logforge.schemas import Reject

_T = TypeVar("_T")
_HERE = object()


@dataclass
class FieldReader:
    """Reads fields of one record as text, numbers, times and flags."""

    record: Spot
    unit: str | None = None
    start: int | None = None
    """The run's start, which relative times count from."""
    read: set[Trail] = field(default_factory=set)
    _bad: dict[tuple[str, str], Reject] = field(default_factory=dict)

    @property
    def bad(self) -> list[Reject]:
        """The values that could not be read, each once."""
        return list(self._bad.values())

    def find(self, wanted: Expression | None, here: Spot | None = None) -> Spot | None:
        """Where a field's value stands; blank text where nothing else is. Looking does not count as reading, but for null,
        which says nothing."""
        if wanted is None:
            return None
        here, blank = here or self.record, None
        for spot in wanted.candidates(here, self.record):
            if spot.value is None:
                self.read.add(spot.trail)
            elif is_blank(spot.value):
                blank = blank or spot
            elif (found := wanted.means(spot)) is not None:
                return found
        if blank is not None and (found := wanted.means(blank)) is not None:
            return found
        return wanted.otherwise(here)

    def take(self, found: Spot | None) -> Any:
        """A value as it is; it was read."""
        if found is None:
            return None
        self.read.add(found.trail)
        return found.value

    def text(self, wanted: Expression | None, here: Spot | None = None) -> str | None:
        """A field as text. Where its path leads to several values (a list of parts), they are joined by line breaks."""
        said = [text_in(self.take(spot)) for spot in self.spots(wanted, here)]
        return "\n".join(text for text in said if text is not None) if said else None

    def spots(self, wanted: Expression | None, here: Spot | None = None) -> list[Spot]:
        """Where the values of a text stand."""
        found = self.find(wanted, here)
        if found is None or wanted is None or wanted.values is not None:
            return [] if found is None else [found]
        return self._beside(wanted, found, here or self.record)

    def _beside(self, wanted: Expression, found: Spot, here: Spot) -> list[Spot]:
        """Everything that the path leads to which leads to what was found."""
        for path in wanted.paths:
            spots = [spot for spot in path.find(here, self.record) if spot.value is not None]
            if any(spot.trail == found.trail for spot in spots):
                return spots
        return [found]

    def word(self, wanted: Expression | None, here: Spot | None = None) -> str | None:
        """A scalar as text: an id, a name."""
        return self._typed(wanted, here, text_or_none, "neither text nor a number")

    def one_of(
        self, wanted: Expression | None, words: tuple[str, ...], here: Spot | None = None
    ) -> str | None:
        """One of these words."""

        def known(value: Any) -> str | None:
            return value if value in words else None

        return self._typed(wanted, here, known, f"none of {', '.join(words)}")

    def number(self, wanted: Expression | None, here: Spot | None = None) -> float | None:
        """A finite number."""
        return self._typed(wanted, here, number_of, "no number")

    def count(self, wanted: Expression | None, here: Spot | None = None) -> int | None:
        """A whole number, not negative."""
        return self._typed(wanted, here, count_in, "no count")

    def cost(self, wanted: Expression | None, here: Spot | None = None) -> float | None:
        """US dollars, not negative."""
        return self._typed(wanted, here, cost_or_none, "no cost")

    def names(self, wanted: Expression | None, here: Spot | None = None) -> list[str] | None:
        """Names of tools, from names or definitions: one list of them, or all that the path leads to."""
        if wanted is None:
            return None
        spots = wanted.every(here or self.record, self.record)
        found = [inside(self.take(spot), spot.where)[0] for spot in spots]
        if not found and wanted.default is not None:
            found = [wanted.default]
        if not found:
            return None
        return tool_names(found[0] if len(found) == 1 and isinstance(found[0], list) else found)

    def truth(self, wanted: Expression | None, here: Spot | None = None) -> bool | None:
        """True or false."""
        return self._typed(wanted, here, truth_in, "none of true, false, yes, no, 1, 0")

    def outcome(self, success: Expression | None, score: Expression | None) -> Outcome:
        """A verdict and a number, each with the place it was read from."""
        truth = self._typed(success, None, truth_of, "none of true, false, yes, no, passed, failed, 1, 0")
        number = self._typed(score, None, amount_of, "no number")
        wanted = (success if truth is not None else None, score if number is not None else None)
        spots = [spot for spot in map(self.find, wanted) if spot is not None]
        named = dict.fromkeys(".".join(map(str, spot.trail)) or "value" for spot in spots)
        return Outcome(truth, number, "+".join(named) or None)

    def failed(self, wanted: Expression | None, here: Spot | None = None) -> bool | None:
        """A flag or an error's text."""
        found = self.find(wanted, here)
        return failed_in(self.take(found)) if found is not None else None

    def time(self, wanted: Expression | None, here: Spot | None = None) -> int | None:
        """A time as microseconds since 1970. A relative one that has no start to count from is not read."""
        found = self.find(wanted, here)
        if self.unit == "relative" and self.start is None and found and number_of(found.value) is not None:
            self.read.discard(found.trail)  # `order` may have read it, but only to sort
            return None
        what = f"no time between 1990 and 2100 (time_unit {self.unit or 'not given'})"
        return self._typed(wanted, here, lambda value: micros_in(value, self.unit, self.start), what)

    def begin(self, wanted: Expression | None) -> None:
        """Read the run's start, which is never relative itself."""
        unit = None if self.unit == "relative" else self.unit
        what = f"no time between 1990 and 2100 (time_unit {self.unit or 'not given'})"
        self.start = self._typed(wanted, None, lambda value: micros_in(value, unit), what)

    def _typed(
        self, wanted: Expression | None, here: Spot | None, convert: Callable[[Any], _T | None], what: str
    ) -> _T | None:
        found = self.find(wanted, here)
        if found is None or wanted is None:
            return None
        blank = is_blank(found.value)
        value = None if blank else convert(found.value)
        if value is not None or blank:
            self.read.add(found.trail)
            return value
        self.read.discard(found.trail)
        text = excerpt(found.value)
        self._bad[wanted.name, found.locator] = Reject(
            level="part",
            locator=found.locator,
            reason=f"{wanted.name}: {what}",
            rule="bad_value",
            detail=text[:200],
            excerpt=text,
        )
        return None

    def rest(self) -> Any:
        """What was not read; None when all was."""
        return without(self.record.value, self.read)


def is_blank(value: Any) -> bool:
    """Text that says nothing."""
    return isinstance(value, str) and not value.strip()


def without(value: Any, trails: Iterable[Trail]) -> Any:
    """A value without what the trails lead to. An object left empty goes; in a list null keeps the others' places."""
    tree: dict[Any, Any] = {}
    for trail in trails:
        node = tree
        for token in trail:
            node = node.setdefault(token, {})
        node[_HERE] = {}
    kept = _without(value, tree)
    return None if kept is _HERE else kept


def _without(value: Any, tree: dict[Any, Any]) -> Any:
    if _HERE in tree:
        return _HERE
    held, _ = inside(value, str)
    if isinstance(held, dict) and not held.keys().isdisjoint(tree):
        pairs = {key: _without(item, tree[key]) if key in tree else item for key, item in held.items()}
        return {key: item for key, item in pairs.items() if item is not _HERE} or _HERE
    if isinstance(held, list) and any(index in tree for index in range(len(held))):
        items = [_without(item, tree[index]) if index in tree else item for index, item in enumerate(held)]
        return (
            _HERE
            if all(item is _HERE for item in items)
            else [None if item is _HERE else item for item in items]
        )
    return value
