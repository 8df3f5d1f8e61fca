"""Thoughts that give the decision away: how often what was thought before a decision names the tool that it then calls.

A thought is part of a state when it lies before the decision. One that says "next I call refund" is no future, but where most
do, a policy learns to read plans and not to make them, and is lost where no thoughts are served: leave the block out then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import duckdb

from logforge.core import each

_SQL = r"""
WITH decisions AS (
    SELECT s.episode_id, s.step, s.action,
           min(s.position) OVER (PARTITION BY s.episode_id, coalesce(s.parallel_group, -1 - s.step)) AS cut
    FROM steps s SEMI JOIN transitions t
      ON t.dataset = $dataset AND t.episode_id = s.episode_id
    WHERE s.kind = 'tool'
), thoughts AS (
    SELECT episode_id, position + 1 AS known, lower(thought) AS thought FROM messages WHERE thought <> ''
)
SELECT count(*),
       count(*) FILTER (WHERE contains(thought, lower(action))
                          AND regexp_matches(thought, '(^|\W)' || regexp_escape(lower(action)) || '($|\W)'))
FROM decisions ASOF JOIN thoughts ON decisions.episode_id = thoughts.episode_id AND decisions.cut >= thoughts.known
"""


class ThoughtLeak(NamedTuple):
    """Tool calls of a dataset's logged episodes whose state holds a thought, and those of them whose tool it names."""

    calls: int
    named: int

    @property
    def share(self) -> float | None:
        """None where no state of a call holds a thought."""
        return self.named / self.calls if self.calls else None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return each(self, "share")

    def told(self) -> str:
        """A line for people; empty where there is nothing to tell."""
        if self.share is None:
            return ""
        remedy = "; --without thought leaves thoughts out of the states" if self.named else ""
        return f"thoughts: the last one before a call names the tool in {self.named:,} of {self.calls:,} ({self.share:.0%}){remedy}"


def thought_leak(con: duckdb.DuckDBPyConnection, dataset: str) -> ThoughtLeak:
    """Measured in the store on what the dataset holds of it."""
    ((calls, named),) = con.execute(_SQL, {"dataset": dataset}).fetchall()
    return ThoughtLeak(calls, named)


_WINDOW_CUTS = """
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
    (found,) = con.execute(_WINDOW_CUTS, {"dataset": dataset, "turns": turns}).fetchall()
    return WindowCut(turns, *found)
