"""The layout of a DuckDB file, as far as the blocks of a store are saved: three headers, then blocks of one size.

It is DuckDB's own affair and may change with any version (DuckDB, storage_info.hpp). So a file of another version than those
that were looked at is not trusted, nor a header that does not hold its own checksum.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

from logforge.schemas import StoreError

HEADERS: Final = 3 * 4096
"""The bytes before the first block: what the file is, and twice which blocks are in use."""
_HEADER: Final = HEADERS // 3
_MAGIC: Final = b"DUCK"
_WORDS = struct.Struct(f"<{_HEADER // 8}Q")
_START, _FACTOR, _WORD = 5381, 0xBF58476D1CE4E5B9, (1 << 64) - 1


class Version(NamedTuple):
    """The numbers that a file bears: of its first header, and of how its content is written, in the two others."""

    file: int
    content: tuple[int, int]


KNOWN: Final = Version(999, (69, 69))
"""That of DuckDB 2.0."""
_OTHER = "ingest the logs again into a new store, with the duckdb that logforge asks for"
_BACKUP = "a disk or a copy changed its file: put a backup in its place, or ingest the logs into another one with --store"


def sound(headers: bytes) -> bool:
    """True when every header holds its checksum. DuckDB opens a file only then."""
    return len(headers) == HEADERS and all(
        _checksum(words[1:]) == words[0] for words in _WORDS.iter_unpack(headers)
    )


def _checksum(words: tuple[int, ...]) -> int:
    found = _START
    for word in words:
        found ^= word * _FACTOR & _WORD
    return found


def version_of(headers: bytes) -> Version | None:
    """The version of a file by its headers. None when they are no DuckDB file's."""
    if len(headers) != HEADERS or headers[8:12] != _MAGIC:
        return None
    (file,) = struct.unpack_from("<Q", headers, 12)
    first, second = (struct.unpack_from("<Q", headers, start + 56)[0] for start in (_HEADER, 2 * _HEADER))
    return Version(file, (first, second))


def refuse_unknown(path: Path, headers: bytes) -> None:
    """Raise StoreError for a file whose layout is not known: its blocks could not be saved before they are written over."""
    if (found := version_of(headers)) != KNOWN:
        told = "no version" if found is None else f"the version {found.file}/{found.content[0]}"
        reason = f"its DuckDB file has {told}, this logforge changes those of {KNOWN.file}/{KNOWN.content[0]}"
        raise StoreError(str(path), reason, _OTHER, rule="store_layout")


def refuse_unsound(path: Path, headers: bytes) -> None:
    """Raise StoreError for headers that do not hold their checksums."""
    if not sound(headers):
        raise StoreError(
            str(path), "a header of its DuckDB file fails its checksum", _BACKUP, rule="store_damaged"
        )
