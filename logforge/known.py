"""What the store holds of each source, and whether a source at hand is still the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash

from logforge import connectors
from logforge.containers import VERSION
from logforge.reading import ARCHIVE, Job, ReadOptions
from logforge.store import Store


class Key(NamedTuple):
    """What a source was read from and with."""

    path: str
    sha256: str
    format: str | None
    version: int | None
    settings: str


@dataclass(frozen=True)
class Known:
    """The sources that the store holds, by id, and the members of each archive among them, by the archive's id."""

    keys: dict[str, Key] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> Known:
        """Those of a store."""
        query = "SELECT source_id, path, sha256, format, connector_version, settings FROM sources"
        rows = store.con.sql(query).fetchall()
        once: dict[str, str] = {}  # few settings and formats are held, not one for each of many sources
        keys = {
            source_id: Key(
                path, sha256, once.setdefault(format, format), version, once.setdefault(settings, settings)
            )
            for source_id, path, sha256, format, version, settings in rows
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

        What a connector read that is not here now (a mapping that is not given, a package that is gone) stays as it is.
        An archive is unchanged when each of its members is.
        """
        key = self.keys.get(job.source_id)
        settings = (job.options.settings, job.options.packed_settings)
        if key is None or key.sha256 != job.sha256 or key.settings not in settings:
            return False
        if key.format == ARCHIVE:
            members = [self.keys[identifier] for identifier in self.members_of(job)]
            whole = key.settings == job.options.packed_settings and key.version == VERSION
            return whole and all(
                member.settings == job.options.settings and _current(member, job.options)
                for member in members
            )
        return _current(key, job.options)

    def members_of(self, job: Job) -> list[str]:
        """The ids of the members that an archive brought."""
        return self.members.get(job.source_id, [])


def _parents(path: str) -> Iterator[str]:
    """The labels that a member's archive may have, the shortest first."""
    end = path.find("!")
    while end >= 0:
        yield path[:end]
        end = path.find("!", end + 1)


def _current(key: Key, options: ReadOptions) -> bool:
    if key.format is None:
        return key.version == options.unread_version
    if options.mapping is not None and key.format == options.mapping.name:
        return key.version == options.mapping.version
    here = connectors.registry()
    return key.format not in here or here[key.format].version == key.version


def source_id_of(label: str) -> str:
    """The id of the source of that label."""
    return xxhash.xxh3_128_hexdigest(label.encode())
