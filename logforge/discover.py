"""Finds the files that an ingest is to read, and tells logs from what merely lies beside them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from logforge.connectors import claims, registry
from logforge.connectors.base import JSON_SUFFIXES, Connector, Head, TakesCompanions, look
from logforge.connectors.unsupported import RULE as UNSUPPORTED
from logforge.connectors.unsupported import unsupported
from logforge.schemas.errors import InputError

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".parquet"})
"""Tables among logs are meant to be read too."""
TOOL_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Folders that hold other programs' files, not logs: each is skipped as one."""


class Verdict(NamedTuple):
    """What to do with a file: read it with `connector`, quarantine it, or skip it (with the rule and the reason)."""

    connector: Connector | None
    quarantined: bool
    rule: str
    reason: str
    detail: str = ""


class Found(NamedTuple):
    """A file to read, the label that its locators carry, and the files that belong to it.

    `verdict` is there when what was found cannot be read at all (a broken link, a folder without permission).
    """

    path: Path
    label: str
    companions: tuple[Path, ...] = ()
    verdict: Verdict | None = None


def find(paths: Iterable[str | Path], home: Path) -> list[Found]:
    """Everything at or below the paths, each file once, sorted by label.

    A label is the path relative to `home` (the store's folder) when it lies below it, so that a store and its logs can
    move together; else it is the absolute path. Raises InputError when a path does not exist.
    """
    check_paths(paths)
    home = home.resolve()
    found: dict[str, Found] = {}
    for path in map(Path, paths):
        for file, verdict in _walk(path):
            label = _label(file, home)
            found.setdefault(label, Found(file, label, verdict=verdict))
    return _joined([found[label] for label in sorted(found)])


def check_paths(paths: Iterable[str | Path]) -> None:
    """Raise InputError for a path that does not exist."""
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(str(path), "there is no such file or directory")


def label_of(path: Path, home: Path) -> str:
    """How a file is named in locators, always as valid text."""
    return _label(path.resolve(), home.resolve())


def _label(path: Path, home: Path) -> str:
    name = path.relative_to(home).as_posix() if path.is_relative_to(home) else path.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _skip(rule: str, reason: str) -> Verdict:
    return Verdict(None, False, rule, reason)


def _walk(path: Path) -> Iterator[tuple[Path, Verdict | None]]:
    """Real paths of the files at or below a path, links followed and no folder entered twice; and, each with a verdict,
    whatever is no readable file."""
    if not path.is_dir():
        yield path.resolve(), _irregular(path)
        return
    entered: set[Path] = set()
    unreadable: list[OSError] = []
    for name, folders, files in os.walk(path, onerror=unreadable.append, followlinks=True):
        folder = Path(name).resolve()
        if folder in entered:
            folders.clear()
            continue
        entered.add(folder)
        skipped = {below: verdict for below in folders if (verdict := _no_logs(folder / below))}
        yield from ((folder / below, verdict) for below, verdict in skipped.items())
        folders[:] = sorted(set(folders) - set(skipped))
        for file in (folder / below for below in sorted(files)):
            verdict = _irregular(file)
            yield (file.resolve() if verdict is None and file.is_symlink() else file), verdict
    for error in unreadable:
        reason = f"the folder cannot be read: {error.strerror}"
        yield Path(error.filename).absolute(), Verdict(None, True, "unreadable_folder", reason)


def _no_logs(folder: Path) -> Verdict | None:
    """Folders not to enter: those of other programs, and logforge's own datasets and runs."""
    if folder.name in TOOL_FOLDERS:
        return _skip("tool_folder", "a folder of another program")
    own = (folder / "manifest.json").is_file() and (folder / "train" / "observations.npy").is_file()
    if own or ((folder / "train.json").is_file() and (folder / "metrics.jsonl").is_file()):
        return _skip("own_output", "a dataset or run that logforge wrote")
    return None


def _irregular(file: Path) -> Verdict | None:
    if file.is_file():
        return None
    if file.is_symlink():
        return _skip("broken_link", "a link to nothing")
    return _skip("not_a_regular_file", "a pipe, socket or device")


def _joined(files: list[Found]) -> list[Found]:
    """The files with those that a connector wants read together made one source."""
    takers = [connector for connector in registry().values() if isinstance(connector, TakesCompanions)]
    if not takers:
        return files
    here = {item.path for item in files}
    taken: set[Path] = set()
    joined = []
    for item in files:
        wanted = (
            {path for taker in takers for path in taker.companions(item.path)}
            if item.verdict is None
            else set()
        )
        companions = tuple(sorted(wanted & here - {item.path}))
        taken.update(companions)
        joined.append(item._replace(companions=companions))
    return [item for item in joined if item.path not in taken]


def same_place(label: str, home: Path) -> Found | None:
    """A source found again by its label, with its companions; None when its file is gone."""
    path = home / label
    return (
        next((item for item in find([path.parent], home) if item.label == label), None)
        if path.is_file()
        else None
    )


def judge(path: Path, forced: Connector | None = None, mapping: Connector | None = None) -> Verdict:
    """Which connector reads a file, or why none does. `mapping` is one that stands beside the registered ones."""
    try:
        head = look(path)
    except OSError as error:
        return Verdict(None, True, "unreadable_file", f"the file cannot be read: {error.strerror}")
    if head.container == "empty":
        return Verdict(None, path.suffix.lower() in JSON_SUFFIXES, "empty_file", "the file is empty")
    if forced is not None:
        return Verdict(forced, False, "", "")
    found = claims(head, *([mapping] if mapping else []))
    if found:
        return Verdict(found[0].connector, False, "", "")
    return _unclaimed(path, head)


def _unclaimed(path: Path, head: Head) -> Verdict:
    if what := unsupported(head):
        return Verdict(None, True, UNSUPPORTED, what)
    if head.data.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        return _skip("compressed", "compressed files are not read; unpack it first")
    # Named like a log: when nothing in it can be read, it is quarantined and not merely skipped.
    meant = path.suffix.lower() in JSON_SUFFIXES
    table = path.suffix.lower() in TABLE_SUFFIXES
    if (head.container in ("object", "array") and meant) or table:
        keys = ", ".join(sorted(head.top)[:12])
        return Verdict(
            None,
            True,
            "unknown_shape",
            "no connector knows this shape (`logforge formats` lists those known; --format NAME forces one)",
            f"first record's keys: {keys}" if keys else "",
        )
    if meant:
        return Verdict(None, True, "not_json", "named like a log, but it does not begin like JSON")
    return _skip("not_a_log", "not a log")


def sha256_of(path: Path, *more: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces; of several files, that of their digests."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256("".join([digest, *map(sha256_of, more)]).encode()).hexdigest() if more else digest
