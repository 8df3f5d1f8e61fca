"""What a mapped field says, as the type it is read for. A CSV file writes everything as text."""

from __future__ import annotations

from logforge.connectors.attributes import Found, number_of
from logforge.connectors.content import count_or_none, micros, text_of
from logforge.connectors.mapping_spec import written

_TRUE, _FALSE = frozenset({"true", "yes", "1", "1.0"}), frozenset({"false", "no", "0", "0.0"})


def text_in(found: Found | None) -> str | None:
    """The value as text."""
    value = found.value if found else None
    return written(value) if isinstance(value, bool | int | float) else text_of(value)


def number_in(found: Found | None) -> float | None:
    """The value as a finite number."""
    return number_of(found.value) if found else None


def count_in(found: Found | None) -> int | None:
    """The value as a count."""
    number = number_in(found)
    return count_or_none(int(number)) if number is not None else None


def truth_in(found: Found | None) -> bool | None:
    """True or false, when it is one of the words for it."""
    said = written(found.value).strip().lower() if found else ""
    return True if said in _TRUE else False if said in _FALSE else None


def failed_in(found: Found | None) -> bool | None:
    """A flag, or an error's text: any is a failure."""
    if found is None:
        return None
    truth = truth_in(found)
    return bool(found.value) if truth is None else truth


def micros_in(found: Found | None) -> int | None:
    """A time (ISO 8601, Unix seconds) as microseconds since 1970, UTC."""
    if found is None:
        return None
    time = micros(found.value)
    if time is None and (number := number_of(found.value)) is not None:
        time = micros(number)
    return time if time is not None and abs(time) < 1 << 62 else None
