"""Finds the files that an ingest is to read, and tells logs from what merely lies beside them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from logforge.connectors import claims, registry
from logforge.connectors.episodes import RULE as UNSUPPORTED
from logforge.connectors.episodes import unsupported
from logforge.connectors.records import (
    HEAD_BYTES,
    JSON_SUFFIXES,
    MAX_DEPTH,
    Connector,
    Head,
    TakesCompanions,
    TooDeep,
    deepest_of_first,
    look,
)
from logforge.schemas import InputError

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".parquet", ".arrow"})
"""Tables among logs are meant to be read too."""
DATABASE_SUFFIXES = frozenset({".db", ".sqlite", ".sqlite3"})
"""So are databases; those of other names (an editor's settings) are often no logs."""
TOOL_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Folders that hold other programs' files, not logs: each is skipped as one."""


STDIN = "-"
"""Standard input, among paths."""
UNPACKED = ".unpacked"


def unpacked_beside(store: Path) -> Path:
    """The private folder in which packed files are unpacked while a store is written."""
    return store.parent / f".{store.name}{UNPACKED}"


class Verdict(NamedTuple):
    """What to do with a file: read it with `connector`, quarantine it, or skip it (with the rule and the reason)."""

    connector: Connector | None
    quarantined: bool
    rule: str
    reason: str
    detail: str = ""
    excerpt: bytes = b""


class Found(NamedTuple):
    """A file to read, the label that its locators carry, and the files that belong to it.

    `verdict` is there when what was found cannot be read at all (a broken link, a folder without permission). `only` are
    the labels of the members to read, when it is an archive and not all are wanted. `instead_of` is the label that it would
    have, did that not hold a secret (see logforge/ingestion/safe_labels.py).
    """

    path: Path
    label: str
    companions: tuple[Path, ...] = ()
    verdict: Verdict | None = None
    only: frozenset[str] = frozenset()
    instead_of: str | None = None


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
    for path in (Path(path) for path in paths if str(path) != STDIN):
        if not path.exists():
            reason, remedy = _not_there(path)
            raise InputError(str(path), reason, remedy=remedy, rule="no_such_path")


def _not_there(path: Path) -> tuple[str, str]:
    """Why a path leads to nothing, and what to do."""
    if not path.is_symlink():
        return "there is no such file or directory", "look for a typing error"
    if _leads_to_itself(path):
        return "a link that leads to itself", "remove the link, or let it lead to a file"
    return f"a link to {os.readlink(path)}, which is not there", "mend the link, or name the file itself"


def _leads_to_itself(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def label_of(path: Path, home: Path) -> str:
    """How a file is named in locators, always as valid text."""
    return _label(path.resolve(), home.resolve())


def _label(path: Path, home: Path) -> str:
    name = path.relative_to(home).as_posix() if path.is_relative_to(home) else path.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _skip(rule: str, reason: str) -> Verdict:
    return Verdict(None, False, rule, reason)


def _loop() -> Verdict:
    return _skip("link_loop", "a link that leads to itself or to a folder it lies in")


def _walk(path: Path) -> Iterator[tuple[Path, Verdict | None]]:
    """Real paths of the files at or below a path, links followed and no folder entered twice; and, each with a verdict,
    whatever is no readable file. What another link leads to is told once, a link back to where it stands is a loop."""
    if not path.is_dir():
        yield path.resolve(), _irregular(path)
        return
    entered: set[Path] = set()
    unreadable: list[OSError] = []
    for name, folders, files in os.walk(path, onerror=unreadable.append, followlinks=True):
        folder = Path(name).resolve()
        if folder in entered:
            folders.clear()
            if folder in map(Path.resolve, Path(name).parents):
                yield Path(name).parent.resolve() / Path(name).name, _loop()
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
    """Folders not to enter: those of other programs, logforge's own datasets and runs, and links to a folder above."""
    if folder.is_symlink() and folder.is_relative_to(folder.resolve()):
        return _loop()
    if folder.name in TOOL_FOLDERS:
        return _skip("tool_folder", "a folder of another program")
    store = folder.parent / folder.name[1 : -len(UNPACKED)]
    if folder == unpacked_beside(store) and store.is_file():
        return _skip("own_output", "where a run of logforge unpacks files")
    own = (folder / "manifest.json").is_file() and (folder / "train" / "observations.npy").is_file()
    if own or ((folder / "train.json").is_file() and (folder / "metrics.jsonl").is_file()):
        return _skip("own_output", "a dataset or run that logforge wrote")
    return None


def _irregular(file: Path) -> Verdict | None:
    if file.is_file():
        return None
    if file.exists():
        return _skip("not_a_regular_file", "a pipe, socket or device")
    return _loop() if _leads_to_itself(file) else _skip("broken_link", "a link to nothing")


def _joined(files: list[Found]) -> list[Found]:
    """The files with those that a connector wants read together made one source."""
    takers = [taker for taker in registry().values() if isinstance(taker, TakesCompanions)]
    if not takers:
        return files
    here = {item.path for item in files}
    taken: set[Path] = set()
    joined = []
    for item in files:
        wanted, verdict = _wanted(takers, item)
        companions = tuple(sorted((wanted & here) - {item.path}))
        taken.update(companions)
        joined.append(item._replace(companions=companions, verdict=verdict))
    return [item for item in joined if item.path not in taken]


def _wanted(takers: Iterable[TakesCompanions], item: Found) -> tuple[set[Path], Verdict | None]:
    """The files that connectors want to read with this one; a connector that fails at saying so costs this file alone."""
    wanted: set[Path] = set()
    if item.verdict is not None:
        return wanted, item.verdict
    for taker in takers:
        try:
            wanted |= set(taker.companions(item.path))
        except Exception as error:
            reason = f"the connector {taker.name} failed at naming the files that belong to this one"
            return set(), Verdict(
                None, True, "connector_failed", reason, f"{type(error).__name__}: {error}"[:300]
            )
    return wanted, None


def same_place(label: str, home: Path) -> Found | None:
    """A source found again by its label, with its companions; None when its file is gone. Of an archive's member, the
    archive."""
    path = _holder(home / label)
    if not path.is_file():
        return None
    own = label_of(path, home)
    found = next((item for item in find([path.parent], home) if item.label == own), None)
    return found if found is None or own == label else found._replace(only=frozenset({label}))


def found_again(labels: Iterable[str], home: Path) -> list[Found]:
    """The sources of these labels whose files are still there, with their companions.

    For a folder that could not be entered it is what lies in it now.
    """
    wanted = set(labels)
    takers = [taker for taker in registry().values() if isinstance(taker, TakesCompanions)]
    files: set[Path] = set()
    folders: list[Path] = []
    for path in (_holder(home / label) for label in sorted(wanted)):
        if path.is_dir():
            folders.append(path)
        elif path.is_file():
            files |= {path, *(near for taker in takers for near in taker.companions(path) if near.is_file())}
    again = [
        item if item.label in wanted else item._replace(only=members)
        for item in find(sorted(files), home)
        if (members := _members(item.label, wanted)) or item.label in wanted
    ]
    return again + find(folders, home)


def _members(label: str, wanted: set[str]) -> frozenset[str]:
    return frozenset(other for other in wanted if other.startswith(f"{label}!"))


def _holder(path: Path) -> Path:
    """The file of a source; of an archive's member (`a.zip!b.jsonl`) the archive."""
    while not path.exists() and "!" in str(path):
        path = Path(str(path).rpartition("!")[0])
    return path


def judge(
    path: Path,
    forced: Connector | None = None,
    mapping: Connector | None = None,
    earlier: Connector | None = None,
) -> Verdict:
    """Which connector reads a file, or why none does. `mapping` stands beside the registered ones and goes before those
    that are as sure; `earlier` read the file before, and reads it when no other claims it."""
    try:
        head = look(path)
    except OSError as error:
        return Verdict(None, True, "unreadable_file", f"the file cannot be read: {error.strerror}")
    if head.container == "empty":
        return Verdict(None, path.suffix.lower() in JSON_SUFFIXES, "empty_file", "the file is empty")
    if _is_utf16(head.data) and path.suffix.lower() in JSON_SUFFIXES | TABLE_SUFFIXES:
        return Verdict(None, True, "utf16_text", "UTF-16 text; logs are read as UTF-8")
    if forced is not None:
        return Verdict(forced, False, "", "")
    found = claims(head, *(one for one in (mapping, earlier) if one is not None))
    surest = [claim.connector for claim in found if claim.confidence == found[0].confidence]
    if surest or earlier is not None:
        best = mapping if mapping in surest else next(iter(surest), earlier)
        return Verdict(best, False, "", "")
    return _unclaimed(path, head)


def _is_utf16(data: bytes) -> bool:
    """UTF-16 or UTF-32, told by its byte order mark or by the zero beside its first ASCII letter."""
    return data[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(data) > 1 and (data[0] == 0) != (data[1] == 0))


def _unclaimed(path: Path, head: Head) -> Verdict:
    if what := unsupported(head):
        return Verdict(None, True, UNSUPPORTED, what)
    # Named like a log: when nothing in it can be read, it is quarantined and not merely skipped.
    meant = path.suffix.lower() in JSON_SUFFIXES
    if head.container in ("object", "array") and meant and (depth := deepest_of_first(head.data)) > MAX_DEPTH:
        found = f"{depth:,} levels in its first {HEAD_BYTES >> 10} KB, the limit is {MAX_DEPTH}"
        return Verdict(None, True, "nested_too_deep", TooDeep.reason, found, head.data)
    table = path.suffix.lower() in (DATABASE_SUFFIXES if head.container == "sqlite" else TABLE_SUFFIXES)
    if (head.container in ("object", "array") and meant) or table:
        keys = ", ".join(sorted(head.top))
        what = "its tables" if head.container == "sqlite" else "first record's keys"
        return Verdict(
            None,
            True,
            "unknown_shape",
            "no connector knows this shape",
            f"{what}: {keys}" if keys else "",
            b"" if head.container == "sqlite" else head.data,
        )
    if meant:
        reason = "named like a log, but it does not begin like JSON"
        return Verdict(None, True, "not_json", reason, excerpt=head.data)
    return _skip("not_a_log", "not a log")


def sha256_of(path: Path, *more: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces; of several files, that of their digests."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256("".join([digest, *map(sha256_of, more)]).encode()).hexdigest() if more else digest
