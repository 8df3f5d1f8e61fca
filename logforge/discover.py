"""Finds the files that an ingest is to read, and tells logs from what merely lies beside them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from logforge.connectors import claims, registry
from logforge.connectors.base import Connector, Head, TakesCompanions, look
from logforge.schemas.errors import InputError

LOG_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".log", ".traj", ".jsonlines"})
"""A file named so is meant as a log: when nothing in it can be read, it is quarantined and not merely skipped."""


class Found(NamedTuple):
    """A file to read, the label that its locators carry, and the files that belong to it."""

    path: Path
    label: str
    companions: tuple[Path, ...] = ()


class Verdict(NamedTuple):
    """What to do with a file: read it with `connector`, quarantine it, or skip it (with the rule and the reason)."""

    connector: Connector | None
    quarantined: bool
    rule: str
    reason: str
    detail: str = ""


def find(paths: Iterable[str | Path], home: Path) -> list[Found]:
    """Every regular file at or below the paths, each once, sorted by label.

    A label is the path relative to `home` (the store's folder) when it lies below it, so that a store and its logs can
    move together; else it is the absolute path. Raises InputError when a path does not exist.
    """
    found: dict[Path, Found] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(str(path), "there is no such file or directory")
        for file in _walk(path):
            absolute = file.resolve()
            found.setdefault(absolute, Found(file, label_of(absolute, home)))
    return _joined(sorted(found.values(), key=lambda item: item.label))


def _joined(files: list[Found]) -> list[Found]:
    """The files with those that a connector wants read together made one source."""
    takers = [connector for connector in registry().values() if isinstance(connector, TakesCompanions)]
    if not takers:
        return files
    by_path = {item.path.resolve(): item for item in files}
    taken: set[Path] = set()
    joined = []
    for item in files:
        wanted = {path.resolve() for taker in takers for path in taker.companions(item.path)}
        here = sorted(path for path in wanted if path in by_path and path != item.path.resolve())
        taken |= set(here)
        joined.append(item._replace(companions=tuple(here)))
    return [item for item in joined if item.path.resolve() not in taken]


def label_of(path: Path, home: Path) -> str:
    """How a file is named in locators."""
    absolute = path.resolve()
    home = home.resolve()
    return absolute.relative_to(home).as_posix() if absolute.is_relative_to(home) else absolute.as_posix()


def _walk(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (file for name in sorted(files) if (file := Path(folder, name)).is_file())


def judge(path: Path, forced: Connector | None = None) -> Verdict:
    """Which connector reads a file, or why none does."""
    head = look(path)
    if head.container == "empty":
        return Verdict(None, path.suffix in LOG_SUFFIXES, "empty_file", "the file is empty")
    if forced is not None:
        return Verdict(forced, False, "", "")
    found = claims(head)
    if found:
        return Verdict(found[0].connector, False, "", "")
    return _unclaimed(path, head)


def _unclaimed(path: Path, head: Head) -> Verdict:
    if head.data.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        return Verdict(None, False, "compressed", "compressed files are not read; unpack it first")
    if head.container in ("object", "array") and path.suffix in LOG_SUFFIXES:
        keys = ", ".join(sorted(head.top)[:12])
        return Verdict(
            None,
            True,
            "unknown_shape",
            "no connector knows this shape (`logforge formats` lists those known; --format NAME forces one)",
            f"first object's keys: {keys}" if keys else "no object found in it",
        )
    if path.suffix in LOG_SUFFIXES:
        return Verdict(None, True, "not_json", "named like a log, but it does not begin like JSON")
    return Verdict(None, False, "not_a_log", "not a log")


def sha256_of(path: Path, *more: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces; of several files, that of their digests."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256("".join([digest, *map(sha256_of, more)]).encode()).hexdigest() if more else digest
