"""The source at hand: its lines, its records and its whole content, none longer than a limit."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple

from logforge.connectors.records import json as jsontext
from logforge.connectors.records.brackets import BLOCK, Piece, pieces
from logforge.connectors.records.columns import holds_columns, json_rows
from logforge.connectors.records.rejects import malformed, too_long
from logforge.schemas import InputError, Reject, remedy_of

_FIRST_LINES = 20
_PAGE = 1 << 16
_SHORT = 4 << 20
"""Bytes of an array that is held as a whole."""
_BLANKS = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark, which belongs to the file and to no record."""
MAX_RECORD = 256 << 20
"""Bytes that a line, an element of an array or a document may have, unless one says otherwise."""


class Span(NamedTuple):
    """Whole lines of a file: the bytes from `begin` to before `end`, and the number of the first line among them."""

    begin: int
    end: int
    first: int


class NeedsWhole(Exception):
    """A line says nothing without others, so that its source cannot be read in parts."""


@dataclass(frozen=True)
class Source:
    """A file to read: where it is, and the name its locators carry."""

    path: Path
    label: str
    companions: tuple[Path, ...] = ()
    """Further files of the same source, as the connector's `companions` named them."""
    max_record: int = MAX_RECORD
    """Bytes that one record may have; a longer one is set aside, unread."""
    span: Span | None = None
    """The lines to read, when others read the rest of the file."""
    halves: bool = False
    """Its records are pieces of streams: texts with halves of characters are Halved."""
    samples: bool = False
    """Equal rows with neither an id nor a time of their own are samples, and no copies."""

    @property
    def place(self) -> PurePath:
        """Where the log lies as people see it: an archive is a folder like others, a compressed file has its unpacked name."""
        return PurePath(self.label.replace("!", "/")).with_name(_text(self.path.name))

    def beside(self, path: Path) -> str:
        """The label of a companion."""
        home = os.path.commonpath([self.path.parent, path.parent])
        own, other = (_text(os.path.relpath(file, home)) for file in (self.path, path))
        if self.label.endswith(own):
            return self.label.removesuffix(own) + other
        near = _text(os.path.relpath(path, self.path.parent))
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.label), near))

    def content(self) -> bytes:
        """The whole file. Raises InputError when it is longer than `max_record`."""
        if reject := self._too_long():
            reason, remedy = f"{reject.reason} ({reject.detail})", remedy_of(reject.rule)
            raise InputError(self.label, reason, remedy=remedy, rule=reject.rule)
        return self.path.read_bytes()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def lines(self) -> Iterator[tuple[int, bytes | Reject]]:
        """Line number from 1 and bytes of each line that is not blank; a Reject for one longer than `max_record`.

        Only `\\n` ends a line; a BOM and the blanks around a line are dropped.
        """
        begin, end, first = self.span or (0, inf, 1)
        with self.path.open("rb") as file:
            file.seek(begin)
            for number, (line, size) in enumerate(_lines(file, self.max_record, end - begin), first):
                if size > self.max_record:
                    yield number, too_long(f"{self.label}:{number}", "line", size, self.max_record, line)
                    continue
                if number == 1:
                    line = line.removeprefix(BOM)
                line = line.strip(_BLANKS)
                if line:
                    yield number, line

    def records(self) -> Iterator[tuple[str, Any | Reject]]:
        """Locator and parsed value of each record of a JSON-lines file, a JSON array or a single JSON document; each row of a
        Parquet or Arrow file.

        A line that is no JSON comes as a Reject; so does a document that is no JSON as a whole. A damaged array still
        gives the elements that are whole. Of an array only one element is held at a time.
        """
        if self.has_columns():
            yield from json_rows(self.path, self.label, self.max_record)
        elif self.span or self.is_lines():
            yield from self._line_values()
        elif self.first_byte() == b"[":
            yield from self._elements()
        else:
            yield f"{self.label}#", self.document()

    def _elements(self) -> Iterator[tuple[str, Any | Reject]]:
        """Those of an array. A short one is cut up at once, which is faster; from its first damaged element on it is read as
        a long one is."""
        is_short = self.size <= min(_SHORT, self.max_record)
        parts = jsontext.cut_up(self.content().removeprefix(BOM)) if is_short else []
        whole = 0
        for value in jsontext.until_damaged(parts, halves=self.halves):
            yield f"{self.label}#/{whole}", value
            whole += 1
        if not parts or whole < len(parts):
            with self.path.open("rb") as file:
                found = elements(file, self.start, f"{self.label}#", self.max_record, halves=self.halves)
                yield from islice(found, whole, None)

    def sole_document(self) -> str | None:
        """The locator of the one JSON object that the file is (maybe damaged); None for lines of several and for arrays."""
        if self.first_byte() != b"{":
            return None
        if self._has_second_line(within=inf):
            return None if self.is_lines() else f"{self.label}#"
        with self.path.open("rb") as file:
            breaks = file.read(self.start).count(b"\n")
            return f"{self.label}:{breaks + 1}"

    def document(self) -> Any | Reject:
        """The file as one JSON value, or a Reject."""
        if reject := self._too_long():
            return reject
        data = self.content().removeprefix(BOM)
        try:
            return jsontext.loads(data, halves=self.halves)
        except jsontext.NotJson as error:
            return malformed(f"{self.label}#", error, data)

    def _too_long(self) -> Reject | None:
        if self.size <= self.max_record:
            return None
        with self.path.open("rb") as file:
            return too_long(f"{self.label}#", "document", self.size, self.max_record, file.read(1000))

    @cached_property
    def start(self) -> int:
        """Where the first byte stands that is no blank or BOM; behind the last one, when there is none."""
        with self.path.open("rb") as file:
            begin = len(BOM) if file.read(len(BOM)) == BOM else 0
            file.seek(begin)
            while block := file.read(_PAGE):
                if text := block.lstrip():
                    return begin + len(block) - len(text)
                begin += len(block)
            return begin

    def first_byte(self) -> bytes:
        """The first byte that is no blank or BOM."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(1)

    def has_columns(self) -> bool:
        """A Parquet or Arrow file, whose rows are records."""
        with self.path.open("rb") as file:
            return holds_columns(file.read(8))

    def is_lines(self) -> bool:
        """JSON lines, when one of the first lines is a JSON value on its own; else one value over several lines.

        Several, because the first may be damaged. A document's later lines can be values on their own by chance, so then
        the whole file must fail to be a document as well. An array on a line of its own is an array.
        """
        if self.has_columns():
            return False
        is_array = self.first_byte() == b"["
        if not self._has_second_line(within=self.max_record if is_array else inf):
            return not is_array
        _, first = next(self.lines())
        if isinstance(first, Reject):
            return not is_array
        if _is_json(first):
            return True
        return not is_array and self._has_later_values()

    def _has_second_line(self, *, within: float) -> bool:
        """More than blanks follows the first line break behind its beginning, which is looked for so far."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            seen = 0
            for block in iter(lambda: file.read(_PAGE), b""):
                begin = block.find(b"\n") if seen >= 0 else 0
                seen = seen + len(block) if begin < 0 else -1
                if begin >= 0 and block[begin:].strip():
                    return True
                if seen > within:
                    return False
        return False

    def _has_later_values(self) -> bool:
        """One of the lines behind the first is a value; in a file that is too long to be tried as a document, most are."""
        later = [
            isinstance(line, bytes) and _is_container(line)
            for _, line in islice(self.lines(), 1, _FIRST_LINES)
        ]
        if self.size > self.max_record:
            return 2 * sum(later) > len(later)
        return any(later) and isinstance(self.document(), Reject)

    def _line_values(self) -> Iterator[tuple[str, Any | Reject]]:
        for number, line in self.lines():
            where = f"{self.label}:{number}"
            if isinstance(line, Reject):
                yield where, line
                continue
            try:
                yield where, jsontext.loads(line, halves=self.halves)
            except jsontext.NotJson as error:
                yield where, malformed(where, error, line)


