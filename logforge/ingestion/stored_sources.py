"""What the store holds of each source, whether a source at hand is still the same, and what can read it as before."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import xxhash

from logforge.connectors import detection as connectors
from logforge.connectors.records import Connector, look
from logforge.ingestion.reading import ARCHIVE, Job, ReadOptions
from logforge.ingestion.sources import VERSION
from logforge.ingestion.stored_options import Remembered, remembered
from logforge.store import Store


class Key(NamedTuple):
    """What a source was read from and with, and whether anything of it is kept."""

    path: str
    sha256: str
    format: str | None
    version: int | None
    read_with: Remembered
    keeps: bool

    @property
    def settings(self) -> str:
        """The settings that a run has too."""
        return self.read_with.settings

    @property
    def reader(self) -> Connector | None:
        """What is to read the source again though no run names it; a format that kept nothing was a wrong one."""
        return self.read_with.reader() if self.keeps or self.read_with.mapping is not None else None


class Stayed(NamedTuple):
    """A source that is left as it is, since nothing here reads it as it was read."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@dataclass(frozen=True)
class Known:
    """The sources that the store holds, by id, and the members of each archive among them, by the archive's id."""

    keys: dict[str, Key] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> Known:
        """Those of a store."""
        query = "SELECT source_id, path, sha256, format, connector_version, settings, kept + duplicates > 0 FROM sources"
        rows = store.con.sql(query).fetchall()
        once: dict[str, str] = {}  # few settings and formats are held, not one for each of many sources
        keys = {
            source_id: Key(
                path, sha256, once.setdefault(format, format), version, remembered(settings), keeps
            )
            for source_id, path, sha256, format, version, settings, keeps in rows
        }
        archives = {key.path: identifier for identifier, key in keys.items() if key.format == ARCHIVE}
        members: dict[str, list[str]] = {}
        for identifier, key in keys.items() if archives else ():
            owner = next((archives[part] for part in _parents(key.path) if part in archives), None)
            if owner is not None:
                members.setdefault(owner, []).append(identifier)
        return cls(keys, members)

    def unchanged(self, job: Job) -> bool:
        """Same bytes, read by the same version of the same connector with the same settings.

        What a connector read that is not here now (a mapping that cannot be read, a package that is gone) stays as it is.
        An archive is unchanged when each of its members is.
        """
        key = self.keys.get(job.source_id)
        settings = (job.options.settings, job.options.packed_settings)
        if key is None or key.sha256 != job.sha256 or key.settings not in settings:
            return False
        if not self.keys.keys().isdisjoint(job.replaces):
            return False
        if key.format == ARCHIVE:
            members = [self.keys[identifier] for identifier in self.members_of(job)]
            whole = key.settings == job.options.packed_settings and key.version == VERSION
            return whole and all(
                member.settings == job.options.settings and _current(member, job.options)
                for member in members
            )
        mapping = job.options.mapping
        another = mapping is not None and key.read_with.mapping is not None and mapping.name != key.format
        return _current(key, job.options) and not (another and _claims(mapping, job))

    def members_of(self, job: Job) -> list[str]:
        """The ids of the members that an archive brought."""
        return self.members.get(job.source_id, [])

    def recall(self, options: ReadOptions) -> Callable[[str], ReadOptions]:
        """The options for a source by its id: with the mapping or the forced format that it was read with before."""
        plain = options if options.earlier is None else replace(options, earlier=None)
        made: dict[Remembered, ReadOptions] = {}  # one for many sources: they hold much

        def of(source_id: str) -> ReadOptions:
            key = self.keys.get(source_id)
            if key is None or (reader := key.reader) is None:
                return plain
            if key.read_with not in made:
                made[key.read_with] = replace(options, earlier=reader)
            return made[key.read_with]

        return of

    def stays(self, job: Job) -> Stayed | None:
        """Why a source's rows are left as they are: its file cannot be read now, or what read it is not here, and no other is given
        that reads it."""
        key, options = self.keys.get(job.source_id), job.options
        if key is not None and job.verdict and job.verdict.rule == "unreadable_file":
            held = [key, *(self.keys[member] for member in self.members_of(job))]
            why = f"{job.verdict.reason}; what was read of it before stays"
            return Stayed(key.path, why) if any(one.keeps for one in held) else None
        here = connectors.registry()
        if (
            key is None
            or job.verdict
            or key.format in (None, ARCHIVE)
            or key.format in here
            or options.earlier
        ):
            return None
        if options.format in here or _claims(options.mapping, job):
            return None
        if key.read_with.mapping is not None:
            return Stayed(key.path, f"was read with mapping {key.format}; give --mapping")
        return Stayed(
            key.path, f"was read with {key.format}, which is not here; give --mapping or install it"
        )


def holder_of(path: str, read: Container[str]) -> str:
    """The source among those `read` whose file holds this one: of an archive's member the archive, else itself."""
    return next((part for part in _parents(path) if part in read), path)


def _parents(path: str) -> Iterator[str]:
    """The labels that a member's archive may have, the shortest first."""
    end = path.find("!")
    while end >= 0:
        yield path[:end]
        end = path.find("!", end + 1)


def _claims(mapping: Connector | None, job: Job) -> bool:
    return mapping is not None and job.path.is_file() and mapping.sniff(look(job.path)) > 0


def _current(key: Key, options: ReadOptions) -> bool:
    if key.format is None:
        return key.version == options.unread_version
    mapping = options.mapping
    if mapping is None or mapping.name != key.format:
        mapping = key.reader if key.read_with.mapping is not None else connectors.registry().get(key.format)
    return mapping is None or mapping.version == key.version


def source_id_of(label: str) -> str:
    """The id of the source of that label."""
    return xxhash.xxh3_128_hexdigest(label.encode())
