"""How often a dialogue is longer than the window of a state: what fell out of it is in the state's other blocks alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import duckdb

_SQL = """
WITH decisions AS (
    SELECT min(position) OVER (PARTITION BY episode_id, coalesce(parallel_group, -1 - step)) AS cut
    FROM steps SEMI JOIN (SELECT DISTINCT episode_id FROM transitions WHERE dataset = $dataset) USING (episode_id)
)
SELECT count(*), count(*) FILTER (WHERE cut > $turns), coalesce(sum(greatest(cut - $turns, 0)), 0)::BIGINT FROM decisions
"""
"""The calls of a parallel group were decided at once, before the first of them."""


class WindowCut(NamedTuple):
    """Decisions of a dataset's logged episodes, those with more messages before them than the window holds, and how many messages
    that leaves out, summed over decisions."""

    turns: int
    decisions: int
    cut: int
    messages: int

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return self._asdict()

    def told(self) -> str:
        """A line for people; empty where every dialogue fits."""
        if not self.cut:
            return ""
        share, mean = self.cut / self.decisions, self.messages / self.cut
        return (
            f"window: {self.cut:,} of {self.decisions:,} decisions ({share:.0%}) lie behind more than {self.turns} messages; "
            f"{mean:.1f} of them on average are in no window (--window-turns)"
        )


def window_cut(con: duckdb.DuckDBPyConnection, dataset: str, turns: int) -> WindowCut:
    """Counted in the store on what the dataset holds of it."""
    (found,) = con.execute(_SQL, {"dataset": dataset, "turns": turns}).fetchall()
    return WindowCut(turns, *found)
