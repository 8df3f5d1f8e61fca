"""The logged episodes of a split with what the build says of their decisions, read in batches so that memory stays small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from logforge.dataset.actions import renamed
from logforge.exports.job import Job
from logforge.schemas import Episode
from logforge.store import Store

AUGMENTED = "augmented: it has no text"
_BATCH = 128

_IDS = """
SELECT DISTINCT episode_id FROM transitions JOIN episodes USING (episode_id)
WHERE dataset = ? AND split = ? ORDER BY episode_id
"""
_TEXTLESS = """
SELECT count(*) FROM transitions t ANTI JOIN episodes e USING (episode_id) WHERE t.dataset = ? AND t.split = ?
"""
_ROWS = """
SELECT episode_id, step, reward, return_to_go, success FROM transitions
WHERE dataset = ? AND split = ? AND episode_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY episode_id, step
"""


class Decision(NamedTuple):
    """What the build says of one decision."""

    reward: float
    return_to_go: float
    success: bool | None


class Logged(NamedTuple):
    """An episode and its decisions, by step."""

    episode: Episode
    decisions: dict[int, Decision]

    @property
    def success(self) -> bool | None:
        """The outcome that the build goes by."""
        return next(iter(self.decisions.values())).success


def logged_episodes(job: Job) -> Iterator[Logged]:
    """The split's logged episodes, ordered by id."""
    store, place = job.store, [job.manifest.dataset, job.shard.split]
    ids = [row[0] for row in store.con.execute(_IDS, place).fetchall()]
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        found = _decisions(store, [*place, batch])
        for episode in store.episodes(batch):
            yield Logged(renamed(episode, job.manifest.action_aliases), found[episode.episode_id])
        job.tick(start + len(batch), len(ids), job.shard.split)


def without_texts(job: Job) -> dict[str, int]:
    """How many transitions of the split are of augmented episodes, as `Written.left_out` counts them."""
    place = [job.manifest.dataset, job.shard.split]
    ((count,),) = job.store.con.execute(_TEXTLESS, place).fetchall()
    return {AUGMENTED: count} if count else {}


def _decisions(store: Store, parameters: list[object]) -> dict[str, dict[int, Decision]]:
    rows: pl.DataFrame = store.con.sql(_ROWS, params=parameters).pl()
    found: dict[str, dict[int, Decision]] = {}
    for identifier, step, *rest in rows.iter_rows():
        found.setdefault(identifier, {})[step] = Decision(*rest)
    return found
