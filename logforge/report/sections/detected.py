"""The steps of the dataset's logged episodes with the detectors' columns: the same queries that rewards are made of."""

from __future__ import annotations

from logforge.report.page.context import Context
from logforge.rewards.sql.inputs import input_stages

_COLUMNS = ("loop", "no_progress", "premature_close", "error_class", "invalid_tool")


def detected(context: Context) -> str:
    """Common table expressions that end with `steps_seen`: every logged step of the dataset, with what the detectors say.

    `is_news` says whether a call brought something: it worked, and its result was not seen before in the episode.
    """
    stages, last = input_stages(_COLUMNS, context.detectors, final=False)
    within = "SELECT episode_id FROM transitions WHERE dataset = :dataset AND parent_id IS NULL AND step = 0"
    return ",\n".join([*stages, f"steps_seen AS (\n  SELECT * FROM {last} WHERE episode_id IN ({within})\n)"])
