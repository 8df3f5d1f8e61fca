"""What a field of settings says about its option on the command line: `option(30, "How many steps.", least=1)`.

The field is the one place of an option's default, help, bounds and names; logforge/cli/options.py makes click options of the
fields. Settings that commands take live in light modules: each is loaded for `logforge --help`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

KEY: Final = "option"
"""Of a field's metadata."""
T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """A field's option. What is left out follows from the field: `--text-size` from `text_size`, its type from the annotation."""

    help: str | None = None
    flags: tuple[str, ...] = ()
    given: Any = None
    """The default as a user would write it, where the field holds something else."""
    read: Callable[[Any], Any] | None = None
    """Makes the field's value of what was written; what is wrong with it is a ValueError or an error of logforge."""
    choices: tuple[str, ...] = ()
    path: Literal["", "any", "folder"] = ""
    least: float | None = None
    most: float | None = None
    above: bool = False
    """The least value itself is refused."""
    below: bool = False
    """The greatest value itself is refused."""
    metavar: str | None = None
    switch: bool = False
    """A yes or no that has both forms: `--redact/--no-redact`."""
    shown: bool = True
    """Whether the help tells the default."""


def told(help: str | None = None, *flags: str, **more: Any) -> dict[str, Option]:
    """The metadata of a field that is an option."""
    return {KEY: Option(help, flags, **more)}


def option(default: T, help: str | None = None, *flags: str, **more: Any) -> T:
    """A field with a default that is an option; `more` are the fields of Option."""
    return field(default=default, metadata=told(help, *flags, **more))
