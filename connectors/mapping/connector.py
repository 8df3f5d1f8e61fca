"""Reads an unknown JSON, JSON-lines, CSV or Parquet shape by a mapping that says in YAML where everything is.

A record is what `records` leads to, else a line, element or row. Under `messages` it is a conversation; under `steps` one
decision, and those of one `episode.id` belong together. The language is described in docs/formats/mapping.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    content_id,
    episode_id,
    first_user_text,
    reject,
)
from logforge.connectors.mapping.fields import FieldReader
from logforge.connectors.mapping.messages import Talk
from logforge.connectors.mapping.paths import Spot
from logforge.connectors.mapping.spec import Fields, MappingSpec, parse_mapping
from logforge.connectors.mapping.steps import Gathered, add_steps
from logforge.connectors.mapping.turns import Rewards, rewarded
from logforge.connectors.records import Head, Source, at, canonical, columns_of, plain_rows, read_text
from logforge.schemas import Ending, Reading, Reject, Skip

_NOTHING: Fields = {}
_VERSION = 3
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


def load_mapping(path: str | Path) -> MappingConnector:
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
        return 0.99 if self._needs & columns_of(head) else 0.0

    @property
    def _needs(self) -> set[str]:
        spec = self.spec
        if spec.records is not None:
            paths = [spec.records]
        else:
            first = spec.messages["path"] if spec.messages is not None else spec.episode["id"]
            paths = [*first.paths]
        return {path.first_key for path in paths if path.first_key is not None}

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation; steps are gathered by their episode and come at the end."""
        gathered = Gathered(self.spec)
        for locator, row in plain_rows(source, *sorted(self._needs)):
            if isinstance(row, Reject):
                gathered.cut = row.rule == "malformed_record"
                yield row
                continue
            gathered.cut = False
            yield from self._records(row, locator, gathered)
        for own in gathered.rows:
            yield from self._guarded(
                self._read_steps(gathered, own), gathered.rows[own][0].record, gathered.rows[own]
            )

    def _records(self, row: Any, locator: str, gathered: Gathered) -> Iterator[Reading]:
        whole = Spot(row, lambda pointer: at(locator, pointer) if pointer else locator)
        records = [whole] if self.spec.records is None else self.spec.records.find(whole, whole)
        if not records:
            path = self.spec.records.text if self.spec.records else "$"
            yield reject(locator, f"nothing at {path}", "", row)
        for record in records:
            yield from self._guarded(self._read_record(record._replace(trail=()), gathered), record, [record])

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
        elif spec.messages is None:
            if (problem := gathered.add(reader)) is not None:
                yield problem
        else:
            found = [m for path in spec.messages["path"].paths for m in path.find(record, record)]
            if not found:
                path = spec.messages["path"].paths[0].text
                yield reject(record.locator, f"nothing at {path}", "", record.value)
                return
            reader.begin(spec.episode.get("started"))
            talk = Talk(spec, reader, EpisodeBuilder())
            talk.add(found)
            yield from _Run(spec, talk.builder, [reader], talk.rewards, dict(talk.skipped)).close()

    def _read_steps(self, gathered: Gathered, own: str) -> Iterator[Reading]:
        rows, builder = gathered.ordered(own), EpisodeBuilder()
        rows[0].begin(self.spec.episode.get("started"))
        for row in rows[1:]:
            row.start = rows[0].start
        rewards = add_steps(self.spec, builder, rows)
        yield from _Run(
            self.spec, builder, rows, rewards, cut=gathered.cut and own == gathered.latest
        ).close()


def _fills(spec: MappingSpec) -> tuple[str, ...]:
    """What the mapping has fields for."""
    blocks = (spec.episode, spec.messages, spec.calls, spec.results, spec.steps)
    found = {_FILLS[key] for block in blocks for key in block or () if key in _FILLS}
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
        spec, first, wanted = self.spec, self.rows[0], self.spec.episode.get
        record, native, group = first.record, first.word(wanted("id")), first.word(wanted("group"))
        success, score = first.truth(wanted("success")), first.number(wanted("score"))
        ending, reason = self._ending(success is not None or score is not None)
        version, ended, model = (
            first.word(wanted("prompt_version")),
            first.time(wanted("ended")),
            first.word(wanted("model")),
        )
        more: dict[str, Any] = {"prompt_version": version, "started_at": first.start, "ended_at": ended}
        parent = first.word(wanted("parent"))
        episode = self.builder.finish(
            id=self._identity(native),
            format=spec.name,
            locator=record.locator,
            records=len(self.rows),
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=first.word(wanted("task_id")),
            task=first.text(wanted("task")) or first_user_text(self.builder),
            group_id=episode_id(spec.name, group) if group else None,
            session_id=first.word(wanted("session")),
            user_id=first.word(wanted("user")),
            parent_episode_id=episode_id(spec.name, parent) if parent else None,
            source_kind=spec.source_kind,
            policy_id=first.word(wanted("policy")) or model,
            model=model,
            temperature=first.number(wanted("temperature")),
            tools=first.names(wanted("tools")),
            success=success,
            score=score,
            cost_usd=first.cost(wanted("cost")),
            reference=first.text(wanted("reference")),
            metadata=self._metadata(),
            **{key: value for key, value in more.items() if value is not None},
        )
        self.builder.rejects += [bad for row in self.rows for bad in row.bad]
        yield from close(self.builder, rewarded(episode, self.rewards))

    def _identity(self, native: str | None) -> str:
        name, value = self.spec.name, self.rows[0].record.value
        if self.spec.unique_id and native is not None:
            return episode_id(name, native)
        return (
            content_id(name, value) if self.spec.steps is None else episode_id(name, native, canonical(value))
        )

    def _ending(self, judged: bool) -> tuple[Ending, str]:
        """What the mapping reads as the ending; else an outcome; else who had the last word."""
        first, said = self.rows[0], {}
        for key in ("truncated", "terminated"):
            flags = [row.truth(self._steps.get(key)) for row in self.rows]
            said[key] = flags[-1] is True or first.truth(self.spec.episode.get(key)) is True
        ending = first.one_of(self.spec.episode.get("ending"), ("terminal", "truncated"))
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
        if self.spec.steps is None:
            rest = {} if rests[0] is None else rests[0]
            rest = rest if isinstance(rest, dict) else {"$rest": rest}
            return canonical(rest | ({"$skipped_messages": self.skipped} if self.skipped else {}))
        held = [rest if isinstance(rest, dict) else {} if rest is None else {"$rest": rest} for rest in rests]
        columns = {key: [rest.get(key) for rest in held] for key in dict.fromkeys(k for r in held for k in r)}
        told = {key: column for key, column in columns.items() if any(value is not None for value in column)}
        return canonical({k: c[0] if all(v == c[0] for v in c) else c for k, c in told.items()})

    def _share_fields(self) -> None:
        """Episode fields are read from the first row; a later one that says the same was read with it."""
        first = self.rows[0]
        for wanted in self.spec.episode.values():
            spot = wanted.raw(first.record, first.record)
            if spot is None or spot.trail not in first.read:
                continue
            for row in self.rows[1:]:
                again = wanted.raw(row.record, row.record)
                if again is not None and again.value == spot.value:
                    row.take(again)
