"""Batches of samples that RLlib's `JsonWriter` writes (`output-*.json`). A record is one line: a batch.

A batch holds a list for each column and a value in it for each step. It may hold several episodes, and an episode may go on
in later batches: rows of one `eps_id` (and one `agent_index`, and one policy) belong together. Packed columns hold pickled
objects. They are never unpacked, for that would run what the log says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from logforge.connectors.episodes import Samples, bad_part, bad_record, object_or_empty, text_or_none
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.tables import StepRow, Told, episode_of_rows, number_of, runs, without_copies
from logforge.schemas import Duplicate, Reading, Reject

_TYPE = re.compile(rb'"type"\s*:\s*"(?:SampleBatch|MultiAgentBatch)"')
_USUAL = frozenset({"obs", "actions", "rewards", "eps_id", "policy_batches"})
_NAMES = {
    "actions": "action",
    "rewards": "reward",
    "dones": "done",
    "terminateds": "terminated",
    "truncateds": "truncated",
    "eps_id": "episode_id",
    "infos": "info",
    "new_obs": "next_obs",
}
"""RLlib's columns by the names that they have in a table of steps."""
_PACKED = "BCJNGG"
"""How base64 of the frames of LZ4 begins."""
_ABOUT = frozenset({"type", "count"})


@dataclass(frozen=True)
class _Row(StepRow):
    """A step of a batch: the line, the batch's place, its index there, and the columns by the names of its cells."""

    line: str
    batch: str
    index: int
    columns: dict[str, str]
    policy: str | None

    def place(self, key: str) -> str:
        column = self.columns.get(key, key).replace("~", "~0").replace("/", "~1")
        return at(self.batch, f"/{column}/{self.index}")


@dataclass
class _Batches:
    """The rows of a file by the episode that they are of, and what was set aside of each line."""

    groups: dict[tuple[str | None, ...], list[_Row]] = field(default_factory=dict)
    parts: dict[str, list[Reject]] = field(default_factory=dict)
    holes: int = 0


class Rllib:
    """RLlib's batches of samples."""

    name = "rllib"
    version = 1
    record = "one line: a batch of steps"
    fills = ("outcome", "rewards", "propensities")

    def sniff(self, head: Head) -> float:
        """A `type` that RLlib writes, beside one of its columns."""
        if head.container not in ("object", "array") or "type" not in head.top or not _USUAL & head.top:
            return 0.0
        return 0.95 if _TYPE.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """The lines that cannot be read, then one episode per run of steps that belong together."""
        found = _Batches()
        for line, value in source.records():
            if isinstance(value, Reject):
                found.holes += 1
                yield value
            else:
                yield from _take(found, value, line)
        samples = Samples() if source.samples else None
        lines = dict.fromkeys(row.line for rows in found.groups.values() for row in rows)
        for (native, policy, *_), rows in found.groups.items():
            kept = without_copies(rows) if native is not None else rows
            parts = [part for row in rows for part in found.parts.pop(row.line, ())]
            for run in runs(kept):
                new = [line for line in dict.fromkeys(row.line for row in run) if line in lines]
                for line in new:
                    del lines[line]
                told = Told(
                    self.name,
                    native,
                    is_last=run[-1] is kept[-1],
                    records=len(new),
                    locator=run[0].line,
                    kind="agent_log",
                    policy=policy,
                    parts=tuple(parts),
                )
                readings = list(_counted(episode_of_rows(run, told), bool(new)))
                yield from readings if samples is None else samples.told({"id": native}, readings)
                parts = []
        yield from (Duplicate(records=1) for _ in lines)


def _counted(readings: Iterator[Reading], has_records: bool) -> Iterator[Reading]:
    """An episode whose lines others account for is no record of its own when it is set aside."""
    for item in readings:
        if has_records or not isinstance(item, Reject) or item.level == "part":
            yield item
        else:
            yield msgspec.structs.replace(item, level="part", records=1)


