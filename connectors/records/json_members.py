"""The members of one long JSON object, told apart by bytes and read one at a time: `{"info": {…}, "runs": [ … ]}`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from logforge.connectors.records import json as jsontext
from logforge.connectors.records.brackets import Piece, pieces
from logforge.connectors.records.rejects import at, malformed, too_long
from logforge.schemas import Reject

LONG_BYTES = 4 << 20
"""A longer document is read member by member."""

_KEY = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)


class Member(NamedTuple):
    """A member that may be damaged. `key` is None where none is to be seen."""

    key: str | None
    begin: int
    """Where its value begins in the file."""
    first: bytes
    """The first byte of its value."""
    piece: Piece

    def whole(self, file: BinaryIO) -> Member:
        """The member with all its bytes, however many they are."""
        if self.piece.data is not None:
            return self
        file.seek(self.piece.begin)
        return self._replace(piece=self.piece._replace(data=file.read(self.piece.size)))

    def read(self, locator: str, limit: int) -> dict[str, Any] | Reject:
        """Key and value as an object of one member, or why it cannot be read. `locator` is the object's."""
        where = locator if self.key is None else pointer(locator, self.key)
        data = self.piece.data
        if data is None:
            return too_long(where, "element", self.piece.size, limit, self.piece.head.lstrip())
        try:
            if self.piece.is_rest:
                raise jsontext.NotJson("this stands behind the object's last bracket")
            found: dict[str, Any] = jsontext.loads(b"{" + data + b"}")
            return found
        except jsontext.NotJson as error:
            return malformed(where, error, data.strip())


def members(file: BinaryIO, begin: int, limit: int) -> Iterator[Member]:
    """The members of the object whose `{` stands at `begin`, in their order; none holds more than `limit` bytes."""
    for piece in pieces(file, begin, limit):
        if piece.head.strip() or piece.data is None:
            named = None if piece.is_rest else _KEY.match(piece.head)
            key = _text(named.group(1)) if named else None
            end = named.end() if named else 0
            yield Member(key, piece.begin + end, piece.head[end : end + 1], piece)


def pointer(locator: str, key: str) -> str:
    """The locator of an object's member; `~` and `/` in the key are escaped (RFC 6901)."""
    return at(locator, "/" + key.replace("~", "~0").replace("/", "~1"))


def _text(data: bytes) -> str:
    try:
        return str(jsontext.loads(data))
    except jsontext.NotJson:
        return data[1:-1].decode("utf-8", "replace")
