"""Progress of long work: one line on stderr, on a terminal only."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[int, int, str], None]
"""Called with the amount done, the amount in all and a word on what is at hand."""

_EVERY_S = 0.1
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text from a log, safe for a terminal: control characters and direction overrides become a visible dot."""
    return _CONTROL.sub("·", text)


def silent(done: int, total: int, note: str = "") -> None:
    """A progress callback that says nothing."""


class Pace:
    """The speed since some work began. What was done when it was first told of took no time: it lay in a cache."""

    def __init__(self) -> None:
        self._begun, self._first, self._last, self._total = 0.0, 0, 0, -1

    def per_second(self, done: int, total: int, now: float) -> float:
        """How much is done in a second (0: not known yet). Another total, or less done than before, is other work."""
        if total != self._total or done < self._last:
            self._begun, self._first, self._total = now, done, total
        self._last = done
        return (done - self._first) / (now - self._begun) if now > self._begun else 0.0


def drawn(done: int, total: int, rate: float) -> str:
    """A bar with the share that is done, the speed and the time left."""
    share = done / total if total else 1.0
    blocks = "█" * int(24 * share)
    pace = f"  {short(rate)}/s  {clock((total - done) / rate)} left" if rate > 0 else ""
    return f"{blocks:░<24} {share:4.0%}{pace}"


def short(number: float) -> str:
    """A number with three digits or so: 0.42, 58, 8.8k, 45M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def clock(seconds: float) -> str:
    """A span of time: 42 s, 3:07, 2:05:09."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


@contextmanager
def bar(title: str) -> Iterator[Tick]:
    """A callback that draws the progress of `title` with its share, speed and time left."""
    if not sys.stderr.isatty():
        yield silent
        return
    last, pace = time.monotonic(), Pace()

    def tick(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        rate = pace.per_second(done, total, now)
        if now - last < _EVERY_S and done < total:
            return
        last = now
        sys.stderr.write(f"\r\x1b[K{title} {drawn(done, total, rate)}  {printable(note)[-30:]}")
        sys.stderr.flush()

    try:
        yield tick
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
