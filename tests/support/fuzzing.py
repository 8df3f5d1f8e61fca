"""What must hold of whatever comes of a damaged log."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from logforge.connectors.detection import registry
from logforge.connectors.records.base import Connector, Source
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.reading import Job, ReadOptions, SourceReading, read_source
from logforge.ingestion.sources.discover import judge, label_of
from logforge.lineage.locate import resolve
from logforge.schemas.episode import Episode, Reading, Reject, Role
from logforge.store.store import Store
from logforge.testing.soundness import counted, episodes_in, unsound
from support.fuzzed_shapes import Fuzzed
from support.mutations import Input

LABEL = "log"
SECONDS = 5.0
"""CPU seconds. An input that is read longer hangs."""
TIMES = ("created_at", "started_at", "ended_at")
NO_JSON = ("malformed_record", "nested_too_deep", "number_too_long", "several_documents")
ROLES = frozenset(get_args(Role))


class Hangs(BaseException):
    """Reading took too long. No Exception, so that nobody takes it for one of a connector's."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Hangs when it takes longer, in seconds of this process: others may keep the machine busy."""

    def stop(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Failure(NamedTuple):
    """An input that breaks a law: which one, what was done to make it, where it lies, and what is wrong."""

    shape: str
    number: int
    notes: tuple[str, ...]
    path: Path
    problems: list[str]

    def __str__(self) -> str:
        again = f"python -m benchmarks.fuzz --shape {self.shape} --number {self.number}"
        made = "\n    ".join(self.notes)
        return "\n  ".join([f"{again}   ({self.path})", f"made: {made}", *self.problems[:3]])


class Fuzz:
    """Reads one shape's damaged inputs in a folder of its own."""

    def __init__(self, shape: Fuzzed, folder: Path, seconds: float = SECONDS) -> None:
        self.shape, self.folder, self._home, self._seconds = shape, folder / "logs", folder, seconds
        self.folder.mkdir(parents=True)
        self._store: Store | None = None
        for name, data in shape.beside.items():
            self._write(name, data)

    def _write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        try:
            path.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
        return path

    def failure(self, number: int) -> Failure | None:
        """What is wrong with what comes of an input, which is then kept; None when all laws hold."""
        given = self.shape.make(number)
        if problems := self._problems(given, number):
            kept = self._home / "failures" / f"{self.shape.name}-{number}" / Path(given.name).name
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(given.data)
            return Failure(self.shape.name, number, given.notes, kept, problems)
        return None

    def _problems(self, given: Input, number: int) -> list[str]:
        path = self._write(given.name, given.data)
        try:
            with limited(self._seconds), warnings.catch_warnings():
                warnings.simplefilter("error")
                return list(self._broken(path, given, number))
        except Hangs:
            return [f"is not read after {self._seconds} CPU seconds"]
        except Exception as error:
            return [f"raises {type(error).__name__}: {error} {_where(error)}"]
        finally:
            if self.shape.beside:
                self._write(given.name, self.shape.beside[given.name])

    def _broken(self, path: Path, given: Input, number: int) -> Iterator[str]:
        """Every input is read by its connector; three in sixteen go the whole way to tables, a few of them to the store."""
        main = self.folder / self.shape.main if self.shape.main else path
        connector, share = self.shape.connector, number % 16
        readings = list(connector.read(self._source(main)))
        yield from unsound(readings)
        yield from _unfit(episodes_in(readings))
        if not self.shape.beside:
            yield from _outside(readings, given.data)
        if share == 2:
            reading, rules = self._read(main, connector, ReadOptions())
            yield from _rules(rules)
            if reading.format is not None:
                yield from _counts(reading, readings)
            if number % 160 == 50:
                yield from self._stored(main, reading)
        if share == 0:
            yield from _rules(self._read(main, None, ReadOptions())[1])
        if share == 8:
            yield from _rules(self._read(main, connector, ReadOptions(strict_arguments=True))[1])
        if share in (1, 9) and list(connector.read(self._source(main))) != readings:
            yield "a second reading differs"
        if given.whole and not self.shape.beside and not _damaged(readings):
            if share in (3, 11) and self.shape.count and counted(readings) != (n := self.shape.count(path)):
                yield f"{counted(readings)} records are accounted for, the file holds {n}"
            if share in (5, 13):
                yield from _lost(episodes_in(readings), path)

    def _source(self, main: Path) -> Source:
        return Source(main, LABEL, self._companions)

    @property
    def _companions(self) -> tuple[Path, ...]:
        connector = self.shape.connector
        return tuple(connector.companions(self.folder / self.shape.main)) if self.shape.beside else ()

    def _read(
        self, path: Path, connector: Connector | None, options: ReadOptions
    ) -> tuple[SourceReading, list[tuple[str, str]]]:
        """Read into tables: by this connector, or by the one that claims the file."""
        verdict = judge(path, connector)
        reading = read_source(Job(path, LABEL, "0", "", 0, options, self._companions, verdict))
        rules = [
            (row["rule"], f"{row['locator']}: {row['detail']}")
            for chunk in reading.chunks
            for row in chunk.quarantine.select(["rule", "locator", "detail"]).to_pylist()
        ]
        return reading, rules

    def _stored(self, path: Path, reading: SourceReading) -> Iterator[str]:
        """In the store every record is accounted for as it was read."""
        name = self.shape.connector.name
        if name not in registry():
            return
        self._store = self._store or Store(self._home / "store.duckdb")
        ingest(self._store, [self.folder if self.shape.beside else path], format=name)
        label = label_of(path, self._home)
        rows = self._store.con.sql(
            "SELECT s.records, s.kept + s.duplicates, s.quarantined, s.skipped, list({'rule': q.rule, 'detail': q.detail}) "
            "FROM sources s LEFT JOIN quarantine q USING (source_id) WHERE s.path = ? GROUP BY ALL",
            params=[label],
        ).fetchall()
        counts = reading.counts
        told = (counts.records, counts.kept + counts.duplicates, counts.quarantined, counts.skipped)
        if [row[:4] for row in rows] != [told]:
            yield f"the store holds {rows}, read were {told}"
        yield from _rules([(item["rule"], item["detail"]) for row in rows for item in row[4]])

    def __enter__(self) -> Fuzz:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()


def _where(error: BaseException) -> str:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return f"in {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""


def _rules(rules: list[tuple[str, str]]) -> Iterator[str]:
    for rule, what in rules:
        if rule in ("connector_failed", "unfit_value"):
            yield f"{rule}: {what}"


def _counts(reading: SourceReading, readings: list[Reading]) -> Iterator[str]:
    counts = reading.counts
    if counts.records != max(1, counted(readings)):
        yield f"{counts.records} records are counted, {counted(readings)} were read"
    if counts.kept < 0 or counts.records < 1:
        yield f"the counts are {counts}"


def _unfit(episodes: list[Episode]) -> Iterator[str]:
    """What the tables have no room for, or no other row can be."""
    for episode in episodes:
        if odd := {message.role for message in episode.messages} - ROLES:
            yield f"{episode.locator}: roles {odd}"
        if episode.episode_id in (episode.parent_episode_id, episode.continues_episode_id):
            yield f"{episode.locator}: is its own parent"
        for item in (episode, *episode.messages, *episode.steps):
            for name in item.__struct_fields__:
                value = getattr(item, name)
                if type(value) is int and not abs(value) < (1 << 63 if name in TIMES else 1 << 31):
                    yield f"{item.locator}: {name} is {str(value)[:40]}"
        try:
            msgspec.json.encode(episode)
        except UnicodeEncodeError as error:
            yield f"{episode.locator}: no valid text: {error}"


def _damaged(readings: list[Reading]) -> bool:
    """Some of it is no JSON, so that the places in it cannot be looked up nor its records counted in another way."""
    return any(isinstance(item, Reject) and item.rule in NO_JSON for item in readings)


def _outside(readings: list[Reading], data: bytes) -> Iterator[str]:
    lines = len(data.splitlines()) + 1
    for item in readings:
        if isinstance(item, Episode):
            for place in [
                item.locator,
                *(m.locator for m in item.messages),
                *(s.locator for s in item.steps),
            ]:
                rest = place.removeprefix(LABEL)
                if rest == place or (rest[:1] == ":" and not 1 <= int(rest[1:].partition("#")[0]) <= lines):
                    yield f"{place!r} lies outside of the file ({lines} lines)"


def _lost(episodes: list[Episode], path: Path) -> Iterator[str]:
    places = [
        p
        for e in episodes
        for p in (
            *(m.locator for m in e.messages[-3:]),
            *(s.result_locator or s.locator for s in e.steps[-3:]),
        )
    ]
    for place in places[-8:]:
        try:
            resolve(path, place, LABEL)
        except LookupError as error:
            yield str(error)
