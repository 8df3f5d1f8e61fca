"""Compressed streams: told by their first bytes, unpacked in bounded memory, and as far as they are whole."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa

PIECE = 1 << 16
"""Bytes that are unpacked at a time: before a tear, no more than what the codec holds back is lost."""
XZ_MEMORY = 256 << 20
"""An xz stream may ask its reader for 4 GiB; one that asks for more than this is refused."""

_MAGIC = (
    ("gzip", re.compile(rb"\x1f\x8b\x08")),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")),  # a frame, or one to be skipped
    ("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")),
    ("xz", re.compile(rb"\xfd7zXZ\x00")),
)
_SUFFIX = re.compile(r"\.(?:gz|gzip|zst|zstd|bz2|xz|(?P<tar>tgz|tzst|tbz2?|txz))\Z", re.IGNORECASE)


class Damaged(Exception):
    """A stream or a member of an archive ends early or does not decode; what came before it was handed out."""


def codec_of(head: bytes) -> str | None:
    """The compression that a file's first bytes announce."""
    return next((name for name, magic in _MAGIC if magic.match(head)), None)


def plain_name(name: str) -> str:
    """The name that a compressed file has when it is unpacked: `a.jsonl.gz` is `a.jsonl`, `a.tgz` is `a.tar`."""
    found = _SUFFIX.search(name)
    if found is None or found.start() == 0:
        return name
    return name[: found.start()] + (".tar" if found["tar"] else "")


def pieces(path: Path, codec: str) -> Iterator[bytes]:
    """The content of a compressed file, several streams on end included. Raises Damaged where it breaks off."""
    try:
        yield from _READERS[codec](path)
    except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise Damaged(str(error)) from None
    except OSError as error:
        if error.errno is not None:  # the disk's own failure, and not the stream's
            raise
        raise Damaged(str(error)) from None


def _gzip(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as stream:
        yield from _all(stream.read1)


def _bz2(path: Path) -> Iterator[bytes]:
    with bz2.open(path) as stream:
        yield from _all(stream.read1)


def _zstd(path: Path) -> Iterator[bytes]:
    """A read that fails hands out nothing, so what lies between the last whole piece and the damage is read byte by byte."""
    done = 0
    try:
        for piece in _zstd_from(path, 0, PIECE):
            done += len(piece)
            yield piece
    except (OSError, pa.ArrowException):
        yield from _zstd_from(path, done, 1)


def _zstd_from(path: Path, start: int, size: int) -> Iterator[bytes]:
    with closing(pa.input_stream(str(path), compression="zstd")) as stream:
        while start:
            start -= len(stream.read(min(start, PIECE)))
        yield from _all(stream.read, size)


def _all(read: Callable[[int], bytes], size: int = PIECE) -> Iterator[bytes]:
    return iter(partial(read, size), b"")


def _xz(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        data = _next(file)
        while data:
            engine = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
            while not engine.eof:
                if engine.needs_input and not data:
                    data = file.read(PIECE)
                    if not data:
                        raise EOFError("the stream is cut off")
                yield engine.decompress(data, PIECE)
                data = b""
            data = engine.unused_data.lstrip(b"\x00") or _next(file)


def _next(file: IO[bytes]) -> bytes:
    """What follows the zeros that may stand between streams."""
    while data := file.read(PIECE):
        if data := data.lstrip(b"\x00"):
            return data
    return b""


_READERS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    "gzip": _gzip,
    "zstd": _zstd,
    "bz2": _bz2,
    "xz": _xz,
}
