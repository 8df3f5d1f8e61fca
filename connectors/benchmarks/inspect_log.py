"""Inspect logs, JSON documents and `.eval` archives. A record is one sample: an item of the dataset in one epoch.

An archive is read member by member with the standard library. Where its members are compressed with zstd, which
Python's zipfile learned in 3.14, inspect_ai (extra `inspect`) is imported: it teaches zipfile that.
"""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from logforge.connectors.benchmarks.inspect_sample import read_sample
from logforge.connectors.episodes import InnerList, object_or_empty, read_inner
from logforge.connectors.records import Head, NotJson, Source, loads, malformed, too_long
from logforge.schemas import MissingExtra, Reading, Reject, Skip

_HEADER, _START = "header.json", "_journal/start.json"
_SAMPLES = "samples/"
_RUN = frozenset({"task", "model", "run_id"})


class InspectJson:
    """Inspect logs as JSON documents."""

    name = "inspect_json"
    version = 5
    record = "one element of `samples`: an item in one epoch"
    fills = ("outcome", "score", "tools", "thoughts", "tokens", "latency", "times")

    def sniff(self, head: Head) -> float:
        """A document with version, status and the evaluation's settings."""
        mine = head.container == "object" and {"version", "status", "eval"} <= head.top
        return 0.95 if mine and len(_RUN & head.keys.get("eval", set())) >= 2 else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per sample."""

        def sample(value: Any, locator: str, document: dict[str, Any]) -> Iterator[Reading]:
            yield from read_sample(value, locator, document, self.name)

        yield from read_inner(source, InnerList("samples", "eval"), sample)


class InspectEval:
    """Inspect logs as `.eval` archives."""

    name = "inspect_eval"
    record = "one member `samples/*.json`: an item in one epoch"
    fills = ("outcome", "score", "tools", "tokens", "latency", "times")

    def __init__(self) -> None:
        # An archive that could not be read is read again once inspect_ai is there: its version is another then.
        self.version = 6 if _knows_zstd() or find_spec("inspect_ai") else 5

    def sniff(self, head: Head) -> float:
        """A zip archive with a header or a journal, or one cut off after the journal's beginning."""
        if head.container != "zip":
            return 0.0
        if head.members:
            mine = {_HEADER, _START} & set(head.members) and any(map(_is_log_member, head.members))
            return 0.95 if mine else 0.0
        return 0.9 if head.data[30 : 30 + len(_START)] == _START.encode() else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per sample."""
        if not source.first_byte():
            return
        try:
            archive = zipfile.ZipFile(source.path)
        except Exception as error:
            reason = "no zip archive, or one that is cut off"
            yield Reject(locator=source.label, reason=reason, rule="malformed_record", detail=str(error))
            return
        with archive:
            yield from _read_archive(_Archive(archive, source.label, source.max_record), self.name)


class _Archive(NamedTuple):
    zip: zipfile.ZipFile
    label: str
    limit: int
    """Bytes that a member may unpack to; zipfile gives no more than a member's header says."""

    def locator(self, name: str) -> str:
        return f"{self.label}!{name}#"

    def bytes_of(self, member: zipfile.ZipInfo) -> bytes | Reject:
        """A member's content. Raises MissingExtra."""
        if member.file_size > self.limit:
            return too_long(self.locator(member.filename), "document", member.file_size, self.limit, b"")
        try:
            return _decompressed(self.zip, member)
        except MissingExtra:
            raise
        except Exception as error:  # each compression has errors of its own
            return Reject(
                locator=self.locator(member.filename),
                reason="damaged in the archive",
                rule="malformed_record",
                detail=f"{type(error).__name__}: {error}",
            )

    def header(self) -> dict[str, Any]:
        """The log around the samples. While an evaluation runs, and after a crash, there is only the journal's start."""
        names = set(self.zip.namelist())
        for name, more in ((_HEADER, {}), (_START, {"status": "started"})):
            data = self.bytes_of(self.zip.getinfo(name)) if name in names else b""
            try:
                found = object_or_empty(loads(data)) if isinstance(data, bytes) and data else {}
            except NotJson:
                found = {}
            if found:
                return more | found
        return {}


def _read_archive(archive: _Archive, format_name: str) -> Iterator[Reading]:
    members = [m for m in archive.zip.infolist() if m.filename.startswith(_SAMPLES) and _is_json(m.filename)]
    last = {member.filename: index for index, member in enumerate(members)}
    if not members:
        yield Skip(reason="no_samples")
        return
    try:
        archive.bytes_of(members[0])
        header = archive.header()
    except MissingExtra as error:
        yield _needs_extra(archive.label, error, len(members))
        return
    for index, member in enumerate(members):
        if last[member.filename] == index:
            yield from _read_member(archive, member, header, format_name)
        else:
            yield Skip(reason="superseded_member")


def _read_member(
    archive: _Archive, member: zipfile.ZipInfo, header: dict[str, Any], format_name: str
) -> list[Reading]:
    locator = archive.locator(member.filename)
    try:
        data = archive.bytes_of(member)
    except MissingExtra as error:
        return [_needs_extra(locator, error, 1)]
    if isinstance(data, Reject):
        return [data]
    try:
        return list(read_sample(loads(data), locator, header, format_name))
    except NotJson as error:
        return [malformed(locator, error, data)]
    except RecursionError:
        return [Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")]


def _needs_extra(locator: str, error: MissingExtra, records: int) -> Reject:
    return Reject(locator=locator, reason=str(error), rule="missing_extra", records=records)


def _decompressed(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(member)
    except NotImplementedError:
        if _knows_zstd():
            raise
        _learn_zstd()
        return archive.read(member)


def _knows_zstd() -> bool:
    return hasattr(zipfile, "ZIP_ZSTANDARD")


def _learn_zstd() -> None:
    try:
        importlib.import_module("inspect_ai.log")
    except ImportError:
        raise MissingExtra("an archive compressed with zstd", "inspect") from None


def _is_json(name: str) -> bool:
    return name.endswith(".json")


def _is_log_member(name: str) -> bool:
    return name.startswith((_SAMPLES, "_journal/")) and _is_json(name)
