"""Equal rows of one file: copies of one run, or samples that came out alike.

A row with an id or a time of its own that comes again is a copy. Rollout files have neither: of one prompt there are many runs,
short answers repeat, and to drop one of two equal samples changes the mean of what was logged. So there the row that comes again
is another sample, numbered by how often it came, so that equal files still are copies of each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from logforge.connectors.episodes.identity import episode_id
from logforge.connectors.episodes.pairing import is_unique
from logforge.connectors.records import canonical, loads
from logforge.schemas import EQUAL_ROW, Episode, Reading, Reject

_THINGS = (
    "row run trial sample rollout trajectory traj episode session conversation convo thread request response trace chat dialogue "
    "dialog message interaction record log generation completion call job attempt submission annotation execution"
).split()
_IDS = frozenset(
    {
        "id",
        "uuid",
        "guid",
        "trial",
        "attempt",
        "run",
        "sampleindex",
        "rolloutindex",
        "rowindex",
        "conversationhash",
    }
) | {thing + end for thing in _THINGS for end in ("id", "uuid", "number", "no")}
_TIMES = frozenset(
    "timestamp timestamps ts time date datetime created createdat createtime started startedat starttime startdate ended endedat "
    "endtime finishedat completedat updatedat loggedat generatedat recordedat".split()
)
_AROUND = ("metadata", "meta", "info", "extra", "extra_info")
"""Objects beside the messages that say what a row is."""
_MARKS = re.compile(r"[\W_]+")


class Samples:
    """Takes the readings of each row of a source; those of a row that came before as a sample have ids of their own."""

    def __init__(self) -> None:
        self._met: set[str] = set()
        self._times: dict[str, int] = {}

    def told(self, row: Any, readings: list[Reading]) -> Iterable[Reading]:
        """The readings as they are, but for another sample."""
        first = next((item for item in readings if isinstance(item, Episode)), None)
        if first is None:
            return readings
        if first.episode_id not in self._met:
            self._met.add(first.episode_id)
            return readings
        if _has_own(row) or any(_is_dated(item) for item in readings if isinstance(item, Episode)):
            return readings
        number = self._times[first.episode_id] = self._times.get(first.episode_id, 1) + 1
        return _numbered(readings, number)


def _has_own(row: Any) -> bool:
    """A row that says which one it is, or when it was."""
    if not isinstance(row, dict):
        return False
    around = (row[key] for key in _AROUND if isinstance(row.get(key), dict))
    return any(
        value not in (None, "") and _MARKS.sub("", key).lower() in _IDS | _TIMES
        for part in (row, *around)
        for key, value in part.items()
    )


def _is_dated(episode: Episode) -> bool:
    """Its messages have times, or one of its calls an id that no other run's call has."""
    return episode.started_at is not None or any(is_unique(step.tool_call_id) for step in episode.steps)


def _numbered(readings: list[Reading], number: int) -> Iterator[Reading]:
    own = {
        item.episode_id: episode_id(item.format, item.episode_id, EQUAL_ROW, number)
        for item in readings
        if isinstance(item, Episode)
    }
    for item in readings:
        if isinstance(item, Episode):
            yield replace(
                item,
                episode_id=own[item.episode_id],
                parent_episode_id=own.get(item.parent_episode_id or "", item.parent_episode_id),
                continues_episode_id=own.get(item.continues_episode_id or "", item.continues_episode_id),
                metadata=canonical({**_object(item.metadata), EQUAL_ROW: number}),
            )
        elif isinstance(item, Reject) and item.episode_id is not None:
            yield replace(item, episode_id=own.get(item.episode_id, item.episode_id))
        else:
            yield item


def _object(text: str) -> dict[str, Any]:
    value = loads(text)
    return value if isinstance(value, dict) else {"metadata": value}
