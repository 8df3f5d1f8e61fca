"""What a packed file holds, as files to read: private copies in a folder beside the store, under the labels of members.

A label is `path` for what one compressed file holds and `path!member` for an archive's member, archives in archives included.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from logforge.connectors import claims
from logforge.connectors.records import Connector, look
from logforge.ingestion.sources.containers import (
    Aside,
    Budget,
    Kind,
    Refused,
    Unpacking,
    kind_of,
    unpack_stream,
)
from logforge.ingestion.sources.discover import Found, Verdict, find, label_of, unpacked_beside
from logforge.ingestion.sources.limits import Limits
from logforge.ingestion.sources.streams import plain_name
from logforge.schemas import Reject, StoreError

_FOREIGN = "packed in a way that is not read (7z, rar, lz4 or compress)"
_LOST = "damaged or cut off: what comes after the damage was not read"


def packed_kind(path: Path, mapping: Connector | None = None) -> Kind | None:
    """How a file is packed; None for one that is not, or that a connector reads as it is. Raises OSError."""
    kind = kind_of(path)
    if kind is None or claims(look(path), *([mapping] if mapping else [])):
        return None
    return kind


@contextmanager
def room_beside(store: Path) -> Iterator[Path]:
    """The private folder for what is unpacked while a store is written; what a killed run left there goes first."""
    place = unpacked_beside(store.resolve())
    _clear(place)
    try:
        place.mkdir(mode=0o700)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _clear(place: Path) -> None:
    try:
        place.unlink() if place.is_symlink() else shutil.rmtree(place)
    except FileNotFoundError:
        pass
    except OSError as error:
        remedy = "remove it, then run this again"
        raise StoreError(str(place), f"what a killed run left cannot be removed: {error}", remedy) from error


@dataclass
class Contents:
    """What a packed file holds: files to read, what of an archive is no file, and the damage of files that are there in
    part, by label. `archive` is false for one compressed file."""

    folder: Path
    archive: bool = False
    files: list[Found] = field(default_factory=list)
    asides: list[Aside] = field(default_factory=list)
    damage: dict[str, list[Reject]] = field(default_factory=dict)


def unpack(
    path: Path, label: str, folder: Path, limits: Limits, mapping: Connector | None = None
) -> Contents:
    """Unpack a file into a new folder. Bad input never raises: it is among the asides, or a file with a verdict.

    Raises StoreError when the disk is full, OSError when the file cannot be read.
    """
    folder.mkdir(mode=0o700, parents=True)
    work = _Work(Contents(folder), Budget(limits, path.stat().st_size), mapping)
    kind = packed_kind(path, mapping)
    try:
        if kind is not None:
            work.open(path, kind, label, 0)
    except Refused as refused:
        work.refuse_all(path, label, refused)
    return work.contents


@dataclass
class _Work:
    """Opens one packed file and what is packed within it."""

    contents: Contents
    budget: Budget
    mapping: Connector | None
    _rooms: Iterator[int] = field(default_factory=count)

    def open(self, path: Path, kind: Kind, label: str, depth: int) -> None:
        """Open a packed file that lies within `depth` archives."""
        self.contents.archive |= depth == 0 and kind in ("zip", "tar")
        if kind == "foreign":
            raise Refused("unsupported_compression", _FOREIGN)
        if depth == self.budget.limits.depth:
            raise Refused("unpack_depth", f"packed more than {depth} times over")
        if kind == "stream":
            self._stream(path, label, depth)
        else:
            self._archive(path, kind, label, depth, [])

    def _room(self, name: str) -> Path:
        return self.contents.folder / str(next(self._rooms)) / name

    def _stream(self, path: Path, label: str, depth: int) -> None:
        """One compressed file: what it holds is under its own label, be it a file or an archive."""
        target = self._room(path.parent.name or "root") / plain_name(path.name)
        damaged = unpack_stream(path, target, self.budget)
        damage = [] if damaged is None else [_damage(label, "damaged_stream", damaged)]
        kind = packed_kind(target, self.mapping)
        if kind is None:
            self.contents.files.append(Found(target, label))
            self.contents.damage[label] = damage
            return
        self.budget.spend(-target.stat().st_size)
        self.contents.archive |= depth == 0 and kind in ("zip", "tar")
        if kind in ("zip", "tar"):
            self._archive(target, kind, label, depth, damage)
        else:
            self.contents.asides.extend(damage)
            self.open(target, kind, label, depth + 1)
        target.unlink()

    def _archive(self, path: Path, kind: Kind, label: str, depth: int, torn: list[Reject]) -> None:
        """An archive, of which it may be known already that it is `torn`: that is not said twice."""
        taking = Unpacking.begin(self._room(plain_name(path.name)), label, self.budget)
        asides = list(taking.archive(path, kind))
        self.contents.asides.extend(torn)
        self.contents.asides.extend(aside for aside in asides if not (torn and _tells_of(aside, label)))
        home, packed = taking.folder, dict(self._streams_in_place(taking))
        for found in find([home], home):
            labels = [
                f"{label}!{label_of(packed.get(file, file), home)}"
                for file in (found.path, *found.companions)
            ]
            damage = [
                _damage(where, "damaged_member", taking.damaged[file])
                for where, file in zip(labels, (found.path, *found.companions), strict=True)
                if file in taking.damaged
            ]
            self._member(found._replace(label=labels[0]), damage, depth)

    def _streams_in_place(self, taking: Unpacking) -> Iterator[tuple[Path, Path]]:
        """Compressed members are unpacked beside the others, so that files that belong together find each other.

        Each with the name that it had in the archive.
        """
        for path in sorted(taking.folder.rglob("*")):
            target = path.with_name(plain_name(path.name))
            if path.is_file() and not target.exists() and packed_kind(path, self.mapping) == "stream":
                if damaged := unpack_stream(path, target, self.budget) or taking.damaged.pop(path, None):
                    taking.damaged[target] = damaged
                path.unlink()
                yield target, path

    def _member(self, found: Found, damage: list[Reject], depth: int) -> None:
        kind = None if found.verdict else packed_kind(found.path, self.mapping)
        if kind is None:
            self.contents.files.append(found)
            self.contents.damage.setdefault(found.label, []).extend(damage)
            return
        self.contents.asides.extend(damage)
        try:
            self.open(found.path, kind, found.label, depth + 1)
        except Refused as refused:
            if refused.ends_all:
                raise
            self.contents.asides.append(_reject(found.label, refused))

    def refuse_all(self, path: Path, label: str, refused: Refused) -> None:
        """Nothing of the packed file is read."""
        contents = self.contents
        contents.files.clear()
        contents.damage.clear()
        contents.asides.clear()
        if contents.archive:
            contents.asides.append(_reject(label, refused))
        else:
            verdict = Verdict(None, True, refused.rule, refused.reason, refused.detail)
            contents.files.append(Found(path, label, verdict=verdict))


def _tells_of(aside: Aside, label: str) -> bool:
    return isinstance(aside, Reject) and aside.locator == label


def _reject(label: str, refused: Refused) -> Reject:
    return Reject(locator=label, reason=refused.reason, rule=refused.rule, detail=refused.detail)


def _damage(label: str, rule: str, what: str) -> Reject:
    return Reject(locator=label, reason=_LOST, rule=rule, detail=what)


def member_digest(digest: str, label: str, member: str) -> str:
    """What stands for the SHA-256 of a member: it follows from the archive's own and the member's name, so that an
    unchanged archive is told without unpacking it."""
    return hashlib.sha256(f"{digest}{member.removeprefix(label)}".encode()).hexdigest()
