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


@contextmanager
def bar(title: str) -> Iterator[Tick]:
    """A callback that draws the progress of `title` with its share, speed and time left."""
    if not sys.stderr.isatty():
        yield silent
        return
    start = last = time.monotonic()

    def tick(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _EVERY_S and done < total:
            return
        last = now
        share = done / total if total else 1.0
        left = (now - start) / share - (now - start) if share else 0.0
        blocks = "█" * int(24 * share)
        line = f"{title} {blocks:░<24} {share:4.0%}  {left:5.0f} s left  {printable(note)[-30:]}"
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    try:
        yield tick
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
