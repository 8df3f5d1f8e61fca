"""Plain aligned text tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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


def _text(value: object, limit: int) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)
