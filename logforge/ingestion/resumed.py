"""Decisions that several episodes hold, because a resumed or forked session carries its history into a file of its own.

Each is one training action. Of the episodes that hold it the one with the most decisions keeps it (of equal ones, that
with the longer parent, then the smallest id). An episode that keeps none is no episode: its records are duplicates. One
that keeps some, a fork, has the copied messages as context alone and continues the episode that keeps the others.

What is kept where depends on the episodes alone and not on the order of their arrival. What was dropped is noted in
`copied_decisions`; where the note no longer holds, because the keeper is gone or a longer one came, the episode's
source is read again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from logforge.core import rows_table
from logforge.schemas import COPIED_DECISIONS
from logforge.store import Store

_CLAIMS = """
    CREATE OR REPLACE TEMP TABLE claims AS
    SELECT s.decision_key, s.episode_id, e.source_id, e.parent_episode_id AS parent, NULL::VARCHAR AS keeper, s.step
    FROM steps s JOIN episodes e USING (episode_id) WHERE s.decision_key IS NOT NULL
    UNION ALL SELECT decision_key, episode_id, source_id, NULL, keeper_episode_id, NULL FROM copied_decisions
"""
_SHARED = """
    WITH sizes AS (SELECT episode_id, count(DISTINCT decision_key) AS size FROM claims GROUP BY 1)
    SELECT c.decision_key, c.episode_id, c.source_id, c.keeper, c.step, s.size, coalesce(p.size, 0) AS parent_size
    FROM claims c JOIN sizes s USING (episode_id) LEFT JOIN sizes p ON p.episode_id = c.parent
    WHERE c.decision_key IN (
        SELECT decision_key FROM claims GROUP BY 1 HAVING count(DISTINCT episode_id) > 1 OR count(keeper) > 0
    )
    ORDER BY c.episode_id, c.step
"""


class _Claim(NamedTuple):
    """An episode holds a decision. `keeper` is who kept it when it was dropped here; `step` is null then."""

    key: str
    episode_id: str
    source_id: str
    keeper: str | None
    step: int | None
    size: int
    parent_size: int

    @property
    def rank(self) -> tuple[int, int, str]:
        """The smallest keeps the decision."""
        return -self.size, -self.parent_size, self.episode_id


def settle(store: Store) -> set[str]:
    """Leave every decision with one episode. Returns the sources that must be read again, since what was dropped of
    theirs is kept nowhere or elsewhere now."""
    keyed = store.con.sql("SELECT 1 FROM steps WHERE decision_key IS NOT NULL LIMIT 1").fetchall()
    if not keyed and not store.con.sql("SELECT 1 FROM copied_decisions LIMIT 1").fetchall():
        return set()
    with store.transaction():
        store.con.execute(_CLAIMS)
        claims = [_Claim(*row) for row in store.con.sql(_SHARED).fetchall()]
        store.con.execute("DROP TABLE claims")
        keepers = _keepers(claims)
        stale = [c for c in claims if c.keeper is not None and c.keeper != keepers[c.key]]
        gone = {claim.episode_id for claim in stale}
        _remove(store, gone)
        dropped: dict[str, list[_Claim]] = defaultdict(list)
        for claim in claims:
            held = claim.step is not None and claim.episode_id not in gone
            if held and keepers[claim.key] != claim.episode_id:
                dropped[claim.episode_id].append(claim)
        _drop(store, dropped, keepers)
    return {claim.source_id for claim in stale}


def _keepers(claims: list[_Claim]) -> dict[str, str]:
    best: dict[str, _Claim] = {}
    for claim in claims:
        if claim.key not in best or claim.rank < best[claim.key].rank:
            best[claim.key] = claim
    return {key: claim.episode_id for key, claim in best.items()}


def _drop(store: Store, dropped: dict[str, list[_Claim]], keepers: dict[str, str]) -> None:
    """Take the decisions out of episodes that others keep, and the episodes that have none left."""
    if not dropped:
        return
    notes = [
        {
            "decision_key": claim.key,
            "episode_id": claim.episode_id,
            "source_id": claim.source_id,
            "keeper_episode_id": keepers[claim.key],
        }
        for claims in dropped.values()
        for claim in claims
    ]
    store.insert("copied_decisions", rows_table(COPIED_DECISIONS, notes))
    ids = sorted(dropped)
    store.con.execute(
        "DELETE FROM steps WHERE (episode_id, decision_key) IN (SELECT (episode_id, decision_key) FROM copied_decisions) "
        "AND episode_id IN (SELECT unnest(?))",
        [ids],
    )
    left = store.con.execute(
        "SELECT DISTINCT episode_id FROM steps WHERE episode_id IN (SELECT unnest(?))", [ids]
    )
    forks = {row[0] for row in left.fetchall()}
    _remove(store, set(ids) - forks, forget=False)
    for identifier in sorted(forks):
        store.con.execute(
            "UPDATE episodes SET continues_episode_id = ? WHERE episode_id = ?",
            [keepers[dropped[identifier][-1].key], identifier],
        )
    store.con.execute(
        "UPDATE steps SET step = n.number FROM (SELECT episode_id, step, row_number() OVER "
        "(PARTITION BY episode_id ORDER BY step) - 1 AS number FROM steps WHERE episode_id IN (SELECT unnest(?))) n "
        "WHERE steps.episode_id = n.episode_id AND steps.step = n.step",
        [sorted(forks)],
    )


def _remove(store: Store, ids: set[str], *, forget: bool = True) -> None:
    """Take whole episodes out of the store; their records become duplicates. With `forget` nothing is noted of them, so
    that they count as ownerless and are read again."""
    if not ids:
        return
    values = [sorted(ids)]
    chosen = "episode_id IN (SELECT unnest(?))"
    store.con.execute(
        "UPDATE sources SET kept = kept - r.records, duplicates = duplicates + r.records FROM "
        f"(SELECT source_id, sum(records) AS records FROM copies WHERE owner AND {chosen} GROUP BY 1) r "
        "WHERE sources.source_id = r.source_id",
        values,
    )
    store.con.execute(f"UPDATE copies SET owner = false WHERE {chosen}", values)
    for table in ("episodes", "messages", "steps", "secrets", *(["copied_decisions"] if forget else [])):
        store.con.execute(f"DELETE FROM {table} WHERE {chosen}", values)
