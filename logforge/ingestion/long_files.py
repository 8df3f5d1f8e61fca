"""A long file of lines read in parts, by several processes at once. What is stored is what reading it whole would give.

That holds where a connector says that each line stands for itself (`splittable`). An episode that an earlier part held is
a duplicate, as it is in a file read whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from logforge.connectors import get
from logforge.connectors.records import NeedsWhole, Source, Span
from logforge.core import Tables
from logforge.ingestion.hygiene import ALLOWED
from logforge.ingestion.reading import Chunk, Group, Job, SourceReading, read_together
from logforge.ingestion.sources import Verdict
from logforge.ingestion.workers import Crew, Task

PART_BYTES = 6 << 20
"""About as much as a part has."""
_BLOCK = 1 << 18


def in_parts(job: Job, crew: Crew, ahead: int) -> Group | None:
    """Begin to read a source in parts; None for one that cannot be, and where there is nobody to share it with.

    Iterating over the chunks raises NeedsWhole when it turns out that the source must be read whole. Parts of `ahead` bytes
    in all are read before their turn.
    """
    if not crew.helpers or job.verdict or job.companions or job.archive or job.options.forgotten:
        return None  # what a reject shows depends on whether something forgotten stands before it
    verdict = job.options.judge(job.path)
    source = Source(job.path, job.label, max_record=job.options.limits.record)
    connector = verdict.connector
    if connector is None or not getattr(connector, "splittable", False) or not _is_lines(source):
        return None
    whole = SourceReading(job)
    tasks = (_task(job, connector.name, span) for span in spans(source))
    return Group([whole], _joined(whole, crew.results(tasks, ahead)))


def _is_lines(source: Source) -> bool:
    try:
        return source.is_lines()
    except OSError:  # told by whoever reads the whole
        return False


def _task(job: Job, connector: str, span: Span) -> Task:
    part = replace(job, span=span, asides=() if span.begin else job.asides)
    return Task(_read_part, (part, connector), span.end - span.begin)


def spans(source: Source) -> Iterator[Span]:
    """Whole lines of about PART_BYTES each, and the rest. The first has a line that is not blank, if any has."""
    begin, first, line, done = 0, 1, 1, 0
    least = source.start
    with source.path.open("rb") as file:
        for block in _blocks(file):
            size = block.rfind(b"\n") + 1
            end = done + size
            done += len(block)
            line += block.count(b"\n")
            if size and end > least and end - begin >= PART_BYTES:
                yield Span(begin, end, first)
                begin, first = end, line
    if begin < done:
        yield Span(begin, done, first)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    try:
        yield from iter(partial(file.read, _BLOCK), b"")
    except OSError as error:  # told by whoever reads the whole
        raise NeedsWhole from error


def _read_part(part: tuple[Job, str]) -> Group:
    job, connector = part
    return read_together([replace(job, verdict=Verdict(get(connector), False, "", ""))])


def _joined(whole: SourceReading, parts: Iterable[Group]) -> Iterator[Chunk]:
    """The chunks of all parts, and the whole's account made of theirs."""
    seen: set[str] = set()
    for (reading,), chunks in parts:
        for chunk in chunks:
            ids = set(chunk.copies["episode_id"].to_pylist())
            if whole.job.options.samples and _undated(chunk.copies, ids & seen):
                raise NeedsWhole  # equal rows in several parts: samples are numbered over the whole file
            yield _without(chunk, ids & seen, reading) if ids & seen else chunk
            seen |= ids
        _add(whole, reading)
        if reading.failed:
            return


def _add(whole: SourceReading, part: SourceReading) -> None:
    whole.format, whole.connector_version, whole.settings = (
        part.format,
        part.connector_version,
        part.settings,
    )
    whole.redactions += part.redactions
    whole.counts.kept += part.counts.kept
    whole.counts.duplicates += part.counts.duplicates
    whole.counts.quarantined += part.counts.quarantined
    whole.counts.skip_reasons += Counter(part.counts.skip_reasons)


def _without(chunk: Chunk, twice: set[str], reading: SourceReading) -> Chunk:
    """The chunk without some episodes, whose records are duplicates then."""
    ids = pa.array(sorted(twice), type=pa.string())
    secrets, copies = chunk.secrets, chunk.copies
    of_these = secrets.filter(_is_in(secrets, ids))
    if len(of_these) and pc.any(_is_in(chunk.quarantine, ids)).as_py():
        raise NeedsWhole  # a secret of a part that was set aside counts, one of the rest does not
    records = pc.sum(copies.filter(_is_in(copies, ids))["records"]).as_py()
    reading.counts.kept -= records
    reading.counts.duplicates += records
    replaced = of_these.filter(pc.not_equal(of_these["rule"], ALLOWED))
    reading.redactions -= pc.sum(replaced["count"]).as_py() or 0
    tables = Tables(*(_left(table, ids) for table in chunk.tables))
    return Chunk(tables, _left(copies, ids), chunk.quarantine, _left(secrets, ids))


def _undated(copies: pa.Table, ids: set[str]) -> bool:
    return any(row["started_at"] is None for row in copies.to_pylist() if row["episode_id"] in ids)


def _is_in(table: pa.Table, ids: pa.Array) -> pa.ChunkedArray:
    return pc.is_in(table["episode_id"], value_set=ids)


def _left(table: pa.Table, ids: pa.Array) -> pa.Table:
    return table.filter(pc.invert(_is_in(table, ids)))
