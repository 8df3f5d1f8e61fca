"""The jobs of packed files: one compressed file is a source, an archive a source for each member and one for the rest.

An archive's own row is stored last. It says that the archive was unpacked to its end, and accounts for what of it is no source.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import msgspec

from logforge.ingestion.reading import Job, read_source
from logforge.ingestion.safe_labels import replaced_by, with_safe_labels
from logforge.ingestion.sources import Contents, Found, Verdict, member_digest, packed_kind, unpack
from logforge.ingestion.stored_sources import Known, Stayed, source_id_of
from logforge.schemas import Reject, Skip
from logforge.store import RULE as FORGOTTEN
from logforge.store import hidden_label, key_of


@dataclass
class Unpacker:
    """Turns the jobs of packed files into those of what they hold, one packed file after the other, into folders in `room`.

    `unchanged` gathers the ids of members that need no reading though their archive was unpacked; with `again` all are read.
    `stayed` gathers what cannot be read now, or not as it was read: it is left as it is.
    """

    room: Path
    known: Known = field(default_factory=Known)
    again: bool = False
    unchanged: set[str] = field(default_factory=set)
    stayed: dict[str, Stayed] = field(default_factory=dict)
    _folders: Iterator[int] = field(default_factory=count)

    def jobs(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """The jobs, with what packed files hold in place of these. The last job of each says which folder goes with it."""
        for job in self._contents(jobs):
            if (why := self.known.stays(job)) is None:
                yield unnamed(job)
            else:
                self.stayed[job.source_id] = why
                self.unchanged |= set(self.known.members_of(job))

    def _contents(self, jobs: Iterable[Job]) -> Iterator[Job]:
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
        """Members that the file at hand held earlier, and no longer; and what it was before its label was to be redacted."""
        held = {
            member
            for source in (job.source_id, *job.replaces)
            for member in self.known.members.get(source, ())
        }
        return tuple(sorted((held | set(job.replaces)) - members))

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
            wanted = [member for member in self._members(job, contents)[0] if member.label in job.only]
            yield from wanted[:-1]
            yield from (replace(member, folder=folder) for member in wanted[-1:])
        else:
            yield from self._archive(job, contents)

    def _archive(self, job: Job, contents: Contents) -> Iterator[Job]:
        members, twice = self._members(job, contents)
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

    def _members(self, job: Job, contents: Contents) -> tuple[list[Job], list[Reject]]:
        """A job for each file of an archive; and what has the label of another."""
        members: dict[str, Job] = {}
        twice: list[Reject] = []
        recalled = self.known.recall(job.options)
        for found in with_safe_labels(contents.files, job.options.redaction, job.options.secret_key):
            if found.label in members:
                reason = "another member leads to the same label"
                twice.append(Reject(locator=found.label, reason=reason, rule="duplicate_member"))
                continue
            digest = member_digest(job.sha256, job.label, found.label)
            member = _of_found(job, found, digest)
            damage = tuple(contents.damage.get(found.label, ()))
            options = recalled(member.source_id)
            members[found.label] = withheld(replace(member, asides=damage, options=options))
        return list(members.values()), twice


def withheld(job: Job) -> Job:
    """The job, or one that reads nothing when its source was forgotten."""
    key = key_of("source", job.label)
    if key not in job.options.forgotten:
        return job
    verdict = Verdict(None, False, FORGOTTEN, "its source was forgotten")
    label = hidden_label(job.label)
    return Job(job.path, label, job.source_id, "", 0, job.options, verdict=verdict, replaces=job.replaces)


def unnamed(job: Job) -> Job:
    """The job; where all that its source holds was forgotten, under a label that names no file: the file may be named after
    what was forgotten."""
    if key_of("path", job.label) not in job.options.forgotten or _keeps(job):
        return job
    label = hidden_label(job.label)
    asides = (
        msgspec.structs.replace(aside, locator=label + aside.locator.removeprefix(job.label))
        if isinstance(aside, Reject)
        else aside
        for aside in job.asides
    )
    return replace(job, label=label, asides=tuple(asides))


def _keeps(job: Job) -> bool:
    """Whether a source holds more than what was forgotten, as one that has grown since: that is known when it was read."""
    reading = read_source(job)
    return any(reading.counts.kept for _ in reading.chunks)


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
        replaces=replaced_by(found),
    )


def discard(jobs: Iterable[Job]) -> None:
    """Remove what was unpacked for sources that are stored now."""
    for job in jobs:
        if job.folder is not None:
            shutil.rmtree(job.folder, ignore_errors=True)
