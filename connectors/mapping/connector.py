"""Reads an unknown JSON, JSON-lines, CSV, Parquet or SQLite shape by a mapping that says in YAML where everything is.

A record is what `records` leads to, else a line, element or row. Under `messages` it is a conversation, or with `rows` one
message of it; under `steps` one decision, and those of one `episode.id` belong together. The language is described in
docs/formats/mapping.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from logforge.connectors.episodes import (
    EpisodeBuilder,
    Samples,
    close,
    content_id,
    episode_id,
    first_user_text,
    reject,
)
from logforge.connectors.mapping.fields import FieldReader
from logforge.connectors.mapping.messages import Talk
from logforge.connectors.mapping.paths import Path, Spot
from logforge.connectors.mapping.spec import Expression, Fields, MappingSpec, Speaker, parse_mapping
from logforge.connectors.mapping.steps import Gathered, add_steps, rank
from logforge.connectors.mapping.turns import Rewards, rewarded
from logforge.connectors.records import (
    Head,
    Source,
    at,
    canonical,
    columns_of,
    look,
    open_database,
    plain,
    plain_rows,
    read_text,
)
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

_NOTHING: Fields = {}
_VERSION = 6
"""To be counted up when what a mapping gives changes."""
_FILLS = {
    "success": "outcome",
    "score": "score",
    "reward": "rewards",
    "tools": "tools",
    "thought": "thoughts",
    "tokens_in": "tokens",
    "tokens_out": "tokens",
    "cost": "cost",
    "latency": "latency",
    "time": "times",
    "started": "times",
    "ended": "times",
}


def load_mapping(path: str | FilePath) -> MappingConnector:
    """The connector that a mapping file describes. Raises SpecError, listing every problem with its line."""
    return mapping_of(read_text(path), str(path))


def mapping_of(text: str, path: str) -> MappingConnector:
    """The connector that a mapping's text describes; `path` is where it stands. Raises SpecError as `load_mapping` does."""
    version = zlib.crc32(text.encode(), _VERSION) & 0x7FFFFFFF
    return MappingConnector(parse_mapping(text, path), version, text=text)


