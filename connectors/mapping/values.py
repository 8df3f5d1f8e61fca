"""What a mapped value says, as the type it is read for; None when it is none. A CSV file writes everything as text."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from logforge.connectors.episodes import count_or_none, micros, text_of
from logforge.connectors.mapping.spec import written
from logforge.connectors.traces import number_of

_TRUE, _FALSE = frozenset({"true", "yes", "1", "1.0"}), frozenset({"false", "no", "0", "0.0"})
_FACTORS = {"s": Decimal(10**6), "ms": Decimal(1000), "us": Decimal(1), "ns": Decimal("0.001")}
_EARLIEST, _LATEST = 631_152_000_000_000, 4_102_444_800_000_000
"""1990 and 2100: a time outside was most likely read in the wrong unit."""


def text_in(value: Any) -> str | None:
    """The value as text."""
    return written(value) if isinstance(value, bool | int | float) else text_of(value)


def count_in(value: Any) -> int | None:
    """The value as a count."""
    number = number_of(value)
    return count_or_none(int(number)) if number is not None and number == int(number) else None


def truth_in(value: Any) -> bool | None:
    """True or false, when it is one of the words for it."""
    said = written(value).strip().lower()
    return True if said in _TRUE else False if said in _FALSE else None


def failed_in(value: Any) -> bool:
    """A flag, or an error's text: any is a failure."""
    truth = truth_in(value)
    return bool(value) if truth is None else truth


def micros_in(value: Any, unit: str | None, start: int | None = None) -> int | None:
    """A time as microseconds since 1970, UTC: ISO 8601 text, or a number in the unit (seconds when it has none).

    Under `relative` a number is seconds since `start`.
    """
    number = None if unit == "iso" and isinstance(value, str) else _decimal(value)
    if number is None:
        time = micros(value) if isinstance(value, str) else None
    elif unit == "iso" or (unit == "relative" and start is None):
        time = None
    else:
        time = int(number * _FACTORS.get(unit or "s", _FACTORS["s"])) + (start or 0)
    return time if time is not None and _EARLIEST <= time < _LATEST else None


def _decimal(value: Any) -> Decimal | None:
    """The exact number, of any size that could be a time."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = Decimal(str(value).strip())
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() and number.adjusted() < 25 else None
