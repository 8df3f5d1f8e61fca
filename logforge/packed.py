"""The jobs of packed files: one compressed file is a source, an archive a source for each member and one for the rest.

An archive's own row is stored last. It says that the archive was unpacked to its end, and accounts for what of it is no source.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from logforge.discover import Found, Verdict
from logforge.forgotten import RULE as FORGOTTEN
from logforge.forgotten import key_of
from logforge.known import Known, source_id_of
from logforge.reading import Job
from logforge.schemas.episode import Reject, Skip
from logforge.unpacking import Contents, member_digest, packed_kind, unpack


@dataclass
class Unpacker:
    """Turns the jobs of packed files into those of what they hold, one packed file after the other, into folders in `room`.

    `unchanged` gathers the ids of members that need no reading though their archive was unpacked; with `again` all are read.
    """

    room: Path
    known: Known = field(default_factory=Known)
    again: bool = False
    unchanged: set[str] = field(default_factory=set)
    _folders: Iterator[int] = field(default_factory=count)

    def jobs(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """The jobs, with what packed files hold in place of these. The last job of each says which folder goes with it."""
        for job in jobs:
            try:
                is_packed = job.verdict is None and packed_kind(job.path, job.options.mapping) is not None
                yield from (
                    self._unpacked(job) if is_packed else [replace(job, replaces=self._gone(job, set()))]
                )
            except OSError as error:
                reason = f"the file cannot be read: {error.strerror}"
                yield replace(job, verdict=Verdict(None, True, "unreadable_file", reason))

    def _gone(self, job: Job, members: set[str]) -> tuple[str, ...]:
        """Members that the file at hand held earlier, and no longer."""
        return tuple(sorted(set(self.known.members_of(job)) - members))

    def _unpacked(self, job: Job) -> Iterator[Job]:
        folder = self.room / str(next(self._folders))
        contents = unpack(job.path, job.label, folder, job.options.limits, job.options.mapping)
        if not contents.archive:
            (found,) = contents.files
            damage = tuple(contents.damage.get(job.label, ()))
            yield replace(
                _of_found(job, found, job.sha256),
                asides=damage,
                packed=True,
                folder=folder,
                replaces=self._gone(job, set()),
            )
        elif job.only:
            wanted = [member for member in _members(job, contents)[0] if member.label in job.only]
            yield from wanted[:-1]
            yield from (replace(member, folder=folder) for member in wanted[-1:])
        else:
            yield from self._archive(job, contents)

    def _archive(self, job: Job, contents: Contents) -> Iterator[Job]:
        members, twice = _members(job, contents)
        for member in members:
            if not self.again and self.known.unchanged(member):
                self.unchanged.add(member.source_id)
            else:
                yield member
        asides = (*contents.asides, *twice)
        yield replace(
            job,
            size=job.path.stat().st_size,
            packed=True,
            archive=True,
            asides=asides or (() if members else (Skip(reason="empty_archive"),)),
            folder=contents.folder,
            replaces=self._gone(job, {member.source_id for member in members}),
        )


def _members(job: Job, contents: Contents) -> tuple[list[Job], list[Reject]]:
    """A job for each file of an archive; and what has the label of another."""
    members: dict[str, Job] = {}
    twice: list[Reject] = []
    for found in contents.files:
        if found.label in members:
            reason = "another member leads to the same label"
            twice.append(Reject(locator=found.label, reason=reason, rule="duplicate_member"))
            continue
        digest = member_digest(job.sha256, job.label, found.label)
        damage = tuple(contents.damage.get(found.label, ()))
        members[found.label] = withheld(replace(_of_found(job, found, digest), asides=damage))
    return list(members.values()), twice


def withheld(job: Job) -> Job:
    """The job, or one that reads nothing when its source was forgotten."""
    key = key_of("source", job.label)
    if key not in job.options.forgotten:
        return job
    verdict = Verdict(None, False, FORGOTTEN, "its source was forgotten")
    return Job(job.path, f"{FORGOTTEN}/{key[:12]}", job.source_id, "", 0, job.options, verdict=verdict)


def _of_found(job: Job, found: Found, digest: str) -> Job:
    files = [path for path in (found.path, *found.companions) if path.is_file()]
    return Job(
        path=found.path,
        label=found.label,
        source_id=source_id_of(found.label),
        sha256=digest,
        size=sum(path.stat().st_size for path in files),
        options=job.options,
        companions=found.companions,
        verdict=found.verdict,
    )


def discard(jobs: Iterable[Job]) -> None:
    """Remove what was unpacked for sources that are stored now."""
    for job in jobs:
        if job.folder is not None:
            shutil.rmtree(job.folder, ignore_errors=True)
