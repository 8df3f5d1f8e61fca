"""The one exception tree.

LogforgeError                 anything logforge refuses; `exit_code` is the command's exit status
├── UsageError          (2)   a command or call was given something it cannot take
│   └── UnknownName     (2)   a name outside a known set; lists the valid ones
├── SpecError           (2)   a reward spec, mapping or config file is wrong; lists every problem with its line
├── InputError          (1)   a log cannot be read as what it claims to be
├── CheckFailed         (1)   data broke a rule, or a gate was not met; lists every failure
├── Mismatch            (1)   two artefacts do not belong together (policy and dataset, shard and manifest)
├── MissingExtra        (3)   an optional dependency is needed; the remedy is the pip command
└── StoreError          (4)   the environment fails: store locked, disk full, not a store

Every error says what is wrong (`message`), under which short stable name (`rule`) and what to do (`remedy`). Errors carry
data, their text is derived from it, and they survive pickling (ingest runs in worker processes).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

_SHOWN, _SHOWN_BESIDE = 24, 8
"""So many valid names are told, and beside a near one; `valid` holds all."""


class LogforgeError(Exception):
    """Anything logforge refuses. `exit_code` is the exit status the command line gives it.

    `usual_rule` and `usual_remedy` are those of an error that names none of its own.
    """

    exit_code: ClassVar[int] = 1
    usual_rule: ClassVar[str] = "refused"
    usual_remedy: ClassVar[str] = "see `logforge --help`"

    def __init__(self, message: str, *, remedy: str = "", rule: str = "", joint: str = ". ") -> None:
        super().__init__(f"{message}{joint}{remedy}" if remedy else message)
        self.message = message
        self.rule = rule or self.usual_rule
        self.remedy = remedy or self.usual_remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__.copy(), self.args))

    def as_dict(self) -> dict[str, object]:
        """The error as data, for `--json`: what a person is told, and what it is made of."""
        data = {key: _plain(value) for key, value in self.__dict__.items() if not key.startswith("_")}
        return {"error": type(self).__name__, "exit_code": self.exit_code, **data}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_told(item) if isinstance(item, Problem) else item for item in value]
    return value


def _told(problem: Problem) -> dict[str, object]:
    data = asdict(problem)
    return data if problem.remedy else {key: item for key, item in data.items() if key != "remedy"}


def _rebuild(kind: type[LogforgeError], state: dict[str, object], args: tuple[object, ...]) -> LogforgeError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = args
    return error


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where: `what @ path:line $.field`. `rule` is the rule of data that it breaks, `remedy` what
    to do about it where that is not what the error says of all its problems."""

    what: str
    path: str = ""
    line: int | None = None
    field: str = ""
    rule: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        place = self.path + (f":{self.line}" if self.line is not None else "")
        where = " ".join(part for part in (place, f"$.{self.field}" if self.field else "") if part)
        what = f"{self.rule}: {self.what}" if self.rule else self.what
        return f"{what} @ {where}" if where else what


class UsageError(LogforgeError):
    """A command or a call was given something it cannot take."""

    exit_code = 2
    usual_rule = "usage"
    usual_remedy = "`logforge COMMAND --help` says what it takes"

    def __init__(self, what: str, remedy: str = "", *, rule: str = "") -> None:
        super().__init__(what, remedy=remedy, rule=rule)
        self.what = what


class UnknownName(UsageError):
    """A name outside a known set; carries the valid ones and the nearest of them."""

    usual_rule = "unknown_name"

    def __init__(self, kind: str, name: str, valid: Sequence[str]) -> None:
        near = difflib.get_close_matches(name, valid, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        most = _SHOWN_BESIDE if near else _SHOWN
        listed = ", ".join(valid[:most]) + (f" and {len(valid) - most} more" if valid[most:] else "")
        super().__init__(f"unknown {kind} {name!r}", f"{hint}valid: {listed or 'none'}")
        self.kind, self.name, self.valid = kind, name, list(valid)


class SpecError(LogforgeError):
    """A reward spec, mapping or config file is wrong; every problem is listed with file and line."""

    exit_code = 2
    usual_rule = "invalid_spec"
    usual_remedy = "correct what is named; docs/reward-spec.md and docs/formats/mapping.md describe the words"

    def __init__(self, problems: Sequence[Problem], remedy: str = "") -> None:
        super().__init__("\n".join(str(problem) for problem in problems), remedy=remedy, joint="\n")
        self.problems = tuple(problems)


class InputError(LogforgeError):
    """A log cannot be read as what it claims to be."""

    usual_rule = "unreadable_input"
    usual_remedy = "look whether it is the file that is meant, and whole"

    def __init__(
        self, path: str, reason: str, *, line: int | None = None, remedy: str = "", rule: str = ""
    ) -> None:
        place = f"{path}:{line}" if line is not None else path
        super().__init__(f"{place}: {reason}", remedy=remedy, rule=rule)
        self.path, self.reason, self.line = path, reason, line


class CheckFailed(LogforgeError):
    """Data broke a rule or a gate was not met; every failure is listed."""

    usual_rule = "check_failed"
    usual_remedy = "mend what is named, then make it again"

    def __init__(self, what: str, failures: Sequence[Problem] = (), remedy: str = "") -> None:
        lines = [what, *(f"  {failure}" for failure in failures)]
        super().__init__("\n".join(lines), remedy=remedy, joint="\n")
        self.what, self.failures = what, tuple(failures)


class Mismatch(LogforgeError):
    """Two artefacts do not belong together."""

    usual_rule = "mismatch"
    usual_remedy = "make the two again from one another, or name two that belong together"

    def __init__(self, what: str, expected: object, found: object, remedy: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, found {found}", remedy=remedy)
        self.what, self.expected, self.found = what, expected, found


class MissingExtra(LogforgeError):
    """An optional dependency is needed for this."""

    exit_code = 3
    usual_rule = "missing_extra"

    def __init__(self, need: str, extra: str) -> None:
        remedy = f'pip install "logforge-rl[{extra}]"'
        super().__init__(f"{need} needs an optional dependency", remedy=remedy, joint=": ")
        self.need, self.extra = need, extra


class StoreError(LogforgeError):
    """The environment fails: the store is locked, is not a store, or the disk is full."""

    exit_code = 4
    usual_rule = "store"
    usual_remedy = "look whether the path is right, may be written and has room, then run the command again"

    def __init__(self, path: str, reason: str, remedy: str = "", *, rule: str = "") -> None:
        super().__init__(f"{path}: {reason}", remedy=remedy, rule=rule)
        self.path, self.reason = path, reason
