"""Which sources are read together, and which share a transaction: by their sizes alone, so it changes no row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from logforge.core import Scope, per, stage
from logforge.ingestion.long_files import in_parts
from logforge.ingestion.reading import Group, Job, read_lazily, read_together
from logforge.ingestion.workers import QUEUED, Crew, Task

STREAM_BYTES = 64 << 20
"""A larger source is read and stored piece by piece in its own transaction."""
COMMIT_BYTES = 16 << 20
"""Smaller sources share a transaction until together they reach this size."""
COMMIT_SOURCES = 1000
"""Or this number."""
GROUP_BYTES = 4 << 20
"""Small sources are read together up to this size."""
GROUP_SOURCES = 250
"""Or this number."""
_AHEAD = COMMIT_BYTES + QUEUED * GROUP_BYTES
"""What may be read before its turn, for each helping process."""


@stage(per(Scope.SOURCE, "reading, cleaning, what is set aside"))
def read_groups(jobs: Iterable[Job], crew: Crew) -> Iterator[Group]:
    """The jobs read, in their order; a large source comes unread, the others whole."""
    large = partial(_begin, crew=crew)
    tasks = (
        Task(large, group[0], group[0].size, here=True)
        if group[0].size > STREAM_BYTES
        else Task(read_together, group, sum(job.size for job in group))
        for group in _grouped(jobs)
    )
    return crew.results(tasks, crew.helpers * _AHEAD)


def _begin(job: Job, crew: Crew) -> Group:
    """Begin to read a large source: in parts, or a piece while the piece before is stored."""
    return in_parts(job, crew, crew.helpers * _AHEAD) or read_lazily(job, overlapping=crew.helpers > 0)


def _grouped(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Small sources that are read together; larger ones alone."""
    group: list[Job] = []
    size, most = 0, min(GROUP_SOURCES, COMMIT_SOURCES)
    for job in jobs:
        if group and (size + job.size > min(GROUP_BYTES, COMMIT_BYTES, STREAM_BYTES) or len(group) == most):
            yield group
            group, size = [], 0
        group.append(job)
        size += job.size
    if group:
        yield group


def batches_of(groups: Iterator[Group]) -> Iterator[list[Group]]:
    """Groups of sources that share a transaction."""
    batch: list[Group] = []
    for group in groups:
        if size_of(group) > STREAM_BYTES:
            yield [group]
            continue
        batch.append(group)
        if sum(map(size_of, batch)) >= COMMIT_BYTES or sum(len(g.readings) for g in batch) >= COMMIT_SOURCES:
            yield batch
            batch = []
    if batch:
        yield batch


def size_of(group: Group) -> int:
    """The bytes of its sources."""
    return sum(reading.job.size for reading in group.readings)


def label_of(groups: list[Group]) -> str:
    """The last source's."""
    return groups[-1].readings[-1].job.label
