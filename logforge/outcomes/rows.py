"""Rows of a file of outcomes: which episode or step each names, and what it says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from logforge.connectors.episodes import SCORE_KEYS, Outcome, read_outcome, read_reward
from logforge.connectors.records import Source, columns_of, excerpt, look, plain_rows
from logforge.schemas import Reject, Skip, UsageError

IDS = ("episode_id", "native_id", "session_id", "task_id")
"""Columns of `episodes` by which a row may name one."""
ANY_ID = "id"
"""A column whose value may be any of these."""
_TRIAL = "trial"


@dataclass(frozen=True)
class LabelRow:
    """What one row says. `ids` must all fit the episode; `parts` are values of the row that cannot be read."""

    where: str
    ids: dict[str, str]
    step: int | None
    outcome: Outcome
    reward: float | None
    comment: str | None
    parts: tuple[Reject, ...] = ()


def read_labels(
    source: Source, id_column: str | None = None
) -> Iterator[LabelRow | Reject | tuple[str, Skip]]:
    """The rows of a CSV, JSON, Parquet or Arrow file, in order; what says nothing is skipped, what cannot be read set aside.

    `id_column` names the column of ids where it has another name. Raises UsageError when there is no column of ids.
    """
    names = (id_column,) if id_column else (*IDS, ANY_ID)
    known = columns_of(look(source.path))
    if known and known.isdisjoint(names):
        raise UsageError(
            f"{source.label} has no column {' or '.join(names)}; it has {', '.join(sorted(known))}",
            "name the column of ids with --id COLUMN",
        )
    for where, row in plain_rows(source, *names):
        if isinstance(row, Reject):
            yield row
        elif not isinstance(row, dict):
            yield Reject(
                locator=where,
                reason="a row that is no object",
                rule="malformed_record",
                excerpt=excerpt(str(row)),
            )
        else:
            yield _read(where, row, id_column)


def _read(where: str, row: dict[str, Any], id_column: str | None) -> LabelRow | Reject | tuple[str, Skip]:
    ids = {key: text for key in (*IDS, _TRIAL) if key != id_column and (text := _text(row.get(key)))}
    if named := _text(row.get(id_column or ANY_ID)):
        ids[ANY_ID] = named
    if ids.keys() <= {_TRIAL}:
        return Reject(locator=where, reason="the row names no episode", rule="nameless_label")
    step = _text(row.get("step"))
    if step is not None and not step.isdecimal():
        return Reject(locator=where, reason="`step` is no number from 0", rule="unmatched_label")
    rejects: list[Reject] = []
    scores = tuple(key for key in SCORE_KEYS if step is None or key != "reward")
    outcome = read_outcome(row, where, rejects, score=scores)
    reward = None if step is None else read_reward(row, where, rejects)
    comment = row.get("comment")
    if outcome.known or reward is not None or comment:
        number = None if step is None else int(step)
        told = None if comment is None else str(comment)
        return LabelRow(where, ids, number, outcome, reward, told, tuple(rejects))
    if rejects:
        return msgspec.structs.replace(rejects[0], level="record", records=1)
    return where, Skip(reason="no_outcome")


def _text(value: Any) -> str | None:
    """An id as text: a whole number that a table keeps as 3.0 is 3."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None
