"""The lines of aider's `.aider.chat.history.md`, cut into sessions and into what was said by whom.

Aider ends each line of its own with two blanks: the user's (`#### `) and the program's (`> `). Headings and quotes in an
answer look alike but for these blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from logforge.connectors.records import BOM

HEADER = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
Speaker = Literal["user", "program", "agent"]
_MARKS: dict[str, Speaker] = {"#### ": "user", "> ": "program"}
_END = "  "
_EMPTY = (b"", b"\r")


class Line(NamedTuple):
    """A line and its number from 1. `text` is None where its bytes are not UTF-8."""

    number: int
    text: str | None


@dataclass
class Said:
    """What one speaker said in lines that follow each other."""

    speaker: Speaker
    lines: list[Line] = field(default_factory=list)

    @property
    def words(self) -> list[Line]:
        """The lines without the blank ones around them."""
        told = [bool(line.text and line.text.strip()) for line in self.lines]
        if not any(told):
            return []
        return self.lines[told.index(True) : len(told) - told[::-1].index(True)]

    @property
    def text(self) -> str:
        """The words. Empty lines show in the numbers of the others."""
        words, parts = self.words, []
        for index, line in enumerate(words):
            parts += ["\n" * (line.number - words[index - 1].number) if index else "", line.text or ""]
        return "".join(parts).strip()


@dataclass
class Session:
    """One start of aider: the lines under its heading but for empty ones. Lines above the first heading have none."""

    line: int
    started: str | None
    lines: list[Line] = field(default_factory=list)

    @property
    def bad(self) -> int | None:
        """The first line that is no text."""
        return next((line.number for line in self.lines if line.text is None), None)

    @property
    def is_empty(self) -> bool:
        """Nobody said anything."""
        return all(line.text is not None and not line.text.strip() for line in self.lines)

    @property
    def stripped(self) -> bool:
        """It has lines of aider's own, and all have lost the blanks at their end."""
        own = [line.text for line in self.lines if line.text and _mark(line.text)]
        return bool(own) and not any(text.endswith(_END) for text in own)


def sessions(data: bytes) -> tuple[list[Session], Line | None]:
    """The sessions of a file, and its last line where the log was cut off in it. Only `\\n` ends a line."""
    found: list[Session] = []
    pieces = data.removeprefix(BOM).split(b"\n")
    torn = pieces.pop()
    for number, piece in enumerate(pieces, 1):
        if piece in _EMPTY:
            continue
        line = Line(number, _text(piece))
        heading = HEADER.fullmatch(line.text) if line.text and line.text.startswith("# ") else None
        if heading:
            found.append(Session(number, heading[1]))
        elif found:
            found[-1].lines.append(line)
        elif piece.strip():
            found.append(Session(number, None, [line]))
    return found, Line(len(pieces) + 1, _text(torn)) if torn.strip() else None


def _text(piece: bytes) -> str | None:
    try:
        return piece.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        return None


def _mark(text: str) -> Speaker | None:
    return next((speaker for mark, speaker in _MARKS.items() if text.startswith(mark)), None)


def spoken(lines: list[Line]) -> list[Said]:
    """Who said what, in order."""
    found: list[Said] = []
    open_, own, before = False, False, 0
    for number, text in lines:
        text, beside = text or "", own and number == before + 1
        before = number
        mark = _mark(text if text.strip() != ">" else "> ")
        if open_ or (beside and text.strip() and mark != "user" and not text.endswith(_END)):
            # A message of the program in several lines: only its first is marked, only its last ends with the blanks.
            speaker: Speaker = "program"
            words, open_ = text.removeprefix("> ") if not open_ else text, not text.endswith(_END)
        elif mark is not None and text.endswith(_END):
            speaker, words = mark, text[text.find(" ") + 1 :]
        else:
            speaker, words = "agent", text
        own = speaker != "agent"
        if (
            not found
            or found[-1].speaker != speaker
            or (speaker == "user" and not _follows(found[-1], number))
        ):
            if speaker == "agent" and not words.strip():
                continue
            found.append(Said(speaker))
        found[-1].lines.append(Line(number, words.rstrip() if speaker != "agent" else words))
    return found


def _follows(said: Said, number: int) -> bool:
    """Lines of one input follow each other; inputs are parted by a blank line."""
    return said.lines[-1].number == number - 1
