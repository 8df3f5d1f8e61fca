"""Replacing a folder or file as one act: whoever looks, at any moment and after any crash, sees the old or the new."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from logforge.core.platforms import lock
from logforge.schemas import InputError, StoreError, UsageError

_ROOM = "look whether the folder may be written and the disk has room"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def refuse_foreign(folder: Path, mark: str, what: str) -> None:
    """Raise UsageError for a folder that must not be replaced: it holds something, and not the file that marks `what`."""
    if folder.is_dir() and not (folder / mark).is_file() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds something that is not {what}", "name another folder")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "name a folder")


def plain_file(folder: Path, name: str) -> Path:
    """The path of `name` in a folder that someone else may have made. A file that is not there is left to the caller.

    Raises InputError where the file, or a folder on the way to it, is a link, and for anything but a plain file: a link would read
    another file of this machine, a pipe would never end.
    """
    place = folder
    for part in PurePath(name).parts:
        place /= part
        if place.is_symlink():
            remedy = f"copy the folder with what its links lead to, if you trust it: cp -rL {folder} COPY"
            raise InputError(
                str(place), "a link, where a plain file is asked for", remedy=remedy, rule="linked_file"
            )
    if place.exists() and not place.is_file():
        raise InputError(str(place), "not a plain file", remedy="make the folder again", rule="linked_file")
    return place


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside `target` to write into; it takes target's place when the block ends without an error.

    Writers of one target wait for each other, so whatever an earlier one left behind is of a killed one.
    """
    target = Path(target).resolve()
    fresh, old = (target.with_name(f".{target.name}.{end}") for end in ("new", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f".{target.name}.lock")):
            _clear_leftovers(target, fresh, old)
            fresh.mkdir()
            try:
                yield fresh
                sync_tree(fresh)
                _swap(fresh, target, old)
                sync(target.parent)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
                if target.exists():
                    shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StoreError(str(error.filename or target), error.strerror or str(error), _ROOM) from error


@contextmanager
def replaced_file(target: Path) -> Iterator[Path]:
    """A path beside `target` to write a file at; it takes target's place when the block ends without an error."""
    target = Path(target).resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, fresh):
            yield fresh
    except OSError as error:
        raise StoreError(str(error.filename or target), error.strerror or str(error), _ROOM) from error


@contextmanager
def replacing(target: Path, fresh: Path) -> Iterator[None]:
    """The file that is written at `fresh` takes target's place when the block ends without an error. Raises OSError."""
    try:
        yield
        sync(fresh)
        fresh.replace(target)
        sync(target.parent)
    finally:
        fresh.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or a folder's list of names is on the disk. Windows keeps such lists by itself."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """The same for all that is in a folder, and for itself."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        lock(file)
        yield


def _clear_leftovers(target: Path, fresh: Path, old: Path) -> None:
    if old.exists() and not target.exists():
        old.rename(target)
    for leftover in (fresh, old):
        if leftover.exists():
            shutil.rmtree(leftover)


def _swap(fresh: Path, target: Path, old: Path) -> None:
    if not target.exists():
        fresh.rename(target)
    elif not _exchange(fresh, target):
        target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            old.rename(target)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one act (Linux). False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))
