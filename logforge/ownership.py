"""Who owns an episode that several sources hold: the copy with the smallest (first timestamp, sha256, path).

So the stored rows do not depend on the order in which files arrive.
"""

from __future__ import annotations

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
    lost: dict[str, int]
    """Records that turn from kept into duplicates, by source id (sources of this chunk and stored ones)."""


def resolve(store: Store, chunk: Chunk) -> Resolved:
    """Decide the owner of each of the chunk's episodes against the copies stored, and make room for new owners."""
    rivals = _rivals(store, chunk.copies)
    if not rivals:
        return Resolved(chunk.tables, chunk.copies, {})
    newcomers = chunk.copies.to_pylist()
    lost: dict[str, int] = {}
    losers: set[str] = set()
    for copy in newcomers:
        owner = rivals.get(copy["episode_id"])
        if owner is None:
            continue
        loser = copy if _rank(owner) <= _rank(copy) else owner
        lost[loser["source_id"]] = lost.get(loser["source_id"], 0) + loser["records"]
        if loser is copy:
            losers.add(copy["episode_id"])
        else:
            _dethrone(store, owner)
    return Resolved(_without(chunk.tables, losers), _copies(chunk.copies, losers), lost)


def _rivals(store: Store, copies: pa.Table) -> dict[str, dict[str, Any]]:
    """The stored owners of the chunk's episodes."""
    if not len(copies):
        return {}
    store.con.register("_copies", copies)
    rows = store.arrow(
        "SELECT * FROM copies WHERE owner AND episode_id IN (SELECT episode_id FROM _copies)"
    ).to_pylist()
    store.con.unregister("_copies")
    return {row["episode_id"]: row for row in rows}


def _rank(copy: dict[str, Any]) -> tuple[bool, Any, str, str]:
    """Smallest owns; copies without a time come after those with one."""
    started = copy["started_at"]
    return (started is None, started, copy["sha256"], copy["path"])


def _dethrone(store: Store, owner: dict[str, Any]) -> None:
    identifier = [owner["episode_id"]]
    for table in ("episodes", "messages", "steps"):
        store.con.execute(f"DELETE FROM {table} WHERE episode_id = ?", identifier)
    store.con.execute("UPDATE copies SET owner = false WHERE episode_id = ?", identifier)


def _without(tables: Tables, losers: set[str]) -> Tables:
    values = pa.array(sorted(losers), type=pa.string())
    return Tables(*(t.filter(pc.invert(pc.is_in(t["episode_id"], value_set=values))) for t in tables))


def _copies(copies: pa.Table, losers: set[str]) -> pa.Table:
    owner = pa.array([identifier not in losers for identifier in copies["episode_id"].to_pylist()])
    return copies.set_column(copies.schema.get_field_index("owner"), "owner", owner)


def remove_source(store: Store, source_id: str) -> list[str]:
    """Delete everything a source brought. Returns the paths of sources that hold copies of what it owned.

    Those sources are marked as not ingested (their sha256 is emptied), so that the run reads them again and the copies
    they hold take over.
    """
    con = store.con
    owned = "SELECT episode_id FROM episodes WHERE source_id = ?"
    heirs = con.sql(
        f"SELECT DISTINCT source_id, path FROM copies WHERE NOT owner AND source_id <> ? AND episode_id IN ({owned})",
        params=[source_id, source_id],
    ).fetchall()
    for table in ("messages", "steps"):
        con.execute(f"DELETE FROM {table} WHERE episode_id IN ({owned})", [source_id])
    for table in ("episodes", "copies", "quarantine", "sources"):
        con.execute(f"DELETE FROM {table} WHERE source_id = ?", [source_id])
    for heir, _ in heirs:
        con.execute("UPDATE sources SET sha256 = '' WHERE source_id = ?", [heir])
    return [path for _, path in heirs]
