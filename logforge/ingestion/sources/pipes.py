"""Logs that come through a pipe: standard input (`-`) and pipes given by name, read to their end into a private file.

A pipe cannot be read twice, so its source is called by what came through it: `<stdin>/` and a hash of the bytes. The same bytes
twice are one source, others are another and replace nothing; what both hold is stored once, as with any copy. With a name it
is `<stdin>/NAME`, and other bytes under that name replace those before, as when a file changes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from logforge.ingestion.sources.discover import STDIN, Found
from logforge.schemas import InputError, StoreError, UsageError

LABEL = "<stdin>"
_BLOCK = 1 << 20
_OWN = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


class Apart(NamedTuple):
    """Paths of files and folders, and those that are pipes."""

    files: list[str | Path]
    pipes: list[str | Path]


def apart(paths: Iterable[str | Path], name: str | None = None) -> Apart:
    """Tell the pipes among some paths. Raises UsageError for a name that does not belong to one pipe."""
    paths = list(paths)
    pipes = [path for path in paths if _is_pipe(path)]
    if name is not None and (len(pipes) != 1 or not name.strip("/")):
        raise UsageError(
            "--name says what one pipe's source is called", "give it with `-`, as --name tickets.jsonl"
        )
    return Apart([path for path in paths if path not in pipes], pipes)


def _is_pipe(path: str | Path) -> bool:
    if str(path) == STDIN:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or (str(path) in _OWN and not stat.S_ISREG(mode))


def refuse_pipes(paths: Iterable[str | Path]) -> None:
    """Raise UsageError when a pipe is among the paths: there is nothing to look at again."""
    if pipes := apart(paths).pipes:
        remedy = "write it to a file (`tee -a FILE`) and watch that, or ingest it without --watch"
        raise UsageError(f"a pipe cannot be watched: {pipes[0]}", remedy)


def spooled(pipes: Sequence[str | Path], room: Path, name: str | None = None) -> list[Found]:
    """Read pipes to their end into files in a private folder. Raises InputError and StoreError (the disk is full)."""
    found = {}
    for number, pipe in enumerate(pipes):
        folder = room / f"piped{number}"
        folder.mkdir(mode=0o700)
        file = folder / _file_name(name)
        with _opened(pipe) as stream:
            digest = _copied(stream, file)
        label = f"{LABEL}/{name.strip('/') if name else digest[:16]}"
        found[label] = Found(file.resolve(), label)
    return list(found.values())


def _file_name(name: str | None) -> str:
    """What connectors see; without a suffix it is meant to be a log."""
    own = Path(name or "stdin").name
    return own if Path(own).suffix else f"{own}.jsonl"


@contextmanager
def _opened(pipe: str | Path) -> Iterator[BinaryIO]:
    if str(pipe) in (STDIN, *_OWN):
        yield sys.stdin.buffer
        return
    try:
        with open(pipe, "rb") as stream:
            yield stream
    except PermissionError as error:
        raise InputError(str(pipe), "the pipe may not be read", remedy="give the right to read it") from error


def _copied(stream: BinaryIO, file: Path) -> str:
    """The hash of what was copied."""
    digest = hashlib.sha256()
    try:
        with file.open("xb") as target:
            for block in iter(partial(stream.read, _BLOCK), b""):
                digest.update(block)
                target.write(block)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some disk space, or pipe less at a time"
            raise StoreError(str(file.parent), "the disk is too full for what is piped", remedy) from error
        raise
    return digest.hexdigest()
