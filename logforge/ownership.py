"""Who owns an episode that several sources hold: the copy with the smallest first timestamp, then the longest,
then by (sha256, path).

So the stored rows do not depend on the order in which files arrive. When the owner's source goes, the best copy that is
left takes over: its source is read again (`orphans` says which).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logforge.frames import Tables
from logforge.reading import Chunk
from logforge.store import Store


class Resolved(NamedTuple):
    """A chunk after resolution: what to store, and how many records of which source changed hands."""

    tables: Tables
    copies: pa.Table
    lost: Counter[str]
    """Records that turn from kept into duplicates, by source id (sources of this chunk and stored ones)."""


def resolve(store: Store, chunk: Chunk) -> Resolved:
    """Decide the owner of each of the chunk's episodes against the copies stored, and make room for new owners."""
    owners = _owners(store, chunk.copies)
    lost: Counter[str] = Counter()
    if not owners:
        return Resolved(chunk.tables, chunk.copies, lost)
    losers: set[str] = set()
    dethroned: list[str] = []
    for copy in chunk.copies.to_pylist():
        owner = owners.get(copy["episode_id"])
        if owner is None:
            continue
        stays = _rank(owner) <= _rank(copy)
        loser = copy if stays else owner
        lost[loser["source_id"]] += loser["records"]
        (losers.add if stays else dethroned.append)(copy["episode_id"])
    _dethrone(store, dethroned)
    return Resolved(_without(chunk.tables, losers), _copies(chunk.copies, losers), lost)


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
        for table in ("episodes", "messages", "steps"):
            store.con.execute(f"DELETE FROM {table} WHERE episode_id IN (SELECT unnest(?))", [ids])
        store.con.execute("UPDATE copies SET owner = false WHERE episode_id IN (SELECT unnest(?))", [ids])


def _without(tables: Tables, losers: set[str]) -> Tables:
    values = pa.array(sorted(losers), type=pa.string())
    return Tables(*(t.filter(pc.invert(pc.is_in(t["episode_id"], value_set=values))) for t in tables))


def _copies(copies: pa.Table, losers: set[str]) -> pa.Table:
    owner = pa.array([identifier not in losers for identifier in copies["episode_id"].to_pylist()])
    return copies.set_column(copies.schema.get_field_index("owner"), "owner", owner)


def remove_sources(store: Store, source_ids: Collection[str]) -> None:
    """Delete everything some sources brought. Episodes that others hold copies of are ownerless then (see `orphans`)."""
    ids = [sorted(source_ids)]
    if not source_ids:
        return
    owned = "SELECT episode_id FROM episodes WHERE source_id IN (SELECT unnest(?))"
    for table in ("messages", "steps"):
        store.con.execute(f"DELETE FROM {table} WHERE episode_id IN ({owned})", ids)
    for table in ("episodes", "copies", "copied_decisions", "quarantine", "sources"):
        store.con.execute(f"DELETE FROM {table} WHERE source_id IN (SELECT unnest(?))", ids)


class Orphan(NamedTuple):
    """A copy of an episode that no source owns, with the settings its source was read with."""

    episode_id: str
    source_id: str
    path: str
    settings: str
    format: str | None


def orphans(store: Store) -> dict[str, list[Orphan]]:
    """The copies of every ownerless episode, by episode, the best first.

    One whose decisions all count in other episodes (see `resumed`) is not ownerless.
    """
    rows = store.con.sql(
        "SELECT c.episode_id, c.source_id, c.path, s.settings, s.format FROM copies c JOIN sources s USING (source_id) "
        "WHERE c.episode_id IN (SELECT episode_id FROM copies GROUP BY 1 HAVING NOT bool_or(owner)) "
        "AND c.episode_id NOT IN (SELECT episode_id FROM copied_decisions) "
        "ORDER BY c.episode_id, c.started_at NULLS LAST, c.records DESC, c.sha256, c.path"
    ).fetchall()
    found: dict[str, list[Orphan]] = {}
    for row in rows:
        orphan = Orphan(*row)
        found.setdefault(orphan.episode_id, []).append(orphan)
    return found
