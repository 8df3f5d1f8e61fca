"""Plain aligned text for the terminal: tables, and lists that keep within a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

LINES = 24
WIDTH = 100
"""A summary fits a screen of so many lines and columns."""


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, limit: int = 60) -> str:
    """Rows under a header; numbers to the right, cells cut at `limit` characters, None as a dash."""
    rows = [list(row) for row in rows]
    cells = [[_text(value, limit) for value in row] for row in rows]
    numeric = (
        [all(_is_number(value) for value in column) for column in zip(*rows, strict=True)] if cells else []
    )
    widths = [
        max(len(name), *(len(row[i]) for row in cells)) if cells else len(name)
        for i, name in enumerate(header)
    ]
    right = numeric or [False] * len(header)
    lines = [list(header), ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


class Count(int):
    """A number as a summary shows it: thousands separated, in seven characters at most."""

    def __str__(self) -> str:
        for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
            if self >= size:
                return f"{int(self) / size:,.1f}{unit}"
        return f"{int(self):,}"


def plural(number: int, noun: str) -> str:
    """A number with its noun: `1 source`, `1,204 sources`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cut(text: str, width: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def fit(line: str, end: str = "", width: int = WIDTH) -> str:
    """One line cut to the width, its `end` kept whole."""
    room, plain = width - len(end), " ".join(line.split("\n"))
    return cut(plain, room) + end


def ending(head: str, place: str, width: int = WIDTH) -> str:
    """One line, its place cut from the left: what tells places apart is their end."""
    plain = " ".join(place.split("\n"))
    room = max(8, width - len(head))
    return head + (plain if len(plain) <= room else "…" + plain[len(plain) - room + 1 :])


def listed(head: str, names: Sequence[str], more: str, lines: int = 1) -> list[str]:
    """As many names behind a head as some lines hold, then how many are left and where to find them."""
    for count in range(min(len(names), lines * WIDTH // 2), -1, -1):
        left = len(names) - count
        told = [*names[:count], *([f"{left:,} {more}"] if left else [])]
        shown = wrap(head + " · ".join(told), WIDTH, break_on_hyphens=False) if names else []
        if len(shown) <= lines:
            return shown
    return [fit(f"{head}{len(names):,} {more}")]


def _text(value: object, limit: int) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return cut(str(value).replace("\n", "⏎"), limit)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)
