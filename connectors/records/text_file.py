"""Reads the small files that people write: reward specs and mappings."""

from __future__ import annotations

from pathlib import Path

from logforge.schemas import MAX_BYTES, Problem, SpecError


def read_text(path: str | Path) -> str:
    """A file's text. Raises SpecError when it is missing, no file, too long or not UTF-8."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise SpecError([Problem("no such file", str(path))], "look for a typing error in the path") from None
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise _error(path, f"longer than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(path, "not UTF-8 text", data.count(b"\n", 0, error.start) + 1) from None


def _error(path: str | Path, what: str, line: int | None = None) -> SpecError:
    return SpecError([Problem(what, str(path), line)])
