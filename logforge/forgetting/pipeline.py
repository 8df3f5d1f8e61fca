"""Forgets a session, source, episode or user: its rows, cached vectors, rows in published shards, and the freed pages.

In this order, so that a kill at any moment is completed by the next forget or ingest:

    1. hashes of what is to go into the table `forgotten`, marked pending     from here on no ingest brings it back
    2. each dataset that holds some of it, folder and rows                    see shards.py
    3. the rows of all other tables, in one transaction
    4. the store's file copied without what was deleted, its marks cleared, and put in place of the old one

Everything after the first is worked out from the hashes alone. Log files are never touched.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from logforge.connectors import registry
from logforge.connectors.episodes import episode_id
from logforge.core import rows_table
from logforge.forgetting.report import DatasetLoss, ForgetReport, RevokeReport, RunLoss
from logforge.forgetting.runs import drop_from_runs
from logforge.forgetting.shards import check_datasets, drop_from_datasets, losses
from logforge.ingestion import settle_labels
from logforge.ingestion.sources import label_of
from logforge.rewards.scorers import every_text
from logforge.schemas import FORGOTTEN, TABLES, UsageError
from logforge.store import (
    RULE,
    Kind,
    Store,
    key_of,
    keys_in,
    names_forgotten,
    pending,
    short_hash,
    store_key,
    without_kind,
)
from logforge.texts import text_hash

_NEAREST = 3
_EPISODES_AT_ONCE = 512


class Request(NamedTuple):
    """What the user named."""

    kind: Kind
    name: str

    @property
    def key(self) -> str:
        """How it is remembered."""
        return key_of(self.kind, self.name)


def forget(
    store: Store,
    *,
    session: str | None = None,
    source: str | Path | None = None,
    episode: str | None = None,
    user: str | None = None,
    dry_run: bool = False,
    runs: Iterable[str | Path] = (),
) -> ForgetReport:
    """Remove all that a session, a source, an episode or a user brought, and keep it out from now on.

    Exactly one is named. `source` is a log file, or a folder whose logs are all forgotten. With an episode go those that
    share its text: its sub-agents, the sessions that resume or fork it and its copies in other sources. With `dry_run`
    nothing changes. `runs` are folders with runs, whose policies lose the golden states of all that was ever forgotten. Raises
    UsageError for a name that the store does not know, StoreError when the disk is full (what is left is forgotten by the
    next run), Mismatch for a dataset whose shards are not those of the store's rows and CheckFailed for policies below `runs`
    that cannot be read, when all else is done.
    """
    request = _request(store, session, source, episode, user)
    if not dry_run:
        complete(store)
    sources = _sources(store, request)
    chosen = _closed(store, _named(store, request, sources))
    if not chosen and not sources:
        if store.con.sql("SELECT 1 FROM forgotten WHERE request = ?", params=[request.key]).fetchall():
            report = replace(ForgetReport.nothing_left(*request), dry_run=dry_run)
            return replace(report, runs=_drop_from_runs(store, runs, set(), dry_run))
        raise _unknown(store, request)
    datasets = losses(store, chosen)
    check_datasets(store, datasets)
    report = _report(store, request, chosen, sources, datasets, dry_run)
    if not dry_run:
        with store.transaction():
            store.insert("forgotten", rows_table(FORGOTTEN, list(_marks(store, request, chosen, sources))))
        complete(store)
    return replace(report, runs=_drop_from_runs(store, runs, chosen, dry_run))


def _drop_from_runs(
    store: Store, runs: Iterable[str | Path], chosen: set[str], dry_run: bool
) -> tuple[RunLoss, ...]:
    keys = keys_in(store)
    return drop_from_runs(runs, lambda name: name in chosen or names_forgotten(name, keys), dry_run)


def revoke(
    store: Store,
    *,
    session: str | None = None,
    source: str | Path | None = None,
    episode: str | None = None,
    user: str | None = None,
) -> RevokeReport:
    """Lift an earlier `forget`, named as it was then: the next ingest of its logs reads them again."""
    complete(store)
    request = _request(store, session, source, episode, user)
    rows = store.con.sql("SELECT count(*) FROM forgotten WHERE request = ?", params=[request.key]).fetchall()
    if rows == [(0,)]:
        raise UsageError(
            f"the {request.kind} {request.name!r} was not forgotten", "name it as it was named then"
        )
    with store.transaction():
        store.con.execute("DELETE FROM forgotten WHERE request = ?", [request.key])
        # Of another hash than its bytes, a source is read again.
        store.con.execute(f"UPDATE sources SET sha256 = '' WHERE map_contains(skip_reasons, '{RULE}')")
    return RevokeReport(*request)


def complete(store: Store) -> None:
    """Go on with what was to be forgotten and, because of a kill or a full disk, is not yet gone."""
    if not pending(store):
        return
    store.con.execute(
        "CREATE OR REPLACE TEMP TABLE going AS WITH known AS ("
        + " UNION ".join(f"SELECT episode_id FROM {table}" for table in _tables_with("episode_id"))
        + ") SELECT episode_id FROM known WHERE sha256('episode/' || episode_id) IN (SELECT key FROM forgotten WHERE pending)"
    )
    drop_from_datasets(store, {row[0] for row in store.con.sql("FROM going").fetchall()})
    with store.transaction():
        _count_out(store)
        _delete(store)
        settle_labels(store)
        _unname(store)
        _forget_vectors(store)
        _forget_scores(store)
    store.con.execute("DROP TABLE going")
    store.rewrite("UPDATE fresh.forgotten SET pending = false")


def _request(
    store: Store, session: str | None, source: str | Path | None, episode: str | None, user: str | None
) -> Request:
    names: dict[Kind, str | Path | None] = {
        "session": session,
        "source": source,
        "episode": episode,
        "user": user,
    }
    given = [Request(kind, str(name)) for kind, name in names.items() if name is not None]
    if len(given) != 1:
        raise UsageError("name one thing to forget", "one of --session, --source, --episode and --user")
    (request,) = given
    if request.kind == "source":
        return request._replace(name=_label(store, request.name))
    return request._replace(name=_whole_id(store, request.name)) if request.kind == "episode" else request


def _whole_id(store: Store, name: str) -> str:
    """An episode's id from its beginning, where only one begins so."""
    found = store.con.sql(
        "SELECT DISTINCT episode_id FROM copies WHERE starts_with(episode_id, ?)", params=[name]
    ).fetchall()
    return str(found[0][0]) if len(found) == 1 else name


