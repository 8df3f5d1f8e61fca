"""Who owns an episode that several sources hold: the copy with the smallest first timestamp, then the longest,
then by (sha256, path).

So the stored rows do not depend on the order in which files arrive. When the owner's source goes, the best copy that is
left takes over: its source is read again (`orphans` says which).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logforge.connectors.records import excerpt
from logforge.core import Tables, rows_table
from logforge.ingestion.reading import Chunk
from logforge.schemas import QUARANTINE
from logforge.store import Store


class Resolved(NamedTuple):
    """A chunk after resolution: what to store, and how many records of which source changed hands."""

    tables: Tables
    copies: pa.Table
    secrets: pa.Table
    lost: Counter[str]
    """Records that turn from kept into duplicates, by source id (sources of this chunk and stored ones)."""
    quarantine: pa.Table
    """What was set aside in the chunk, and the losing copies that hold what the owner's lacks."""


def resolve(store: Store, chunk: Chunk) -> Resolved:
    """Decide the owner of each of the chunk's episodes against the copies stored, and make room for new owners."""
    owners = _owners(store, chunk.copies)
    lost: Counter[str] = Counter()
    if not owners:
        return Resolved(chunk.tables, chunk.copies, chunk.secrets, lost, chunk.quarantine)
    losers: set[str] = set()
    dethroned: list[str] = []
    contests: list[Contest] = []
    for copy in chunk.copies.to_pylist():
        owner = owners.get(copy["episode_id"])
        if owner is None:
            continue
        stays = _rank(owner) <= _rank(copy)
        loser = copy if stays else owner
        lost[loser["source_id"]] += loser["records"]
        contests.append(Contest(loser, was_stored=not stays))
        (losers.add if stays else dethroned.append)(copy["episode_id"])
    diverged = diverging(store, chunk.tables.messages, contests)
    _dethrone(store, dethroned)
    tables = Tables(*(_without(table, losers) for table in chunk.tables))
    quarantine = pa.concat_tables([chunk.quarantine, diverged])
    return Resolved(tables, _copies(chunk.copies, losers), _without(chunk.secrets, losers), lost, quarantine)


def _owners(store: Store, copies: pa.Table) -> dict[str, dict[str, Any]]:
    """The stored owners of the chunk's episodes."""
    if not len(copies):
        return {}
    ids = copies["episode_id"].combine_chunks()
    query = "SELECT * FROM copies WHERE owner AND episode_id IN (SELECT unnest(?))"
    return {row["episode_id"]: row for row in store.arrow(query, [ids.to_pylist()]).to_pylist()}


def _rank(copy: dict[str, Any]) -> tuple[bool, Any, int, str, str]:
    """Smallest owns. Copies without a time come after those with one; of two that begin alike, the longer one comes first
    (the other is an earlier state of it)."""
    started = copy["started_at"]
    return (started is None, started, -copy["records"], copy["sha256"], copy["path"])


def _dethrone(store: Store, ids: list[str]) -> None:
    if ids:
        for table in ("episodes", "messages", "steps", "secrets"):
            store.con.execute(f"DELETE FROM {table} WHERE episode_id IN (SELECT unnest(?))", [ids])
        store.con.execute("DELETE FROM labels WHERE kind = 'log' AND episode_id IN (SELECT unnest(?))", [ids])
        store.con.execute("UPDATE copies SET owner = false WHERE episode_id IN (SELECT unnest(?))", [ids])


def _without(table: pa.Table, losers: set[str]) -> pa.Table:
    values = pa.array(sorted(losers), type=pa.string())
    return table.filter(pc.invert(pc.is_in(table["episode_id"], value_set=values)))


def _copies(copies: pa.Table, losers: set[str]) -> pa.Table:
    owner = pa.array([identifier not in losers for identifier in copies["episode_id"].to_pylist()])
    return copies.set_column(copies.schema.get_field_index("owner"), "owner", owner)


def remove_sources(store: Store, source_ids: Collection[str]) -> None:
    """Delete everything some sources brought. Episodes that others hold copies of are ownerless then (see `orphans`)."""
    stored = "SELECT source_id FROM sources WHERE source_id IN (SELECT unnest(?))"
    ids = [sorted(row[0] for row in store.con.execute(stored, [sorted(source_ids)]).fetchall())]
    if not ids[0]:
        return
    owned = "SELECT episode_id FROM episodes WHERE source_id IN (SELECT unnest(?))"
    for table in ("messages", "steps"):
        store.con.execute(f"DELETE FROM {table} WHERE episode_id IN ({owned})", ids)
    for table in ("episodes", "copies", "copied_decisions", "quarantine", "secrets", "labels", "sources"):
        store.con.execute(f"DELETE FROM {table} WHERE source_id IN (SELECT unnest(?))", ids)


class Orphan(NamedTuple):
    """A copy of an episode that should own it, with the settings its source was read with. `owned`: another one does."""

    episode_id: str
    source_id: str
    path: str
    settings: str
    format: str | None
    owned: bool


def orphans(store: Store) -> dict[str, list[Orphan]]:
    """The copies of every ownerless episode, by episode, the best first; and of one whose owner's file has changed so that
    other copies come before it now, those. So the owner does not depend on how the files came to be as they are.

    One whose decisions all count in other episodes (see `resumed`) is not ownerless.
    """
    rows = store.con.sql(
        "WITH contested AS (SELECT episode_id FROM copies GROUP BY 1 HAVING count(*) > 1 OR NOT bool_or(owner)), "
        "ranked AS (SELECT *, row_number() OVER (PARTITION BY episode_id "
        "ORDER BY started_at NULLS LAST, records DESC, sha256, path) AS place "
        "FROM copies SEMI JOIN contested USING (episode_id)), "
        "owners AS (SELECT episode_id, place AS held FROM ranked WHERE owner) "
        "SELECT r.episode_id, r.source_id, r.path, s.settings, s.format, held IS NOT NULL "
        "FROM ranked r JOIN sources s USING (source_id) LEFT JOIN owners o USING (episode_id) "
        "WHERE (held IS NULL OR place < held) AND r.episode_id NOT IN (SELECT episode_id FROM copied_decisions) "
        "ORDER BY r.episode_id, place"
    ).fetchall()
    found: dict[str, list[Orphan]] = {}
    for row in rows:
        orphan = Orphan(*row)
        found.setdefault(orphan.episode_id, []).append(orphan)
    return found


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
