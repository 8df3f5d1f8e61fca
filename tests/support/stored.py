"""What a store holds, asked by many tests."""

from __future__ import annotations

from logforge.store.store import Store


def content(store: Store) -> list[list[tuple]]:
    return [store.con.sql(query).fetchall() for query in CONTENT]


def assert_conserved(store: Store) -> None:
    assert (
        store.con.sql(
            "SELECT path FROM sources WHERE records <> kept + duplicates + quarantined + skipped"
        ).fetchall()
        == []
    )
    assert (
        store.con.sql(
            "SELECT s.path, s.quarantined, coalesce(sum(q.records), 0) AS rows FROM sources s LEFT JOIN quarantine q "
            "ON q.source_id = s.source_id AND q.level = 'record' GROUP BY 1, 2 HAVING s.quarantined <> rows"
        ).fetchall()
        == []
    )
    assert store.con.sql("SELECT episode_id FROM episodes GROUP BY 1 HAVING count(*) > 1").fetchall() == []


def assert_whole(store):
    """No message, step or copy without its episode, no episode without its messages and its one owner."""
    queries = (
        "SELECT episode_id FROM messages ANTI JOIN episodes USING (episode_id)",
        "SELECT episode_id FROM steps ANTI JOIN episodes USING (episode_id)",
        "SELECT episode_id FROM episodes ANTI JOIN messages USING (episode_id)",
        "SELECT episode_id FROM episodes ANTI JOIN (FROM copies WHERE owner) USING (episode_id, source_id)",
        "SELECT source_id FROM copies ANTI JOIN sources USING (source_id)",
        "SELECT episode_id FROM copies WHERE owner GROUP BY 1 HAVING count(*) > 1",
        "SELECT episode_id, position FROM messages GROUP BY ALL HAVING count(*) > 1",
        "SELECT source_id FROM sources GROUP BY 1 HAVING count(*) > 1",
        "SELECT source_id FROM sources s WHERE kept <> (SELECT coalesce(sum(records), 0) FROM copies c "
        "WHERE c.source_id = s.source_id AND owner)",
    )
    for query in queries:
        assert store.con.sql(query).fetchall() == [], query


CONTENT = (
    "SELECT * EXCLUDE (source_id) FROM episodes ORDER BY ALL",
    "SELECT * FROM messages ORDER BY ALL",
    "SELECT * FROM steps ORDER BY ALL",
    "SELECT level, locator, rule, reason FROM quarantine ORDER BY ALL",
    "SELECT path, format, sha256, records, kept, duplicates, quarantined, skipped FROM sources ORDER BY ALL",
)