def _label(store: Store, name: str) -> str:
    """A source by its label as it is, or by its path from here."""
    name = name.rstrip("/") or name
    if store.con.sql("SELECT 1 FROM sources WHERE path = ?", params=[name]).fetchall():
        return name
    return label_of(Path(name), store.path.parent)


def _sources(store: Store, request: Request) -> list[str]:
    """The labels of the sources that are to go whole: a file, the files of a folder, the members of an archive."""
    if request.kind != "source":
        return []
    rows = store.con.sql(
        "SELECT path FROM sources WHERE path = $1 OR starts_with(path, $1 || '/') OR starts_with(path, $1 || '!') ORDER BY 1",
        params=[request.name],
    ).fetchall()
    return [row[0] for row in rows]


def _named(store: Store, request: Request, sources: list[str]) -> set[str]:
    """The episodes that a request names, also by an id of which the store holds a pseudonym (see hygiene)."""
    hidden = short_hash(request.name, store_key(store.path))
    query, values = {
        "session": (
            "SELECT episode_id FROM episodes WHERE session_id = $1 OR native_id = $1 "
            "OR session_id LIKE '<%:' || $3 || '>' OR native_id LIKE '<%:' || $3 || '>' "
            # One whose decisions all count in a longer session is in no table of episodes: its id tells it.
            "UNION SELECT episode_id FROM copies WHERE episode_id IN (SELECT unnest($2))",
            [request.name, [episode_id(name, request.name) for name in registry()], hidden],
        ),
        "source": ("SELECT episode_id FROM copies WHERE path IN (SELECT unnest($1))", [sources]),
        "episode": (
            "SELECT episode_id FROM episodes WHERE episode_id = $1 UNION SELECT episode_id FROM copies WHERE episode_id = $1",
            [request.name],
        ),
        "user": (
            "SELECT episode_id FROM episodes WHERE user_id = $1 OR user_id LIKE '<%:' || $2 || '>'",
            [request.name, hidden],
        ),
    }[request.kind]
    return {row[0] for row in store.con.sql(query, params=values).fetchall()}


def _closed(store: Store, chosen: set[str]) -> set[str]:
    """The episodes with those that hold text of theirs."""
    while True:
        more = store.con.sql(
            "WITH chosen AS (SELECT unnest($1) AS id) "
            "SELECT episode_id FROM episodes WHERE parent_episode_id IN (FROM chosen) OR continues_episode_id IN (FROM chosen) "
            "UNION SELECT episode_id FROM copied_decisions WHERE keeper_episode_id IN (FROM chosen) "
            "UNION SELECT keeper_episode_id FROM copied_decisions WHERE episode_id IN (FROM chosen)",
            params=[sorted(chosen)],
        ).fetchall()
        found = {row[0] for row in more} - chosen
        if not found:
            return chosen
        chosen = chosen | found


