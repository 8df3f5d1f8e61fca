"""The edits and commands in an answer of aider's model: SEARCH/REPLACE blocks, and what aider then says that it did.

An answer is taken for calls only where the program's own lines show that it read it so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from logforge.connectors.editors.aider_lines import Line, Said
from logforge.schemas import ResultStatus

_SEARCH = re.compile(r"<{5,9} (?:SEARCH|ORIGINAL)>?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_REPLACE = re.compile(r">{5,9} (?:REPLACE|UPDATED)\s*")
_RUNNING = "Running "
_TOLD: tuple[tuple[re.Pattern[str], ResultStatus], ...] = (
    (re.compile(r"Applied edit to (.+)"), "ok"),
    (re.compile(r".*failed to exactly match lines in (.+)"), "error"),
    (re.compile(r"Skipping edits to (.+?)(?: that matches gitignore spec\.)?"), "refused"),
    (re.compile(r"Did not apply edit to (.+) \(--dry-run\)"), "refused"),
)
_MALFORMED = "did not conform to the edit format"


class Told(NamedTuple):
    """What the program says of the edits of a file."""

    status: ResultStatus
    line: Line


@dataclass
class Outcome:
    """What the program did with an answer: its lines by file, the commands that it ran."""

    files: dict[str, Told] = field(default_factory=dict)
    commands: list[Line] = field(default_factory=list)
    malformed: bool = False
    """It could not read the edits."""


def outcome(after: Said | None) -> Outcome:
    """What the lines after an answer say."""
    found = Outcome()
    for line in after.lines if after is not None else ():
        text = (line.text or "").strip()
        found.malformed = found.malformed or _MALFORMED in text
        if text.startswith(_RUNNING):
            found.commands.append(Line(line.number, text.removeprefix(_RUNNING)))
        for pattern, status in _TOLD:
            if (match := pattern.fullmatch(text)) is not None:
                found.files.setdefault(match[1], Told(status, line))
    return found


class Edit(NamedTuple):
    """One block, and the number from 0 of the line that names its file, or in which it begins."""

    line: int
    path: str
    search: str
    replace: str


def edits_in(text: str) -> list[Edit] | None:
    """The blocks of an answer; None when one of them is not whole or names no file."""
    lines = text.split("\n")
    found: list[Edit] = []
    begin: int | None = None
    middle: int | None = None
    for index, line in enumerate(lines):
        if begin is None:
            begin = index if _SEARCH.fullmatch(line) else None
        elif middle is None:
            middle = index if _DIVIDER.fullmatch(line) else None
        elif _REPLACE.fullmatch(line):
            named = _named(lines, begin)
            path = _name(lines[named]) if named is not None else found[-1].path if found else None
            if path is None:
                return None
            search, replace = lines[begin + 1 : middle], lines[middle + 1 : index]
            found.append(
                Edit(
                    begin if named is None else named,
                    path,
                    "".join(f"{s}\n" for s in search),
                    "".join(f"{r}\n" for r in replace),
                )
            )
            begin = middle = None
    return found if begin is None else None


def _named(lines: list[str], begin: int) -> int | None:
    """The line above the fence that has the file's name alone."""
    for index in range(begin - 1, max(-1, begin - 4), -1):
        if not lines[index].lstrip().startswith("```"):
            return index if _name(lines[index]) else None
    return None


def _name(line: str) -> str:
    """A file's name without the marks of Markdown around it."""
    return line.strip().strip("`").lstrip("#").rstrip(":").strip().strip("`*").strip()


def by_file(edits: list[Edit]) -> dict[str, list[Edit]]:
    """The blocks of each file, for aider tells of files and not of blocks."""
    found: dict[str, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.path, []).append(edit)
    return found


def may_edit(text: str) -> bool:
    """The beginning of a block stands in the text."""
    return any(_SEARCH.fullmatch(line) for line in text.split("\n"))
