"""Rows of a mapped table that are single decisions, gathered by their episode."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from logforge.connectors.episodes import Call, EpisodeBuilder, bad_part, reject
from logforge.connectors.mapping.fields import FieldReader
from logforge.connectors.mapping.paths import Spot
from logforge.connectors.mapping.spec import ROLES, Fields, MappingSpec
from logforge.connectors.mapping.turns import Rewards, Turn, first_of
from logforge.connectors.mapping.values import text_in
from logforge.connectors.traces import number_of
from logforge.schemas import CLARIFY, RESPOND, Reject

_NOTHING: Fields = {}
SPEECH = (RESPOND, CLARIFY)
"""Actions that are words to the user, and no tools."""


class Gathered:
    """Rows by episode: decisions, or messages."""

    def __init__(self, spec: MappingSpec) -> None:
        self.spec = spec
        self.cut = False
        self.rows: dict[str, list[FieldReader]] = {}
        self.latest: str | None = None

    def add(self, reader: FieldReader) -> Reject | None:
        """Take a row, or say why not."""
        own = "" if self.spec.rows == "file" else reader.word(self.spec.episode["id"])
        if own is None:
            return reject(reader.record.locator, "no episode id", "", reader.record.value)
        self.rows.setdefault(own, []).append(reader)
        self.latest = own
        return None

    def ordered(self, own: str) -> list[FieldReader]:
        """The rows of an episode in their order."""
        order = (self.spec.steps or self.spec.messages or _NOTHING).get("order")
        rows = self.rows[own]
        return rows if order is None else sorted(rows, key=lambda row: rank(row.take(row.find(order))))


def rank(value: Any) -> tuple[int, float, str]:
    """The place of a value in an order: numbers by size, then texts."""
    number = number_of(value)
    return (0, number, "") if number is not None else (1, 0.0, text_in(value) or "")


def add_steps(spec: MappingSpec, builder: EpisodeBuilder, rows: list[FieldReader]) -> Rewards:
    """Add the decisions of an episode; consecutive rows with the same `turn` are one turn. Returns their rewards."""
    fields, rewards = spec.steps or _NOTHING, Rewards()
    keys = [row.word(fields.get("turn")) or index for index, row in enumerate(rows)]
    for _, group in groupby(zip(keys, rows, strict=True), key=lambda pair: pair[0]):
        _add_turn(fields, builder, [row for _, row in group], rewards)
    return rewards


def _add_turn(fields: Fields, builder: EpisodeBuilder, rows: list[FieldReader], rewards: Rewards) -> None:
    time = first_of(lambda row: row.time(fields.get("time")), rows)
    _observe(fields, builder, rows, time)
    turn, acted = Turn(), []
    for row in rows:
        if _decide(fields, row, turn):
            acted.append(row)
        else:
            where = row.record.locator
            builder.rejects.append(bad_part(where, "a step without an action", "no_action", row.record.value))
    if not acted:
        return
    turn.add(builder, rewards, created_at=time)
    for row in acted:
        _answer(fields, builder, row, bool(turn.calls), time)


def _observe(fields: Fields, builder: EpisodeBuilder, rows: list[FieldReader], time: int | None) -> None:
    """What was seen before the turn, unless it is the last result again."""
    seen = rows[0].find(fields.get("observation"))
    text = rows[0].text(fields.get("observation"))
    if seen is None or text is None:
        return
    for row in rows[1:]:
        if (again := row.find(fields.get("observation"))) is not None and again.value == seen.value:
            row.take(again)
    role = rows[0].one_of(fields.get("observation_role"), ROLES[:3]) or "user"
    last = builder.messages[-1] if builder.messages else None
    if last is None or last.role == "assistant" or last.content != text:
        builder.message(role, text, seen.locator, created_at=time)


def _decide(fields: Fields, row: FieldReader, turn: Turn) -> bool:
    """Add a row's decision to the turn. False when it has none."""
    action, say = row.find(fields.get("action")), row.find(fields.get("say"))
    name = row.word(fields.get("action"))
    if name is not None and say is not None and action is not None and say.trail == action.trail:
        say = None
    if name is None and say is None:
        return False
    text = text_in(row.take(say))
    arguments = row.take(row.find(fields.get("arguments")))
    if name is not None and name not in SPEECH:
        turn.calls.append(Call(name, arguments, row.word(fields.get("call_id")), row.record.locator))
    else:
        turn.arguments = arguments if turn.arguments is None else turn.arguments
        turn.kind = "clarify" if name == CLARIFY else turn.kind
    place = say.locator if say is not None and text else row.record.locator
    turn.say(text, row.text(fields.get("thought")), place)
    turn.pay(row.number(fields.get("reward")))
    return True


def _answer(
    fields: Fields, builder: EpisodeBuilder, row: FieldReader, called: bool, time: int | None
) -> None:
    """What came of a decision: a tool's result, or the answer to what was said."""
    result: Spot | None = row.find(fields.get("result"))
    if result is None:
        return
    text = row.text(fields.get("result"))
    if not called:
        role = row.one_of(fields.get("observation_role"), ROLES[:3]) or "user"
        builder.message(role, text, result.locator)
        return
    taken = builder.result(
        row.word(fields.get("call_id")),
        text,
        result.locator,
        failed=row.failed(fields.get("error")),
        latency_s=row.number(fields.get("latency")),
    )
    if not taken:
        row.read.discard(result.trail)
