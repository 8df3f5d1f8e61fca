"""Packed files: what they are, told by their first bytes, and their content in private files, within limits.

Names of members are data: a file is made only below the folder given, never through a link, and readable by its owner alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Literal, Self, cast

from logforge.ingestion.sources.limits import Limits
from logforge.ingestion.sources.streams import PIECE, Damaged, codec_of, pieces
from logforge.schemas import Reject, Skip, StoreError

Kind = Literal["stream", "zip", "tar", "foreign"]
"""One compressed file, an archive, or something packed that is not read (7z, rar, lz4, compress)."""
Aside = Reject | Skip
"""What of an archive is no source: refused, or passed over by its nature."""

VERSION = 1
"""Of what is made of packed files; archives are unpacked again when it changes."""
SMALL = 64 << 20
"""What unpacks to less does no harm, whatever its ratio."""
_DEEPEST = 100
_LONGEST_HEADER = 1 << 20
_FOREIGN = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x04\x22\x4d\x18", b"\x1f\x9d", b"\x1f\xa0")
_DOCUMENTS = frozenset({"[Content_Types].xml", "mimetype", "META-INF/MANIFEST.MF"})
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_ZIP_TROUBLE = (zipfile.BadZipFile, NotImplementedError, ValueError)
_TAR_TROUBLE = (tarfile.TarError, ValueError, EOFError, OverflowError, RecursionError)


class Refused(Exception):
    """A packed file that is not read as a whole, with the rule and the reason."""

    def __init__(self, rule: str, reason: str, detail: str = "") -> None:
        super().__init__()
        self.rule, self.reason, self.detail = rule, reason, detail

    @property
    def ends_all(self) -> bool:
        """True when also what lies around the packed file is not read: it unfolds too far."""
        return self.rule in ("unpack_limit", "unpack_ratio", "unpack_members")


@dataclass
class Budget:
    """What one packed file of `packed` bytes has unfolded to so far."""

    limits: Limits
    packed: int
    spent: int = 0
    members: int = 0

    def spend(self, size: int) -> None:
        """Count bytes about to be written. Raises Refused beyond the limits; a negative size gives bytes back."""
        self.spent += size
        self.foresee(0)

    def foresee(self, size: int) -> None:
        """Refuse what announces to grow beyond the limits."""
        limits, total = self.limits, self.spent + size
        if total > limits.unpacked:
            reason = f"unpacks to more than {limits.unpacked:,} bytes"
            raise Refused("unpack_limit", reason, "--max-unpacked sets the limit")
        if total > max(SMALL, limits.ratio * self.packed):
            reason = f"unpacks to more than {limits.ratio} times its size, as a bomb does"
            raise Refused("unpack_ratio", reason, "--max-ratio sets the limit")

    def count(self, members: int) -> None:
        """Count files. Raises Refused beyond the limit."""
        self.members += members
        if self.members > self.limits.members:
            raise Refused("unpack_members", f"holds more than {self.limits.members:,} files")


def kind_of(path: Path) -> Kind | None:
    """What a file's first bytes say it is; None for what is not packed. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(tarfile.BLOCKSIZE)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if codec_of(head):
        return "stream"
    if head.startswith(_FOREIGN):
        return "foreign"
    return "tar" if _is_tar(head) else None


def _is_tar(head: bytes) -> bool:
    if len(head) < tarfile.BLOCKSIZE or not head[148:156].strip(b" \x00").isdigit():
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def unpack_stream(path: Path, target: Path, budget: Budget) -> str | None:
    """Write a compressed file's content to `target`, as far as it is whole; what damaged it, if anything."""
    with path.open("rb") as file:
        codec = codec_of(file.read(16)) or ""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _written(target, pieces(path, codec), budget)


