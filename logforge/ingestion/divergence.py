"""Copies of one episode that hold different things: what the losing copy says and the stored one does not is named.

Two files may hold parts of one session, or one of them was changed. One copy owns the episode (see `ownership`); that the
other holds more must not pass for a mere repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logforge.connectors.records.base import excerpt
from logforge.core.frames import rows_table
from logforge.schemas.tables import QUARANTINE
from logforge.store.store import Store

RULE = "diverging_copy"
"""The rule under which a losing copy is named that is no part of the owner's."""

Texts = dict[str, list[tuple[str, str | None]]]


class Contest(NamedTuple):
    """Two copies of an episode met: the `copies` row of the one that lost, and whether that was the stored one."""

    loser: dict[str, Any]
    was_stored: bool


def diverging(store: Store, messages: pa.Table, contests: Iterable[Contest]) -> pa.Table:
    """A quarantine row for each losing copy that holds messages which the other lacks. `messages` are those of the copies
    that are not stored yet; the stored ones must still be there."""
    contests = list(contests)
    ids = sorted({contest.loser["episode_id"] for contest in contests})
    stored = _texts(store.arrow(_STORED, [ids]))
    chosen = pc.is_in(messages["episode_id"], value_set=pa.array(ids, type=pa.string()))
    arriving = _texts(messages.filter(chosen))
    rows = []
    for loser, was_stored in contests:
        identifier = loser["episode_id"]
        sides = stored.get(identifier, []), arriving.get(identifier, [])
        lost, kept = sides if was_stored else sides[::-1]
        known = set(kept)
        more = [text or "" for role, text in lost if (role, text) not in known]
        if more:
            rows.append(_row(loser, more[0]))
    return rows_table(QUARANTINE, rows)


_STORED = (
    "SELECT episode_id, role, content FROM messages WHERE episode_id IN (SELECT unnest(?)) ORDER BY position"
)


def _texts(messages: pa.Table) -> Texts:
    found: Texts = {}
    for row in messages.select(["episode_id", "role", "content"]).to_pylist():
        found.setdefault(row["episode_id"], []).append((row["role"], row["content"]))
    return found


def _row(loser: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "level": "part",
        "source_id": loser["source_id"],
        "episode_id": loser["episode_id"],
        "locator": loser["path"],
        "reason": "another copy of this episode is stored, and this one holds messages that it lacks",
        "rule": RULE,
        "excerpt": excerpt(text),
        "records": 0,
    }