def _take(found: _Batches, value: Any, line: str) -> Iterator[Reject]:
    """Add the rows of a line; what was set aside, when it has none."""
    parts: list[Reject] = []
    rows: list[_Row] = []
    try:
        for policy, columns, place in _batches(value, line):
            rows += _rows(columns, (line, place, policy), found, parts)
    except RecursionError:
        rows, parts = [], [Reject(locator=line, reason="nested too deep", rule="nested_too_deep")]
    if not rows:
        found.holes += 1
        first = parts[0] if parts else bad_record(line, "a batch without a step", "not_a_step", value)
        yield msgspec.structs.replace(first, level="record", locator=line)
        return
    found.parts[line] = parts
    for row in rows:
        native = text_or_none(row.value("episode"))
        alone = (line, row.batch) if native is None else ()
        key = (native, row.policy, text_or_none(row.cells.get("agent_index")), *alone)
        found.groups.setdefault(key, []).append(row)


def _batches(value: Any, line: str) -> Iterator[tuple[str | None, dict[str, Any], str]]:
    """Policy, columns and place of each batch of a line."""
    if not isinstance(value, dict):
        return
    if value.get("type") == "SampleBatch":
        yield None, {key: column for key, column in value.items() if key not in _ABOUT}, line
    elif value.get("type") == "MultiAgentBatch":
        for policy, columns in object_or_empty(value.get("policy_batches")).items():
            place = policy.replace("~", "~0").replace("/", "~1")
            yield policy, object_or_empty(columns), at(line, f"/policy_batches/{place}")


def _rows(
    batch: dict[str, Any], whose: tuple[str, str, str | None], found: _Batches, parts: list[Reject]
) -> list[_Row]:
    """The rows of a batch. What cannot be read goes to `parts`; of a batch without any row, why that is."""
    line, place, policy = whose
    actions = batch.get("actions")
    if not isinstance(actions, list) or not actions or _is_packed(actions):
        where = at(place, "/actions") if "actions" in batch else place
        rule = "packed_column" if _is_packed(actions) else "not_a_step"
        reason = "its actions are packed" if _is_packed(actions) else "a batch without a list of actions"
        parts.append(bad_part(where, reason, rule, actions))
        return []
    columns = _columns(batch, len(actions), place, parts)
    rows: list[_Row] = []
    bad: list[Reject] = []
    for index in range(len(actions)):
        cells = {name: batch[key][index] for name, key in columns.items()}
        _add_probability(cells)
        if policy is not None:
            cells.setdefault("policy", policy)
        where = at(place, f"/actions/{index}")
        row = _Row(cells, where, found.holes, canonical(cells), line, place, index, columns, policy)
        if why := row.unfit:
            found.holes += 1
            bad.append(bad_part(where, why, "not_a_step", actions[index]))
        else:
            rows.append(row)
    parts.extend(bad if rows else bad[:1])
    return rows


def _columns(batch: dict[str, Any], size: int, place: str, parts: list[Reject]) -> dict[str, str]:
    """The columns with a value for each step, by the names of their cells."""
    columns = {}
    for key, column in batch.items():
        name = _NAMES.get(key) or (f"{key} (column)" if key in _NAMES.values() else key)
        if isinstance(column, list) and len(column) == size and not _is_packed(column):
            columns[name] = key
            continue
        where = at(place, f"/{key.replace('~', '~0').replace('/', '~1')}")
        if _is_packed(column):
            parts.append(bad_part(where, f"the column `{key}` is packed", "packed_column", column))
        else:
            reason = f"the column `{key}` has no value for each of {size} steps"
            parts.append(bad_part(where, reason, "bad_column", column))
    return columns


def _is_packed(column: Any) -> bool:
    values = column if isinstance(column, list) else [column]
    return any(isinstance(value, str) and value.startswith(_PACKED) for value in values)


def _add_probability(cells: dict[str, Any]) -> None:
    """The probability of the action, where only its logarithm was written."""
    logarithm = number_of(cells.get("action_logp"))
    if cells.get("action_prob") is None and logarithm is not None and logarithm <= 0:
        cells["action_prob"] = math.exp(logarithm)
