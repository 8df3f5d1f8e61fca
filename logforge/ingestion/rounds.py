"""Reads and stores all jobs: in rounds, since what one round takes away may have to come from sources that have a copy of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from logforge.core import Scope, from_summary, per, silent, stage
from logforge.ingestion.batches import batches_of, label_of, read_groups, size_of
from logforge.ingestion.looking import job_of
from logforge.ingestion.new_owners import heirs
from logforge.ingestion.pace import few_collections
from logforge.ingestion.packed import Unpacker
from logforge.ingestion.reading import Job, ReadOptions
from logforge.ingestion.request import Looked, Stored
from logforge.ingestion.resumed import settle
from logforge.ingestion.storing import Meter, commit
from logforge.store import Store

CHECKPOINT_BYTES = 200 << 20
MEMORY = "128MB"
"""DuckDB's limits while it ingests. Small checkpoints rewrite the file again and again, none at all keeps every committed row in
memory; without a limit DuckDB takes four fifths of the machine's."""
_SHARING = {"threads": "1"}
"""DuckDB's while other processes read: more threads take their cores from them, and do the same work with more effort."""


class Tried(NamedTuple):
    """The ids of the sources that were tried as heirs in this run, and those that were read once more for what came after them."""

    heirs: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()


@stage(
    per(Scope.SOURCE, "reading and cleaning"),
    per(Scope.BATCH, "one transaction"),
    from_summary("who owns what was left without an owner", "copies: a row an episode and source"),
)
def read_and_store(looked: Looked) -> Stored:
    """Every job read and stored, then the sources whose copies of ownerless episodes take over."""
    store, unpacker = looked.store, Unpacker(looked.place.room, looked.known, again=looked.again)
    done, jobs, tried = set[str](), list(looked.jobs), Tried()
    with few_collections(), store.settings(CHECKPOINT_BYTES, memory_limit=MEMORY):
        while True:
            done |= _round(looked, jobs, unpacker)
            jobs, tried = hand_over(store, tried, looked.options)
            if not jobs:
                break
        store.checkpoint()
    kept = looked.kept | unpacker.unchanged
    return Stored(store, frozenset(done), frozenset(kept), unpacker.stayed)


def _round(looked: Looked, jobs: list[Job], unpacker: Unpacker) -> set[str]:
    """Read and store these jobs. Returns the ids read."""
    store, crew, done = looked.store, looked.place.crew, set[str]()
    meter = Meter(looked.tick, sum(job.size for job in jobs))
    crew.start_for(meter.total)
    with store.settings(**(_SHARING if crew.helpers else {})):
        for batch in batches_of(read_groups(unpacker.jobs(jobs), crew)):
            commit(store, batch, meter)
            done |= {reading.job.source_id for group in batch for reading in group.readings}
            meter.add(sum(map(size_of, batch)), label_of(batch))
            batch.clear()  # stored: nothing is to hold its rows while the next is read
    return done


@stage(from_summary("who owns what was left without an owner", "copies: a row an episode and source"))
def hand_over(store: Store, tried: Tried, options: ReadOptions) -> tuple[list[Job], Tried]:
    """What the round left without an owner, and the jobs of those that have a copy of it."""
    stale = settle(store)
    # read once more, even when it was read in this run before the others came
    before, again = tried.heirs - (stale - tried.again), tried.again | stale
    successors = heirs(store, set(before), options)
    jobs = _once(job_of(place, then, silent, 0, 1) for place, then in successors.values())
    return jobs, Tried(before | successors.keys(), frozenset(again))


def _once(jobs: Iterable[Job]) -> list[Job]:
    """The jobs, with those for members of one archive made one."""
    found: dict[tuple[str, str], Job] = {}
    for job in jobs:
        key = (job.source_id, job.options.settings)
        found[key] = replace(job, only=job.only | found[key].only) if key in found else job
    return list(found.values())