@dataclass
class MappingConnector:
    """A connector made from a mapping. Its version is a hash of the mapping: a changed one reads its files again."""

    spec: MappingSpec
    version: int = 1
    record: str = "what `records` of the mapping leads to, else one line, element or row"
    text: str = field(default="", repr=False)
    name: str = field(init=False)
    fills: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.fills = self.spec.name, _fills(self.spec)

    def sniff(self, head: Head) -> float:
        """The first object has the keys that the mapping begins with."""
        known = head.top if head.container == "sqlite" else columns_of(head)
        return 0.99 if self._needs & known else 0.0

    @property
    def _needs(self) -> set[str]:
        spec = self.spec
        if spec.records is not None:
            paths = [spec.records]
        elif spec.rows == "episode" or spec.messages is None:
            paths = [*spec.episode["id"].paths]
        else:
            paths = [*spec.messages["path"].paths] if spec.rows is None else []
        needed = {path.first_key for path in paths if path.first_key is not None}
        return needed or {key for one in spec.speakers for key in _begins(one)}

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation; steps are gathered by their episode and come at the end."""
        gathered, records = Gathered(self.spec), self.spec.records
        samples = Samples() if source.samples else None
        is_database = look(source.path).container == "sqlite"
        if is_database and records is not None:
            records = records._replace(steps=records.steps[2:])
        for locator, row in self._table(source) if is_database else plain_rows(source, *sorted(self._needs)):
            if isinstance(row, Reject):
                gathered.cut = row.rule == "malformed_record"
                yield row
                continue
            gathered.cut = False
            yield from self._records(row, locator, gathered, records, samples)
        for own in gathered.rows:
            yield from self._guarded(
                self._read_rows(gathered, own), gathered.rows[own][0].record, gathered.rows[own]
            )

    def _table(self, source: Source) -> Iterator[tuple[str, Any | Reject]]:
        """Of a database the rows of the table that `records` begins with."""
        name = self.spec.records.first_key if self.spec.records is not None else None
        with open_database(source) as database:
            if isinstance(database, Reject):
                yield database.locator, database
            elif name not in database.tables or name is None:
                where, tables = f"{source.label}#", ", ".join(sorted(database.tables))
                reason = "the mapping names no table of this database: records begins with one, as $.messages[*] does"
                yield where, reject(where, reason, f"its tables: {tables}", None)
            else:
                for locator, row in database.rows(name):
                    yield locator, row if isinstance(row, Reject) else plain(row)

    def _records(
        self, row: Any, locator: str, gathered: Gathered, path: Path | None, samples: Samples | None
    ) -> Iterator[Reading]:
        whole = Spot(row, lambda pointer: at(locator, pointer) if pointer else locator)
        records = [whole] if path is None else path.find(whole, whole)
        if not records:
            yield reject(locator, f"nothing at {path.text if path else '$'}", "", row)
        for record in records:
            found = self._guarded(self._read_record(record._replace(trail=()), gathered), record, [record])
            named = any(isinstance(item, Episode) and item.native_id is not None for item in found)
            yield from found if samples is None or named else samples.told(record.value, found)

    def _guarded(self, readings: Iterator[Reading], record: Spot, rows: list[Any]) -> list[Reading]:
        try:
            return list(readings)
        except RecursionError:
            reason, rule = "nested too deep", "nested_too_deep"
            return [Reject(locator=record.locator, reason=reason, rule=rule, records=len(rows))]

    def _read_record(self, record: Spot, gathered: Gathered) -> Iterator[Reading]:
        spec = self.spec
        reader = FieldReader(record, spec.time_unit)
        if not isinstance(record.value, dict | list):
            yield reject(record.locator, "neither an object nor a list", "", record.value)
        elif reader.truth(spec.skip) is True:
            yield Skip(reason="skipped_by_the_mapping")
        elif spec.gathers:
            if (problem := gathered.add(reader)) is not None:
                yield problem
        elif spec.messages is not None:
            found = _everything(spec.messages["path"], record)
            if not found:
                path = spec.messages["path"].paths[0].text
                yield reject(record.locator, f"nothing at {path}", "", record.value)
                return
            reader.begin(spec.episode.get("started"))
            order = spec.messages.get("order")
            if order is not None:
                found.sort(key=lambda here: rank(reader.take(reader.find(order, here))))
            talk = Talk(spec, EpisodeBuilder())
            _system(spec, talk.builder, reader)
            talk.add(reader, found)
            talk.close()
            yield from _Run(spec, talk.builder, [reader], talk.rewards, dict(talk.skipped)).close()

    def _read_rows(self, gathered: Gathered, own: str) -> Iterator[Reading]:
        rows, builder = gathered.ordered(own), EpisodeBuilder()
        rows[0].begin(self.spec.episode.get("started"))
        for row in rows[1:]:
            row.start = rows[0].start
        _system(self.spec, builder, rows[0])
        cut, skipped = gathered.cut and own == gathered.latest, None
        if self.spec.steps is not None:
            rewards = add_steps(self.spec, builder, rows)
        else:
            talk = Talk(self.spec, builder)
            where = (self.spec.messages or _NOTHING).get("path")
            for row in rows:
                talk.add(row, [row.record] if where is None else _everything(where, row.record))
            talk.close()
            rewards, skipped = talk.rewards, dict(talk.skipped)
        yield from _Run(self.spec, builder, rows, rewards, skipped, cut).close()


def _everything(wanted: Expression, record: Spot) -> list[Spot]:
    """Everything that all paths lead to."""
    return [spot for path in wanted.paths for spot in path.find(record, record)]


def _system(spec: MappingSpec, builder: EpisodeBuilder, row: FieldReader) -> None:
    """The system prompt that is a field of the run is its first message."""
    found = row.find(spec.episode.get("system"))
    if found is not None and (text := row.text(spec.episode.get("system"))):
        builder.message("system", text, found.locator)


def _begins(one: Speaker) -> set[str]:
    """The keys that a message's role and content begin with."""
    paths = [path for key in ("role", "content") if key in one.fields for path in one.fields[key].paths]
    return {path.first_key for path in paths if path.first_key is not None}


def _fills(spec: MappingSpec) -> tuple[str, ...]:
    """What the mapping has fields for."""
    found = {_FILLS[key] for block in spec.blocks for key in block if key in _FILLS}
    return tuple(word for word in dict.fromkeys(_FILLS.values()) if word in found)


