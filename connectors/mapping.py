"""Reads an unknown JSON, JSON-lines, CSV or Parquet shape by a mapping that says in YAML where everything is.

A record is what `records` leads to, else a line, element or row. Under `messages` it is a conversation; under `steps` one
decision, and those of one `episode.id` belong together. The language is described in docs/formats/mapping.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logforge.connectors.attributes import Found
from logforge.connectors.base import Head, Source, at
from logforge.connectors.builder import Call, EpisodeBuilder, content_id, episode_id
from logforge.connectors.content import bad_part, text_or_none
from logforge.connectors.history import step_at, with_rewards
from logforge.connectors.jsontext import canonical
from logforge.connectors.mapping_spec import ROLES, Fields, MappingSpec, parse_mapping
from logforge.connectors.mapping_values import count_in, failed_in, micros_in, number_in, text_in, truth_in
from logforge.connectors.openai_messages import tool_names
from logforge.connectors.plain_rows import plain_rows
from logforge.connectors.rows import close, first_user_text, reject
from logforge.connectors.said import inside
from logforge.connectors.table_rows import columns_of
from logforge.connectors.textfile import read_text
from logforge.schemas.episode import Ending, Reading, Reject, Skip

_NOTHING: Fields = {}


def load_mapping(path: str | Path) -> MappingConnector:
    """The connector that a mapping file describes. Raises SpecError, listing every problem with its line."""
    text = read_text(path)
    return MappingConnector(parse_mapping(text, str(path)), zlib.crc32(text.encode()) & 0x7FFFFFFF)


@dataclass(frozen=True)
class MappingConnector:
    """A connector made from a mapping. Its version is a hash of the mapping: a changed one reads its files again."""

    spec: MappingSpec
    version: int = 1
    record: str = "what `records` of the mapping leads to, else one line, element or row"

    @property
    def name(self) -> str:
        """The format's name, as the mapping gives it."""
        return self.spec.name

    def sniff(self, head: Head) -> float:
        """The first object has the keys that the mapping begins with."""
        return 0.99 if self._needs & columns_of(head) else 0.0

    @property
    def _needs(self) -> set[str]:
        spec = self.spec
        if spec.records is not None:
            paths = [spec.records]
        else:
            paths = [
                *(spec.messages["path"].paths if spec.messages is not None else spec.episode["id"].paths)
            ]
        return {path.first_key for path in paths if path.first_key is not None}

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation; steps are gathered by their episode and come at the end."""
        gathered = _Steps(self.spec)
        for locator, row in plain_rows(source, *sorted(self._needs)):
            if isinstance(row, Reject):
                gathered.cut = row.rule == "malformed_record"
                yield row
                continue
            gathered.cut = False
            yield from self._records(row, locator, gathered)
        yield from gathered.episodes()

    def _records(self, row: Any, locator: str, gathered: _Steps) -> Iterator[Reading]:
        whole = _found(row, locator)
        records = [whole] if self.spec.records is None else self.spec.records.find(whole, whole)
        if not records:
            yield reject(
                locator, f"nothing at {self.spec.records.text if self.spec.records else '$'}", "", row
            )
        for record in records:
            try:
                readings = list(self._read_record(record, gathered))
            except RecursionError:
                readings = [Reject(locator=record.locator, reason="nested too deep", rule="malformed_record")]
            yield from readings

    def _read_record(self, record: Found, gathered: _Steps) -> Iterator[Reading]:
        spec = self.spec
        if not isinstance(record.value, dict | list):
            yield reject(record.locator, "neither an object nor a list", "", record.value)
        elif spec.skip is not None and truth_in(spec.skip.find(record, record)) is True:
            yield Skip(reason="skipped_by_the_mapping")
        elif spec.messages is None:
            if (problem := gathered.add(record)) is not None:
                yield problem
        else:
            builder = EpisodeBuilder()
            rewards: dict[int, float] = {}
            found = [m for path in spec.messages["path"].paths for m in path.find(record, record)]
            for message in found:
                _Message(spec, builder, message, record, rewards).add()
            if not found:
                yield reject(
                    record.locator, f"nothing at {spec.messages['path'].paths[0].text}", "", record.value
                )
                return
            yield from _finish(spec, builder, record, 1, None, rewards=rewards)


def _found(value: Any, locator: str) -> Found:
    return Found(value, lambda pointer: at(locator, pointer) if pointer else locator)


@dataclass
class _Message:
    """One message being read."""

    spec: MappingSpec
    builder: EpisodeBuilder
    here: Found
    record: Found
    rewards: dict[int, float]
    """Rewards by the position of the turn they were given for."""

    def _get(self, fields: Fields | None, key: str, here: Found | None = None) -> Found | None:
        expression = (fields or _NOTHING).get(key)
        return expression.find(here or self.here, self.record) if expression else None

    def add(self) -> None:
        """Add it to the builder, or what it holds."""
        fields = self.spec.messages
        role = self._get(fields, "role")
        if role is None or role.value not in ROLES:
            known = f"message whose role is none of {', '.join(ROLES)}"
            self.builder.rejects.append(bad_part(self.here.locator, known, "unknown_role", self.here.value))
            return
        content = self._get(fields, "content")
        text = text_in(content)
        place = content.locator if content is not None and text else self.here.locator
        time = micros_in(self._get(fields, "time"))
        if role.value == "tool":
            self._result(fields, self.here, text, place, time, "call_id")
        elif role.value == "assistant":
            self._turn(text, place, time)
        elif text is not None or self.spec.results is None:
            self.builder.message(role.value, text, place, created_at=time)
        self._results(time)

    def _turn(self, text: str | None, place: str, time: int | None) -> None:
        fields = self.spec.messages
        calls, bad = self._calls()
        more: dict[str, Any] = {
            "thought": text_in(self._get(fields, "thought")),
            "created_at": time,
            "model": text_in(self._get(fields, "model")),
            "tokens_in": count_in(self._get(fields, "tokens_in")),
            "tokens_out": count_in(self._get(fields, "tokens_out")),
        }
        if bad and not calls:
            self.builder.message("assistant", text, place, **more)
        else:
            position = self.builder.turn(text, calls, place, **more)
            if (reward := number_in(self._get(fields, "reward"))) is not None:
                self.rewards[position] = reward

    def _calls(self) -> tuple[list[Call], bool]:
        fields, calls, bad = self.spec.calls, [], False
        for item in self._items(fields):
            name, arguments = self._get(fields, "name", item), self._get(fields, "arguments", item)
            if name is not None and isinstance(name.value, str) and name.value:
                call_id = text_or_none(found.value) if (found := self._get(fields, "id", item)) else None
                calls.append(Call(name.value, arguments.value if arguments else None, call_id, item.locator))
            elif fields is not None and "path" in fields:
                bad = True
                self.builder.rejects.append(
                    bad_part(item.locator, "tool call without a name", "nameless_call", item.value)
                )
        return calls, bad

    def _items(self, fields: Fields | None) -> list[Found]:
        if fields is None:
            return []
        return fields["path"].every(self.here, self.record) if "path" in fields else [self.here]

    def _results(self, time: int | None) -> None:
        for item in self._items(self.spec.results):
            content = self._get(self.spec.results, "content", item)
            if content is not None:
                self._result(self.spec.results, item, text_in(content), content.locator, time, "id")

    def _result(
        self, fields: Fields | None, item: Found, text: str | None, place: str, time: int | None, key: str
    ) -> None:
        call_id = self._get(fields, key, item)
        self.builder.result(
            text_or_none(call_id.value) if call_id else None,
            text,
            place,
            failed=failed_in(self._get(fields, "error", item)),
            latency_s=number_in(self._get(fields, "latency", item)),
            reward=number_in(self._get(fields, "reward", item)),
            created_at=time,
        )


class _Steps:
    """Rows that are single decisions, by episode."""

    def __init__(self, spec: MappingSpec) -> None:
        self.spec = spec
        self.cut = False
        self._rows: dict[str, list[Found]] = {}
        self._latest: str | None = None

    def add(self, record: Found) -> Reject | None:
        """Take a row, or say why not."""
        found = self.spec.episode["id"].find(record, record)
        own = text_or_none(found.value) if found else None
        if own is None:
            return reject(record.locator, "no episode id", "", record.value)
        self._rows.setdefault(own, []).append(record)
        self._latest = own
        return None

    def episodes(self) -> Iterator[Reading]:
        """One episode per id."""
        for own, rows in self._rows.items():
            builder = EpisodeBuilder()
            rows = self._ordered(rows)
            try:
                for row in rows:
                    _add_step(self.spec, builder, row)
                cut = self.cut and own == self._latest
                yield from list(_finish(self.spec, builder, rows[0], len(rows), rows, cut=cut))
            except RecursionError:
                where = rows[0].locator
                yield Reject(
                    locator=where, reason="nested too deep", rule="malformed_record", records=len(rows)
                )

    def _ordered(self, rows: list[Found]) -> list[Found]:
        order = (self.spec.steps or _NOTHING).get("order")
        if order is None:
            return rows
        keys = [_rank(order.find(row, row)) for row in rows]
        return [
            row for _, _, row in sorted(zip(keys, range(len(rows)), rows, strict=True), key=lambda t: t[:2])
        ]


def _rank(found: Found | None) -> tuple[int, float, str]:
    number = number_in(found)
    return (0, number, "") if number is not None else (1, 0.0, text_in(found) or "")


def _add_step(spec: MappingSpec, builder: EpisodeBuilder, row: Found) -> None:
    fields = spec.steps or _NOTHING

    def get(key: str) -> Found | None:
        return fields[key].find(row, row) if key in fields else None

    time, seen = micros_in(get("time")), get("observation")
    text = text_in(seen)
    last = builder.messages[-1] if builder.messages else None
    if (
        seen is not None
        and text is not None
        and not (last and last.role != "assistant" and last.content == text)
    ):
        role = get("observation_role")
        builder.message(role.value if role else "user", text, seen.locator, created_at=time)
    action, say = get("action"), get("say")
    name, thought, reward = (
        text_or_none(action.value) if action else None,
        text_in(get("thought")),
        number_in(get("reward")),
    )
    if name is None and say is None:
        builder.rejects.append(bad_part(row.locator, "a step without an action", "no_action", row.value))
        return
    place = say.locator if say is not None and text_in(say) else row.locator
    if name is None:
        builder.turn(text_in(say), [], place, thought=thought, reward=reward, created_at=time)
        return
    arguments, call_id, result = get("arguments"), get("call_id"), get("result")
    own = text_or_none(call_id.value) if call_id else None
    call = Call(name, arguments.value if arguments else None, own, row.locator)
    builder.turn(text_in(say), [call], place, thought=thought, reward=reward, created_at=time)
    if result is not None:
        latency = number_in(get("latency"))
        builder.result(
            own, text_in(result), result.locator, failed=failed_in(get("error")), latency_s=latency
        )


def _finish(
    spec: MappingSpec,
    builder: EpisodeBuilder,
    record: Found,
    records: int,
    rows: list[Found] | None,
    *,
    cut: bool = False,
    rewards: dict[int, float] | None = None,
) -> Iterator[Reading]:
    def get(key: str) -> Found | None:
        return spec.episode[key].find(record, record) if key in spec.episode else None

    def text(key: str) -> str | None:
        return text_or_none(found.value) if (found := get(key)) else None

    native, group, version = text("id"), text("group"), text("prompt_version")
    if spec.unique_id and native is not None:
        own = episode_id(spec.name, native)
    elif rows is not None:
        own = episode_id(spec.name, native, canonical(record.value))
    else:
        own = content_id(spec.name, record.value)
    success, score = truth_in(get("success")), number_in(get("score"))
    ending, reason = _ending(spec, builder, record, rows, success is not None or score is not None, cut)
    more: dict[str, Any] = {}
    more |= {} if version is None else {"prompt_version": version}
    more |= {
        k: t
        for k, n in (("started_at", "started"), ("ended_at", "ended"))
        if (t := micros_in(get(n))) is not None
    }
    parent = text("parent")
    episode = builder.finish(
        id=own,
        format=spec.name,
        locator=record.locator,
        records=records,
        ending=ending,
        ending_reason=reason,
        native_id=native,
        task_id=text("task_id"),
        task=text_in(get("task")) or first_user_text(builder),
        group_id=episode_id(spec.name, group) if group else None,
        session_id=text("session"),
        user_id=text("user"),
        parent_episode_id=episode_id(spec.name, parent) if parent and spec.unique_id else None,
        source_kind=spec.source_kind,
        policy_id=text("policy") or text("model"),
        model=text("model"),
        temperature=number_in(get("temperature")),
        tools=_tools(spec, record),
        success=success,
        score=score,
        reference=text_in(get("reference")),
        metadata=_metadata(spec, record, rows),
        **more,
    )
    given = {s: r for p, r in (rewards or {}).items() if (s := step_at(episode, p)) is not None}
    yield from close(builder, with_rewards(episode, given))


def _ending(
    spec: MappingSpec,
    builder: EpisodeBuilder,
    record: Found,
    rows: list[Found] | None,
    judged: bool,
    cut: bool,
) -> tuple[Ending, str]:
    """What the mapping reads as the ending; else an outcome; else who had the last word."""

    def says(key: str) -> bool:
        expression = spec.episode.get(key)
        step = (spec.steps or _NOTHING).get(key)
        of_row = step is not None and rows is not None and truth_in(step.find(rows[-1], rows[-1])) is True
        return of_row or (expression is not None and truth_in(expression.find(record, record)) is True)

    ending = spec.episode["ending"].find(record, record) if "ending" in spec.episode else None
    if cut:
        return "truncated", "the log is cut off"
    if ending is not None and ending.value in ("terminal", "truncated"):
        return ending.value, "the field mapped to `ending` says so"
    if says("truncated"):
        return "truncated", "the field mapped to `truncated` says so"
    if says("terminated"):
        return "terminal", "the field mapped to `terminated` says so"
    if judged:
        return "terminal", "the outcome is known"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if rows is not None:
        return "truncated", "no row says that the episode ended"
    last = builder.messages[-1].role if builder.messages else ""
    if last == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"


def _tools(spec: MappingSpec, record: Found) -> list[str] | None:
    if "tools" not in spec.episode:
        return None
    expression = spec.episode["tools"]
    found = [inside(item.value, item.where)[0] for item in expression.every(record, record)]
    if not found and expression.default is not None:
        found = [expression.default]
    if not found:
        return None
    return tool_names(found[0] if len(found) == 1 and isinstance(found[0], list) else found)


def _metadata(spec: MappingSpec, record: Found, rows: list[Found] | None) -> str:
    """What the mapping does not use: of a record its other fields; of rows, the columns that differ as lists."""
    used = {path.first_key for path in spec.paths}
    if rows is None:
        value = record.value if isinstance(record.value, dict) else {}
        heads = {path.first_key for path in (spec.messages or {})["path"].paths}
        return canonical({key: inner for key, inner in value.items() if key not in heads})
    values = [row.value for row in rows if isinstance(row.value, dict)]
    keys = [key for key in dict.fromkeys(key for value in values for key in value) if key not in used]
    columns = {key: [value.get(key) for value in values] for key in keys}
    return canonical({k: c[0] if all(v == c[0] for v in c) else c for k, c in columns.items()})
