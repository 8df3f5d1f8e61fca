"""Checkpoints that a kill cannot tear: the blocks that one writes over are saved beside the store before.

A checkpoint of DuckDB 2.0 writes new data into free blocks and turns the file's header to them at the end; whoever is killed
before that leaves the old file. But new metadata goes into the same blocks as the metadata that the header still shows, and
those are written where they stand (`MetadataManager::Flush`). A kill, a full disk or a power cut within such a write leaves a
block that fails its checksum, and DuckDB opens the file no more. A copy of these blocks, put back as long as the header has
not turned, is the double-write buffer of other databases. A header that was torn itself has not turned.

On Windows a store is only read: DuckDB shares a file that it writes with no other handle.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb
import xxhash

from logforge.core import not_on_windows, replacing
from logforge.store.duckdb_file import HEADERS, refuse_unknown, refuse_unsound, sound

if sys.platform != "win32":
    import fcntl

_MAGIC = b"logforge blocks 1\n"
_SIZES = struct.Struct("<QQ")
"""The size of a block, and the number of blocks saved."""
_DIGEST = 16
_DATABASE = (
    "SELECT database_name, block_size FROM pragma_database_size() WHERE database_name = current_database()"
)
_held: dict[tuple[int, int], list[int]] = {}
"""By file the handle on it, and by how many it is held."""
_holding = threading.RLock()
"""One that a thread may take twice: a store that nobody closed is let go whenever Python clears away, in here too."""
_checkpointing = threading.Lock()


class Hold(NamedTuple):
    """A handle on a store's file, one for all that this process opens of it."""

    handle: int
    file: tuple[int, int]

    def of(self, path: Path) -> bool:
        """False when another file was put in its place."""
        return self.file == _identity(path)


def hold(path: Path) -> Hold:
    """Open a store's file for its blocks, and put back what a checkpoint tore that came to no end.

    To be released after DuckDB has closed the file, and no sooner: with the first handle that a process closes of a file, the
    system drops all the locks that the process has on it.
    """
    with _holding:
        file = _identity(path)
        if file not in _held:
            handle = _opened(path)
            try:
                _put_back(path, Hold(handle, file))
            except BaseException:
                os.close(handle)
                raise
            _held[file] = [handle, 0]
        _held[file][1] += 1
        return Hold(_held[file][0], file)


def release(held: Hold) -> None:
    """Close the handle when nobody in this process holds it any more."""
    with _holding:
        _held[held.file][1] -= 1
        if _held[held.file][1] == 0:
            del _held[held.file]
            os.close(held.handle)


def journal_of(path: Path) -> Path:
    """Where the blocks of a store are saved while a checkpoint writes over them."""
    return path.with_name(f"{path.name}.blocks")


@contextmanager
def saved_blocks(path: Path, con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Save the blocks that a checkpoint in here writes over; one that fails leaves them saved. Raises OSError, and StoreError
    where the file's layout is not the one known."""
    held = hold(path)
    try:
        with _checkpointing:
            journal = journal_of(path)
            fresh = journal.with_name(
                f".{journal.name}.new"
            )  # by this name the next one replaces what a kill left
            with replacing(journal, fresh):
                fresh.write_bytes(_journal(path, held.handle, con))
            yield
            journal.unlink(missing_ok=True)
    finally:
        release(held)


def refuse_unknown_layout(path: Path, held: Hold) -> None:
    """Raise StoreError for a store that cannot be changed here: blocks of its file could not be saved."""
    if sys.platform == "win32":
        raise not_on_windows(path, "changing a store")
    refuse_unknown(path, os.pread(held.handle, HEADERS, 0))


def _journal(path: Path, handle: int, con: duckdb.DuckDBPyConnection) -> bytes:
    if sys.platform == "win32":
        raise not_on_windows(path, "changing a store")
    headers = os.pread(handle, HEADERS, 0)
    refuse_unsound(path, headers)
    refuse_unknown(path, headers)
    name, size = con.sql(_DATABASE).fetchall()[0]
    rows = con.sql("SELECT block_id FROM pragma_metadata_info(?)", params=[name]).fetchall()
    blocks = ((number, os.pread(handle, size, HEADERS + number * size)) for (number,) in rows)
    # one beyond the file's end is new
    saved = {number: block for number, block in blocks if len(block) == size}
    body = b"".join(
        (
            headers,
            _SIZES.pack(size, len(saved)),
            struct.pack(f"<{len(saved)}Q", *saved),
            *saved.values(),
        )
    )
    return _MAGIC + xxhash.xxh3_128_digest(body) + body


def _put_back(path: Path, held: Hold) -> None:
    """While another process has the store open, this is left to that one."""
    journal = journal_of(path)
    if not journal.exists():
        return
    if sys.platform == "win32":
        raise not_on_windows(path, "mending a store that was killed within a checkpoint")
    if not locked(held.handle):
        return
    try:
        if not held.of(path):  # swapped by one that let go of it just now: the journal is not of this file
            return
        with suppress(FileNotFoundError):  # another process put them back first
            for offset, block in _saved(journal.read_bytes(), os.pread(held.handle, HEADERS, 0)):
                os.pwrite(held.handle, block, offset)
            os.fsync(held.handle)
            journal.unlink()
    finally:
        fcntl.lockf(held.handle, fcntl.LOCK_UN)


def _saved(journal: bytes, headers: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each saved block belongs, and the headers where one was torn. None when the file's headers have turned to other
    blocks since: then it is whole."""
    body = journal[len(_MAGIC) + _DIGEST :]
    if journal != _MAGIC + xxhash.xxh3_128_digest(body) + body:
        return
    if not body.startswith(headers):
        if sound(headers):
            return
        yield 0, body[:HEADERS]
    size, count = _SIZES.unpack_from(body, HEADERS)
    start = HEADERS + _SIZES.size
    ids = struct.unpack_from(f"<{count}Q", body, start)
    start += 8 * count
    for place, number in enumerate(ids):
        yield HEADERS + number * size, body[start + place * size : start + (place + 1) * size]


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _opened(path: Path) -> int:
    if sys.platform == "win32":  # beside a handle that may write, DuckDB opens nothing
        return os.open(path, os.O_RDONLY)
    try:
        return os.open(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return os.open(path, os.O_RDONLY)  # a store that may only be read


def locked(handle: int) -> bool:
    """Lock the file for this process alone. False when another one has it, or it may only be read."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
