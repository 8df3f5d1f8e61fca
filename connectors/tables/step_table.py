"""Demonstrations as tables of steps (CSV, JSON lines or arrays, Parquet) with Gymnasium's names. A record is a row.

A row is what the demonstrator saw, what they did, and what came of it: `observation`, `action`, `reward`, `terminated`,
`truncated`. Rows of one `episode_id` are an episode; without an id an episode ends at `terminated` or `truncated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.episodes import (
    bad_record,
    text_or_none,
)
from logforge.connectors.records import Head, Source, canonical, columns_of, table_rows
from logforge.connectors.tables.step_episode import Told, episode_of_rows, runs, without_copies
from logforge.connectors.tables.step_row import (
    COLUMNS,
    NO_STEP,
    StepRow,
)
from logforge.schemas import Duplicate, Reading, Reject

_OUTCOMES = frozenset(name for column in ("reward", "terminated", "truncated") for name in COLUMNS[column])


class StepTable:
    """Tables whose rows are steps."""

    name = "step_table"
    version = 5
    record = "one row: a step"
    fills = ("outcome", "score", "rewards", "propensities", "thoughts", "times")

    def sniff(self, head: Head) -> float:
        """Columns for what was seen, what was done, and a reward or an end."""
        names = columns_of(head)
        seen = set(COLUMNS["observation"]) & names
        return 0.9 if seen and "action" in names and _OUTCOMES & names and "messages" not in names else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """The rows that cannot be read, then one episode per run of rows that belong together."""
        groups: dict[str | None, list[StepRow]] = {}
        holes = 0
        for where, cells in table_rows(source, "action"):
            row = None if isinstance(cells, Reject) else _row(cells, where, holes)
            if isinstance(row, StepRow):
                groups.setdefault(text_or_none(row.value("episode")), []).append(row)
            else:
                holes += 1
                yield row or cells
        for native, rows in groups.items():
            kept = without_copies(rows) if native is not None else rows
            if len(kept) < len(rows):
                yield Duplicate(records=len(rows) - len(kept))
            for run in runs(kept):
                yield from episode_of_rows(run, Told(self.name, native, is_last=run[-1] is kept[-1]))


def _row(cells: Any, where: str, holes: int) -> StepRow | Reject:
    """A row; a Reject when it is no step, or its action cannot be told."""
    try:
        text = canonical(cells)
    except (RecursionError, TypeError, ValueError):
        return Reject(locator=where, reason="nested too deep", rule="nested_too_deep")
    row = StepRow(cells, where, holes, text) if isinstance(cells, dict) else None
    reason = row.unfit if row else NO_STEP
    if row is None or reason:
        return bad_record(where, reason, "not_a_step", text)
    return row