def _written(target: Path, content: Iterator[bytes], budget: Budget) -> str | None:
    """Write a new file of ours; what damaged its content. Raises FileExistsError, and StoreError when the disk is full."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in content:
                budget.spend(len(piece))
                file.write(piece)
    except Damaged as error:
        return str(error) or "the data are damaged"
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some disk space, or unpack it elsewhere and ingest that"
            raise StoreError(str(target.parent), "the disk is too full to unpack a file", remedy) from error
        raise
    return None


@dataclass
class Unpacking:
    """Takes an archive's members into `folder`. `damaged` tells of members that are there in part: what, by their file."""

    folder: Path
    label: str
    budget: Budget
    damaged: dict[Path, str]

    @classmethod
    def begin(cls, folder: Path, label: str, budget: Budget) -> Self:
        """Make the folder for the members of the archive called `label`."""
        folder.mkdir(mode=0o700, parents=True)
        return cls(folder, label, budget, {})

    def archive(self, path: Path, kind: Kind) -> Iterator[Aside]:
        """Unpack an archive; what of it is no source comes out. Raises Refused when none of it is to be read."""
        yield from self._zip(path) if kind == "zip" else self._tar(path)

    def _zip(self, path: Path) -> Iterator[Aside]:
        try:
            archive = zipfile.ZipFile(path)
        except (*_ZIP_TROUBLE, OverflowError, struct.error) as error:
            raise Refused("damaged_archive", "a zip archive that is damaged or cut off", str(error)) from None
        with archive:
            members = archive.infolist()
            if not _DOCUMENTS.isdisjoint(archive.NameToInfo):
                yield Skip(reason="not_a_log")
                return
            self.budget.count(len(members))
            self.budget.foresee(sum(member.file_size for member in members))
            if _overlap(members, archive.start_dir):
                raise Refused("overlapping_members", "members of this archive overlap, as in a bomb")
            for member in members:
                yield from self._zip_member(archive, member)

    def _zip_member(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[Aside]:
        name = member.filename
        mode = member.external_attr >> 16
        if member.is_dir():
            return
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            yield Skip(reason="not_a_regular_file")
        elif member.flag_bits & 0x1:
            yield self._refuse(name, "encrypted_member", "encrypted: its password is not known here")
        elif member.compress_type not in _METHODS:
            reason = f"packed with method {member.compress_type}, which is not read"
            yield self._refuse(name, "unsupported_compression", reason)
        else:
            yield from self._take(name, _zip_pieces(archive, member))

    def _tar(self, path: Path) -> Iterator[Aside]:
        with path.open("rb") as file:
            try:
                archive = tarfile.open(fileobj=file, mode="r:", tarinfo=_Header)  # noqa: SIM115
            except _TAR_TROUBLE as error:
                raise Refused("damaged_archive", "a tar archive that is damaged", str(error)) from None
            with archive:
                trouble = None
                try:
                    while (member := archive.next()) is not None:
                        archive.members.clear()  # type: ignore[attr-defined]  # it keeps all that it met
                        self.budget.count(1)
                        yield from self._tar_member(file, member)
                except _TAR_TROUBLE as error:
                    trouble = str(error) or type(error).__name__
                if trouble := trouble or _unread(file, archive.offset):
                    reason = "a tar archive that is damaged or cut off: what follows was not read"
                    yield Reject(locator=self.label, reason=reason, rule="damaged_archive", detail=trouble)

    def _tar_member(self, file: IO[bytes], member: tarfile.TarInfo) -> Iterator[Aside]:
        if member.isdir():
            return
        if member.issparse():
            yield self._refuse(member.name, "unsupported_compression", "a sparse file, which is not read")
        elif not member.isreg():
            yield Skip(reason="not_a_regular_file")
        else:
            yield from self._take(member.name, _extent(file, member.offset_data, member.size))

    def _take(self, name: str, content: Iterator[bytes]) -> Iterator[Aside]:
        """Write a member. Of several of one name the last is taken, as unpacking programs do."""
        inner = inner_path(name)
        if inner is None:
            yield self._refuse(name, "unsafe_member_name", "its name leads out of the archive, or nowhere")
            return
        target = self.folder / inner
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target.is_file():
                target.unlink()
                self.damaged.pop(target, None)
                reason = "a later member of the archive has the same name, and is read in its place"
                yield self._refuse(name, "duplicate_member", reason)
            if what := _written(target, content, self.budget):
                self.damaged[target] = what
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            yield self._refuse(name, "duplicate_member", "the name of a file and of a folder at once")
        except OSError as error:
            if error.errno not in (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL):
                raise
            yield self._refuse(name, "unsafe_member_name", f"no file can be named so: {error.strerror}")

    def _refuse(self, name: str, rule: str, reason: str) -> Reject:
        return Reject(locator=f"{self.label}!{shown(name)[:1000]}", reason=reason, rule=rule)


def inner_path(name: str) -> Path | None:
    """Where a member lies below its archive's folder; None for a name that leads out of it or nowhere."""
    parts = PurePosixPath(name).parts
    leads_out = name.startswith(("/", "\\")) or _DRIVE.match(name) or ".." in re.split(r"[\\/]", name)
    if leads_out or not parts or "\x00" in name or len(parts) > _DEEPEST:
        return None
    return Path(*parts)


def shown(name: str) -> str:
    """A name as valid text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _overlap(members: list[zipfile.ZipInfo], end: int) -> bool:
    starts = sorted((member.header_offset, member.compress_size) for member in members)
    following = [*(start for start, _ in starts), end][1:]
    return any(start + size > after for (start, size), after in zip(starts, following, strict=True))


def _zip_pieces(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with cast(zipfile.ZipExtFile, archive.open(member)) as stream:
            yield from iter(partial(stream.read1, PIECE), b"")
    except (*_ZIP_TROUBLE, zlib.error, EOFError) as error:
        raise Damaged(str(error)) from None
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Damaged(str(error)) from None


def _extent(file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    file.seek(start)
    while size:
        piece = file.read(min(PIECE, size))
        if not piece:
            raise Damaged("the archive is cut off within this member")
        size -= len(piece)
        yield piece


def _unread(file: IO[bytes], offset: int) -> str:
    """What is wrong with the end of a tar archive, whose last header begins at `offset`."""
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if not block:
        return "the end mark is missing"
    if block.strip(b"\x00"):
        return "what should be a header is none"
    while piece := file.read(PIECE):
        if piece.strip(b"\x00"):
            return "more follows the end mark"
    return ""


class _Header(tarfile.TarInfo):
    """A header whose long names and extensions, which are read into memory, stay small."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in (b"L", b"K", b"x", b"g", b"X") and found.size > _LONGEST_HEADER:
            raise tarfile.HeaderError("a header of more than a megabyte")
        return found
