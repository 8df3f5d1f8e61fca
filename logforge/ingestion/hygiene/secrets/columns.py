"""Passwords in a column that is headed so, in CSV or a Markdown table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from logforge.ingestion.hygiene.secrets.findings import Finding
from logforge.ingestion.hygiene.secrets.values import has_letter_and_digit, may_be_secret

HINTS = frozenset(("passw", "passphrase", "pwd", "kennwort"))
"""Every text with such a column holds one of these, in any case."""

_COLUMN_NAME = re.compile(r"[^\W\d][\w .#/-]{0,40}")
_COLUMN = re.compile(
    r"(?i)(?:user[_ ]?|db[_ ]?|login[_ ]?)?(?:password|passwd|passphrase|pwd|passwort|kennwort)"
)
_LINE = re.compile(r"^.*$", re.MULTILINE)


class _Cell(NamedTuple):
    """A cell of a line without blanks and quotes around it."""

    start: int
    text: str


def columns(text: str) -> Iterator[Finding]:
    """The cells of a column that is headed `password`, in CSV or a Markdown table: the rows right below with as many cells."""
    sign, places, size = "", [0], 0
    for line in _LINE.finditer(text):
        cells = _cells(line, sign) if sign else []
        if not sign or len(cells) != size:
            sign, places, size = _head(line)
            continue
        for start, value in (cells[place] for place in places):
            if len(value) >= 4 and " " not in value and has_letter_and_digit(value) and may_be_secret(value):
                yield Finding(start, start + len(value), "PASSWORD", "column", 3)


def _head(line: re.Match[str]) -> tuple[str, list[int], int]:
    """Of a line of names with a password among them: what parts them, where it stands, and how many there are."""
    for sign in ",;\t|" if len(line[0]) <= 2000 and _COLUMN.search(line[0]) else "":
        names = [cell.text for cell in _cells(line, sign)]
        places = [index for index, name in enumerate(names) if _COLUMN.fullmatch(name)]
        if len(names) >= 2 and places and all(map(_COLUMN_NAME.fullmatch, names)):
            return sign, places, len(names)
    return "", [], 0


def _cells(line: re.Match[str], sign: str) -> list[_Cell]:
    """The cells of a line; in a table of bars, without what is outside of them."""
    cells, place = [], line.start()
    for part in line[0].split(sign):
        text = part.strip(" \t\r\"'`")
        cells.append(_Cell(place + part.index(text), text))
        place += len(part) + 1
    outer = sign == "|"
    return cells[outer and not cells[0].text : -1 if outer and not cells[-1].text else None]