def _unknown(store: Store, request: Request) -> UsageError:
    query = {
        "session": "SELECT DISTINCT unnest([session_id, native_id]) FROM episodes",
        "source": "SELECT path FROM sources",
        "episode": "SELECT episode_id FROM episodes",
        "user": "SELECT DISTINCT user_id FROM episodes",
    }[request.kind]
    known = [row[0] for row in store.con.sql(query).fetchall() if row[0] is not None]
    near = difflib.get_close_matches(request.name, known, n=_NEAREST)
    example = (
        f"did you mean {' or '.join(near)}?" if near else f"it knows {', '.join(sorted(known)[:_NEAREST])}, …"
    )
    what = f"the store knows no {request.kind} {request.name!r}"
    return UsageError(what, example if known else f"it knows no {request.kind} at all", rule="unknown_name")


def _marks(store: Store, request: Request, chosen: set[str], sources: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of `forgotten` for a request."""
    now = datetime.now(UTC).replace(tzinfo=None)
    ids = [sorted(chosen)]
    decisions = "SELECT DISTINCT decision_key FROM steps WHERE decision_key IS NOT NULL AND episode_id IN (SELECT unnest(?))"
    holders = "SELECT DISTINCT path FROM copies WHERE episode_id IN (SELECT unnest(?))"
    emptied = "SELECT path FROM copies GROUP BY ALL HAVING bool_and(episode_id IN (SELECT unnest(?)))"
    names = [
        *(("source", name) for name in sources),
        *(("episode", name) for name in ids[0]),
        *(("decision", row[0]) for row in store.con.sql(decisions, params=ids).fetchall()),
        *(("holder", row[0]) for row in store.con.sql(holders, params=ids).fetchall()),
        *(("path", row[0]) for row in store.con.sql(emptied, params=ids).fetchall()),
    ]
    common = {"request": request.key, "forgotten_at": now, "pending": True}
    yield {**common, "kind": request.kind, "key": request.key, "episodes": len(chosen)}
    if shown := without_kind(request.name):  # the log has the id itself, which may then be of any kind
        names.append((request.kind, shown))
    yield from ({**common, "kind": kind, "key": key_of(kind, name)} for kind, name in names)


def _count_out(store: Store) -> None:
    """Move the records of what goes, in the sources that stay, from kept or duplicate to skipped."""
    store.con.execute(
        "WITH lost AS (SELECT source_id, sum(records) FILTER (owner) AS kept, sum(records) FILTER (NOT owner) AS copied "
        "FROM (SELECT episode_id, source_id, records, owner FROM copies UNION ALL "
        "SELECT episode_id, source_id, 1, true FROM labels WHERE kind <> 'log') WHERE episode_id IN (FROM going) GROUP BY 1) "
        "UPDATE sources SET kept = sources.kept - coalesce(lost.kept, 0), "
        "duplicates = duplicates - coalesce(lost.copied, 0), "
        "skipped = skipped + coalesce(lost.kept, 0) + coalesce(lost.copied, 0), "
        f"skip_reasons = map_concat(skip_reasons, MAP {{'{RULE}': (coalesce(skip_reasons['{RULE}'], 0) "
        "+ coalesce(lost.kept, 0) + coalesce(lost.copied, 0))::UBIGINT}) "
        "FROM lost WHERE sources.source_id = lost.source_id"
    )
    store.con.execute(
        "UPDATE quarantine SET detail = '', excerpt = '' WHERE episode_id IS NULL "
        "AND source_id IN (SELECT source_id FROM copies WHERE episode_id IN (FROM going))"
    )


def _delete(store: Store) -> None:
    """The rows of the episodes that go, and of the sources that go whole. The key of a split group may bear a name out of
    one of them: where the group loses a member, the hash of its key names it."""
    store.con.execute(
        "UPDATE splits SET group_key = 'forgotten:' || md5(group_key) WHERE (dataset, group_key) IN "
        "(SELECT (dataset, group_key) FROM splits WHERE episode_id IN (FROM going))"
    )
    for table in _tables_with("episode_id"):
        store.con.execute(f"DELETE FROM {table} WHERE episode_id IN (FROM going)")
    store.con.execute(
        "DELETE FROM near_duplicates WHERE episode_a IN (FROM going) OR episode_b IN (FROM going)"
    )
    gone = "SELECT key FROM forgotten WHERE pending AND kind = 'source'"
    found = store.con.sql(
        f"SELECT source_id FROM sources WHERE sha256('source/' || path) IN ({gone})"
    ).fetchall()
    for table in _tables_with("source_id"):
        store.con.execute(
            f"DELETE FROM {table} WHERE source_id IN (SELECT unnest(?))", [[row[0] for row in found]]
        )


def _unname(store: Store) -> None:
    """Take the paths of sources away of which nothing is left: files are often named after their session."""
    hidden = f"'{RULE}/' || left(sha256('source/' || path), 12)"
    gone = "sha256('path/' || path) IN (SELECT key FROM forgotten WHERE pending AND kind = 'path')"
    for table in ("quarantine", "secrets"):
        store.con.execute(
            f"UPDATE {table} SET locator = replace(locator, path, {hidden}) FROM sources "
            f"WHERE {table}.source_id = sources.source_id AND {gone}"
        )
    store.con.execute(f"UPDATE sources SET path = {hidden} WHERE {gone}")


def _forget_vectors(store: Store) -> None:
    """Drop the cached vectors of texts that no episode holds any more."""
    if not store.con.sql("SELECT 1 FROM embeddings LIMIT 1").fetchall():
        return
    held = store.con.sql(
        "SELECT content FROM messages UNION SELECT thought FROM messages UNION SELECT task FROM episodes"
    ).to_arrow_reader(1 << 16)
    hashes = pa.table({"text_hash": pa.array(_hashes(held), pa.string())})  # noqa: F841  DuckDB finds it by its name
    store.con.execute("DELETE FROM embeddings WHERE text_hash NOT IN (SELECT text_hash FROM hashes)")


def _forget_scores(store: Store) -> None:
    """Drop the cached scores that were made of a text which no episode holds any more."""
    if not store.con.sql("SELECT 1 FROM scorer_results LIMIT 1").fetchall():
        return
    ids = [row[0] for row in store.con.sql("SELECT episode_id FROM episodes ORDER BY 1").fetchall()]
    held: set[str] = set()
    for start in range(0, len(ids), _EPISODES_AT_ONCE):
        chosen = store.tables("episode_id IN (SELECT unnest(?))", [ids[start : start + _EPISODES_AT_ONCE]])
        held.update(map(text_hash, every_text(chosen)))
    hashes = pa.table({"text_hash": pa.array(sorted(held), pa.string())})  # noqa: F841  DuckDB finds it by its name
    store.con.execute(
        "DELETE FROM scorer_results WHERE text_hash IN (SELECT text_hash FROM "
        "(SELECT text_hash, unnest(texts) AS part FROM scorer_results) WHERE part NOT IN (SELECT text_hash FROM hashes))"
    )


def _hashes(batches: Iterable[pa.RecordBatch]) -> list[str]:
    return [text_hash(text) for batch in batches for text in batch.column(0).to_pylist() if text]


def _tables_with(column: str) -> list[str]:
    return [name for name, table in TABLES.items() if any(column == known.name for known in table.columns)]


def _report(
    store: Store,
    request: Request,
    chosen: set[str],
    sources: list[str],
    datasets: list[DatasetLoss],
    dry_run: bool,
) -> ForgetReport:
    ids = [sorted(chosen)]

    def count(table: str) -> int:
        query = f"SELECT count(*) FROM {table} WHERE episode_id IN (SELECT unnest(?))"
        ((number,),) = store.con.sql(query, params=ids).fetchall()
        return int(number)

    named = _named(store, request, sources)
    held = store.con.sql(
        "SELECT path FROM copies WHERE episode_id IN (SELECT unnest($1)) UNION SELECT path FROM labels "
        "JOIN sources USING (source_id) WHERE kind = 'file' AND episode_id IN (SELECT unnest($1))",
        params=ids,
    ).fetchall()
    files = sorted({*sources, *(row[0] for row in held)})
    return ForgetReport(
        kind=request.kind,
        name=request.name,
        dry_run=dry_run,
        episodes=len(chosen),
        related=len(chosen - named),
        messages=count("messages"),
        steps=count("steps"),
        sources=tuple(sources),
        datasets=tuple(datasets),
        files=tuple(name for name in files if (store.path.parent / name.split("!")[0]).exists()),
    )
