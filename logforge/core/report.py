"""What a command reports: data for `--json` made from a report's fields, and text made from its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

Lines: TypeAlias = "Iterable[str | None]"
"""A report's text: each part a line, a table or a blank line (""). None is nothing: `yield line if known else None`."""


@runtime_checkable
class _HasDict(Protocol):
    def as_dict(self) -> dict[str, Any]: ...


class BaseReport:
    """A report says which fields it has and which lines it shows; how is said here.

        @dataclass(frozen=True)
        class Pass(BaseReport):
            first = ("event",)
            last = ("left",)
            event: ClassVar[str] = "pass"
            read: int
            kept: int
            notes: tuple[str, ...] = ()

            @property
            def left(self) -> int:
                return self.read - self.kept

            def lines(self) -> Lines:
                yield f"{plural(self.read, 'record')} read"
                yield f"  {self.left} left out" if self.left else None
                yield from noted(self.notes)

    `Pass(3, 2).as_dict()` is {"event": "pass", "read": 3, "kept": 2, "notes": [], "left": 1}, and `render()` has two lines.
    """

    first: ClassVar[tuple[str, ...]] = ()
    """Properties and constants that are part of the data too, before the fields."""
    last: ClassVar[tuple[str, ...]] = ()
    """And those after the fields."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: the fields in their order, as plain JSON values."""
        return picked(self, *self.first, *_names(self), *self.last)

    def lines(self) -> Lines:
        """For people: the parts of the text."""
        raise NotImplementedError(type(self).__name__)

    def render(self) -> str:
        """For people."""
        return text(self.lines())


def plain(value: Any) -> Any:
    """A value as JSON holds it: reports, dataclasses, structs and named tuples by field, paths as text, NumPy as Python."""
    if isinstance(value, _HasDict):
        return value.as_dict()
    if names := _names(value):
        return picked(value, *names)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def picked(report: object, *names: str) -> dict[str, Any]:
    """These fields and properties of something, in this order, as plain JSON values."""
    return {name: plain(getattr(report, name)) for name in names}


def each(report: Any, *more: str) -> dict[str, Any]:
    """All fields of something, and more of its properties behind them, as plain JSON values."""
    return picked(report, *_names(report), *more)


def text(lines: Lines) -> str:
    """Parts of a text, each on a line of its own."""
    return "\n".join(line for line in lines if line is not None)


def noted(told: Iterable[object], head: str = "note: ") -> Iterator[str]:
    """A line for each, behind a head."""
    return (f"{head}{note}" for note in told)


def rest(items: Sequence[object], most: int, told: str = "… and {} more (--json lists all)") -> str | None:
    """What stands below a list that is cut: how many more there are."""
    return told.format(len(items) - most) if len(items) > most else None


def _names(value: Any) -> tuple[str, ...]:
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in fields(value))
    found: tuple[str, ...] = getattr(value, "_fields", ()) or getattr(value, "__struct_fields__", ())
    return found
