"""The one exception tree.

LogforgeError                 anything logforge refuses; `exit_code` is the command's exit status
├── UsageError          (2)   a command or call was given something it cannot take
│   └── UnknownName     (2)   a name outside a known set; lists the valid ones
├── SpecError           (2)   a reward spec or config file is wrong; lists every problem with its line
├── InputError          (1)   a log cannot be read as what it claims to be
├── CheckFailed         (1)   data broke a rule, or a gate was not met; lists every failure
├── Mismatch            (1)   two artefacts do not belong together (policy and dataset, shard and manifest)
├── MissingExtra        (3)   an optional dependency is needed; the message gives the pip command
└── StoreError          (4)   the environment fails: store locked, disk full, not a store

Errors carry data, their message is derived from it, and they survive pickling (ingest runs in worker processes).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class LogforgeError(Exception):
    """Anything logforge refuses. `exit_code` is the exit status the command line gives it."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__.copy(), self.args))

    def as_dict(self) -> dict[str, object]:
        """The error as data, for `--json`."""
        return {"error": type(self).__name__, "message": str(self), **self.__dict__}


def _rebuild(kind: type[LogforgeError], state: dict[str, object], args: tuple[object, ...]) -> LogforgeError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = args
    return error


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where: `what @ path:line $.field`."""

    what: str
    path: str = ""
    line: int | None = None
    field: str = ""

    def __str__(self) -> str:
        place = self.path + (f":{self.line}" if self.line is not None else "")
        where = " ".join(part for part in (place, f"$.{self.field}" if self.field else "") if part)
        return f"{self.what} @ {where}" if where else self.what


class UsageError(LogforgeError):
    """A command or a call was given something it cannot take."""

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}. {remedy}" if remedy else what)
        self.what, self.remedy = what, remedy


class UnknownName(UsageError):
    """A name outside a known set; carries the valid ones and the nearest of them."""

    def __init__(self, kind: str, name: str, valid: Sequence[str]) -> None:
        near = difflib.get_close_matches(name, valid, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {kind} {name!r}", f"{hint}valid: {', '.join(valid) or 'none'}")
        self.kind, self.name, self.valid = kind, name, list(valid)


class SpecError(LogforgeError):
    """A reward spec or config file is wrong; every problem is listed with file and line."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class InputError(LogforgeError):
    """A log cannot be read as what it claims to be."""

    def __init__(self, path: str, reason: str, *, line: int | None = None, remedy: str = "") -> None:
        place = f"{path}:{line}" if line is not None else path
        super().__init__(f"{place}: {reason}" + (f". {remedy}" if remedy else ""))
        self.path, self.reason, self.line, self.remedy = path, reason, line, remedy


class CheckFailed(LogforgeError):
    """Data broke a rule or a gate was not met; every failure is listed."""

    def __init__(self, what: str, failures: Sequence[Problem] = ()) -> None:
        lines = [what, *(f"  {failure}" for failure in failures)]
        super().__init__("\n".join(lines))
        self.what, self.failures = what, tuple(failures)


class Mismatch(LogforgeError):
    """Two artefacts do not belong together."""

    def __init__(self, what: str, expected: object, found: object, remedy: str = "") -> None:
        text = f"{what}: expected {expected}, found {found}"
        super().__init__(f"{text}. {remedy}" if remedy else text)
        self.what, self.expected, self.found, self.remedy = what, expected, found, remedy


class MissingExtra(LogforgeError):
    """An optional dependency is needed for this."""

    exit_code = 3

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f'{need} needs an optional dependency: pip install "logforge[{extra}]"')
        self.need, self.extra = need, extra


class StoreError(LogforgeError):
    """The environment fails: the store is locked, is not a store, or the disk is full."""

    exit_code = 4

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"{path}: {reason}" + (f". {remedy}" if remedy else ""))
        self.path, self.reason, self.remedy = path, reason, remedy