@dataclass
class _Run:
    """An episode of which all messages are read; `rows` are the record it is, or those it is made of."""

    spec: MappingSpec
    builder: EpisodeBuilder
    rows: list[FieldReader]
    rewards: Rewards
    skipped: dict[str, int] | None = None
    cut: bool = False

    @property
    def _steps(self) -> Fields:
        return self.spec.steps or _NOTHING

    def close(self) -> Iterator[Reading]:
        """The episode and what was set aside of it."""
        spec, first, wanted, row = self.spec, self.rows[0], self.spec.episode.get, self._row_with
        record, native, group = first.record, self._word("id"), self._word("group")
        truth = row("success").outcome(wanted("success"), None)
        outcome = truth.or_else(row("score").outcome(None, wanted("score")))
        ending, reason = self._ending(outcome.known)
        version, model = self._word("prompt_version"), self._word("model")
        ended = row("ended").time(wanted("ended"))
        more: dict[str, Any] = {"prompt_version": version, "started_at": first.start, "ended_at": ended}
        parent = self._word("parent")
        episode = self.builder.finish(
            id=self._identity(native),
            format=spec.name,
            locator=record.locator,
            records=len(self.rows),
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=self._word("task_id"),
            task=first.text(wanted("task")) or first_user_text(self.builder),
            group_id=episode_id(spec.name, group) if group else None,
            session_id=self._word("session"),
            user_id=self._word("user"),
            parent_episode_id=episode_id(spec.name, parent) if parent else None,
            source_kind=spec.source_kind,
            policy_id=self._word("policy") or model,
            model=model,
            temperature=row("temperature").number(wanted("temperature")),
            tools=first.names(wanted("tools")),
            **outcome.fields(),
            cost_usd=row("cost").cost(wanted("cost")),
            reference=row("reference").text(wanted("reference")),
            metadata=self._metadata(),
            **{key: value for key, value in more.items() if value is not None},
        )
        self.builder.rejects += [bad for row in self.rows for bad in row.bad]
        yield from close(self.builder, rewarded(episode, self.rewards))

    def _row_with(self, key: str) -> FieldReader:
        """The first row that has a field of the run. What the agent was told before it began is read from the first row alone."""
        wanted = self.spec.episode.get(key)
        rows = self.rows if wanted is not None else ()
        return next((row for row in rows if row.find(wanted) is not None), self.rows[0])

    def _word(self, key: str) -> str | None:
        return self._row_with(key).word(self.spec.episode.get(key))

    def _identity(self, native: str | None) -> str:
        name, value = self.spec.name, self.rows[0].record.value
        if self.spec.unique_id and native is not None:
            return episode_id(name, native)
        if self.spec.rows is not None:
            return content_id(name, [row.record.value for row in self.rows])
        return (
            content_id(name, value) if self.spec.steps is None else episode_id(name, native, canonical(value))
        )

    def _ending(self, judged: bool) -> tuple[Ending, str]:
        """What the mapping reads as the ending; else an outcome; else who had the last word."""
        said = {}
        for key in ("truncated", "terminated"):
            flags = [row.truth(self._steps.get(key)) for row in self.rows]
            said[key] = flags[-1] is True or self._row_with(key).truth(self.spec.episode.get(key)) is True
        ending = self._row_with("ending").one_of(self.spec.episode.get("ending"), ("terminal", "truncated"))
        last = self.builder.messages[-1].role if self.builder.messages else ""
        if self.cut:
            return "truncated", "the log is cut off"
        if ending is not None:
            return (
                "terminal" if ending == "terminal" else "truncated"
            ), "the field mapped to `ending` says so"
        if said["truncated"]:
            return "truncated", "the field mapped to `truncated` says so"
        if said["terminated"]:
            return "terminal", "the field mapped to `terminated` says so"
        if judged:
            return "terminal", "the outcome is known"
        if self.builder.ends_unanswered:
            return "truncated", "last call is unanswered"
        if self.spec.steps is not None:
            return "truncated", "no row says that the episode ended"
        if last == "assistant":
            return "terminal", "end of conversation"
        return "truncated", "the log stops before the agent's answer"

    def _metadata(self) -> str:
        """What nothing read: of a record its rest, of rows their columns (one value where all agree, else a list)."""
        self._share_fields()
        rests = [row.rest() for row in self.rows]
        skipped = {"$skipped_messages": self.skipped} if self.skipped else {}
        if not self.spec.gathers:
            rest = {} if rests[0] is None else rests[0]
            rest = rest if isinstance(rest, dict) else {"$rest": rest}
            return canonical(rest | skipped)
        held = [rest if isinstance(rest, dict) else {} if rest is None else {"$rest": rest} for rest in rests]
        columns = {key: [rest.get(key) for rest in held] for key in dict.fromkeys(k for r in held for k in r)}
        told = {key: column for key, column in columns.items() if any(value is not None for value in column)}
        return canonical({k: c[0] if all(v == c[0] for v in c) else c for k, c in told.items()} | skipped)

    def _share_fields(self) -> None:
        """A field of the run is read from one row; another that says the same was read with it."""
        for key, wanted in self.spec.episode.items():
            first = self._row_with(key)
            spot = wanted.raw(first.record, first.record)
            if spot is None or spot.trail not in first.read:
                continue
            for row in self.rows:
                again = wanted.raw(row.record, row.record)
                if again is not None and again.value == spot.value:
                    row.take(again)