def _lines(file: BinaryIO, limit: int, length: float) -> Iterator[tuple[bytes, int]]:
    """Each line that begins within so many bytes, and how many bytes it has without its line break; of a line beyond the
    limit only the beginning."""
    while length > 0 and (part := file.readline(BLOCK)):
        parts, size = [part], len(part)
        while len(part) == BLOCK and part[-1:] != b"\n":
            part = file.readline(BLOCK)
            size += len(part)
            if size <= limit + 1:
                parts.append(part)
            else:
                del parts[1:]
        length -= size
        yield b"".join(parts), size - (part[-1:] == b"\n")


def elements(
    file: BinaryIO,
    begin: int,
    pointer: str,
    limit: int = MAX_RECORD,
    *,
    with_rest: bool = True,
    block: int = BLOCK,
    halves: bool = False,
) -> Iterator[tuple[str, Any | Reject]]:
    """Locator and value of each element of the JSON array whose `[` stands at `begin`, each parsed on its own.

    One that is no JSON comes as a Reject. What follows the array's end comes as one too (unless `with_rest` is false), and
    so does what follows a missing or extra bracket, which cannot be told apart.
    """
    for index, piece in enumerate(pieces(file, begin, limit, block)):
        where = f"{pointer}/{index}"
        if piece.is_rest and not with_rest:
            return
        if piece.data is None:
            yield where, too_long(where, "element", piece.size, limit, piece.head.lstrip())
        elif piece.data.strip():
            yield where, _element(piece, where, halves)


def _element(piece: Piece, where: str, halves: bool) -> Any | Reject:
    data = piece.data or b""
    try:
        if piece.is_rest:
            kind = jsontext.SeveralDocuments if data.lstrip()[:1] in (b"{", b"[") else jsontext.NotJson
            raise kind("this stands behind the array's last bracket")
        return jsontext.loads(data, is_shallow=piece.depth <= jsontext.MAX_DEPTH, halves=halves)
    except jsontext.NotJson as error:
        return malformed(where, error, data.strip())


def _is_container(data: bytes) -> bool:
    return data[:1] in (b"{", b"[") and _is_json(data)


def _is_json(data: bytes) -> bool:
    if data[:1] == b"[" and data[-1:] != b"]":  # the first lines of a long array
        return False
    try:
        jsontext.loads(data)
        return True
    except jsontext.NotJson:
        return False


def _text(path: str) -> str:
    """A path as valid text, with slashes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace(os.sep, "/")
