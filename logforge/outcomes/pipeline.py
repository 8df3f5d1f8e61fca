"""Outcomes that do not stand in the logs: from a file, or by a rule. Each is a source of the store, with its labels.

Bringing one again replaces what it brought; the same file for the same episodes changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from logforge.connectors.records import Source, canonical
from logforge.core import rows_table
from logforge.dataset.build import Condition, read_conditions, truths
from logforge.ingestion import (
    FILE_PRECEDENCE,
    RULE_PRECEDENCE,
    remove_sources,
    settle_labels,
    source_id_of,
)
from logforge.ingestion.hygiene import redact
from logforge.ingestion.sources import check_paths, label_of, sha256_of
from logforge.outcomes.matching import Matcher
from logforge.outcomes.report import Aside, Contradiction, OutcomesReport, RemovedReport
from logforge.outcomes.rows import LabelRow, read_labels
from logforge.schemas import LABELS, QUARANTINE, SOURCES, Reject, UsageError
from logforge.store import Store, key_of, keys_in, refuse_pending

VERSION = 1
FROM = "--from"
_RULE = "rule: "


@dataclass(frozen=True)
class _Brought:
    """What a source brings: its row without counts, labels, rows set aside (of them parts), and rows that say nothing."""

    source: dict[str, Any]
    labels: list[dict[str, Any]]
    aside: list[Reject]
    unknown: int
    precedence: int


def label_file(
    store: Store, path: str | Path, *, id_column: str | None = None, precedence: int = FILE_PRECEDENCE
) -> OutcomesReport:
    """Join the rows of a file (CSV, JSON lines, JSON, Parquet, Arrow) to the stored episodes.

    Raises InputError when there is no such file, UsageError when it has no column of ids or was forgotten.
    """
    path = Path(path)
    check_paths([path])
    if not path.is_file():
        raise UsageError(f"{path} is no file", "name one file of outcomes")
    refuse_pending(store)
    label = label_of(path, store.path.parent)
    if key_of("source", label) in keys_in(store):
        raise UsageError(
            f"{label} was forgotten", f"lift it first: `logforge forget --source {label} --revoke`"
        )
    read = list(read_labels(Source(path, label), id_column))
    rows = [row for row in read if isinstance(row, LabelRow)]
    source = _source(label, "outcomes", sha256_of(path), path.stat().st_size)
    common = {"source_id": source["source_id"], "kind": "file", "precedence": precedence}
    labels, unmatched = Matcher(store).labels(rows, label, common)
    kept = {label["locator"] for label in labels}
    aside = [row for row in read if isinstance(row, Reject)] + unmatched
    aside += [part for row in rows if row.where in kept for part in row.parts]
    unknown = sum(isinstance(row, tuple) for row in read)
    with store.transaction():
        return _stored(store, _Brought(source, labels, aside, unknown, precedence))


def label_where(store: Store, condition: str, *, precedence: int = RULE_PRECEDENCE) -> OutcomesReport:
    """Judge episodes by a condition over the columns of `episodes`: true is a success, false none, null leaves them unknown.

    It never reads what it said itself. Raises SpecError for a wrong condition.
    """
    refuse_pending(store)
    (judge,) = read_conditions([condition], FROM)
    path = f"{_RULE}{condition}"
    source = _source(path, "rule", hashlib.sha256(condition.encode()).hexdigest(), 0)
    with store.transaction():
        _hide(store, source["source_id"])
        labels = _judged(store, judge, path, source["source_id"], precedence)
        return _stored(store, _Brought(source, labels, [], 0, precedence))


def _hide(store: Store, source_id: str) -> None:
    """Take a rule's labels away, so that it does not read its own verdicts."""
    store.con.execute("DELETE FROM labels WHERE source_id = ?", [source_id])
    settle_labels(store)


def _judged(
    store: Store, judge: Condition, path: str, source_id: str, precedence: int
) -> list[dict[str, Any]]:
    common = {
        "source_id": source_id,
        "kind": "rule",
        "precedence": precedence,
        "outcome_from": path,
        "locator": path,
    }
    found = truths(store, judge)
    return [{**common, "episode_id": name, "success": met} for name, _, met in found if met is not None]


def remove(store: Store, name: str | Path) -> RemovedReport:
    """Take the labels of a file, or of a rule (its condition), away: the logs and the other labels count again.

    Raises UsageError when the store has no labels of it.
    """
    refuse_pending(store)
    labels = (label_of(Path(name), store.path.parent), f"{_RULE}{name}", str(name))
    rows = store.con.sql(
        "SELECT source_id, path, kept FROM sources WHERE format IN ('outcomes', 'rule') ORDER BY path"
    ).fetchall()
    found = [row for row in rows if row[1] in labels]
    if not found:
        known = ", ".join(row[1] for row in rows) or "none at all"
        raise UsageError(
            f"the store has no labels of {name}", f"it has those of: {known}", rule="unknown_name"
        )
    identifier, path, kept = found[0]
    with store.transaction():
        remove_sources(store, [identifier])
        settle_labels(store)
    return RemovedReport(path, kept)


def _source(path: str, kind: str, digest: str, size: int) -> dict[str, Any]:
    return {
        "source_id": source_id_of(f"{kind}:{path}"),  # a log may lie at the same path
        "path": path,
        "format": kind,
        "connector_version": VERSION,
        "bytes": size,
        "sha256": digest,
    }


def _stored(store: Store, brought: _Brought) -> OutcomesReport:
    """Put labels in place of what the source brought before. Its time stays where nothing is other than it was."""
    source, identifier = brought.source, brought.source["source_id"]
    aside = [_quarantined(reject, identifier) for reject in brought.aside]
    digest = hashlib.sha256(canonical([brought.labels, aside, brought.unknown]).encode()).hexdigest()
    settings = json.dumps({"precedence": brought.precedence, "digest": digest})
    earlier = store.con.sql(
        "SELECT ingested_at FROM sources WHERE source_id = ? AND settings = ? AND sha256 = ?",
        params=[identifier, settings, source["sha256"]],
    ).fetchall()
    lost = sum(reject.level == "record" for reject in brought.aside)
    counted = {
        "settings": settings,
        "records": len(brought.labels) + lost + brought.unknown,
        "kept": len(brought.labels),
        "duplicates": 0,
        "quarantined": lost,
        "skipped": brought.unknown,
        "skip_reasons": [("no_outcome", brought.unknown)] if brought.unknown else [],
        "redactions": 0,
        "ingested_at": earlier[0][0] if earlier else datetime.now(UTC).replace(tzinfo=None),
    }
    remove_sources(store, [identifier])
    store.insert("sources", rows_table(SOURCES, [{**source, **counted}]))
    store.insert("labels", rows_table(LABELS, brought.labels))
    store.insert("quarantine", rows_table(QUARANTINE, aside))
    settle_labels(store)
    return _report(store, brought, bool(earlier))


def _quarantined(reject: Reject, source_id: str) -> dict[str, Any]:
    return {
        "level": reject.level,
        "source_id": source_id,
        "locator": reject.locator,
        "reason": reject.reason,
        "rule": reject.rule,
        "detail": redact(reject.detail).text,
        "excerpt": redact(reject.excerpt).text,
        "records": int(reject.level == "record"),
    }


def _report(store: Store, brought: _Brought, unchanged: bool) -> OutcomesReport:
    identifier = brought.source["source_id"]
    pairs = store.con.sql(_PAIRS, params=[identifier]).fetchall()
    return OutcomesReport(
        source=brought.source["path"],
        precedence=brought.precedence,
        records=len(brought.labels) + sum(r.level == "record" for r in brought.aside) + brought.unknown,
        labels=len(brought.labels),
        episodes=len({label["episode_id"] for label in brought.labels}),
        steps=len(
            {
                (label["episode_id"], label["step"])
                for label in brought.labels
                if label.get("step") is not None
            }
        ),
        unknown=brought.unknown,
        agreed=sum(said == logged for said, logged in pairs),
        judged=len(pairs),
        kappa=_kappa(pairs),
        contradictions=tuple(
            Contradiction(*row)
            for query in _CONTRADICTIONS
            for row in store.con.sql(query, params=[identifier]).fetchall()
        ),
        aside=_by_rule(brought.aside),
        unchanged=unchanged,
    )


def _by_rule(aside: Sequence[Reject]) -> tuple[Aside, ...]:
    found: dict[str, list[Reject]] = {}
    for reject in aside:
        found.setdefault(reject.rule, []).append(reject)
    return tuple(Aside(rule, len(all_), all_[0].reason, all_[0].locator) for rule, all_ in found.items())


def _kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Agreement beyond that of chance; None where both always say the same one thing."""
    if not pairs:
        return None
    size = len(pairs)
    said, logged = (sum(pair[side] for pair in pairs) / size for side in (0, 1))
    chance = said * logged + (1 - said) * (1 - logged)
    return None if chance == 1 else (sum(a == b for a, b in pairs) / size - chance) / (1 - chance)


_PAIRS = """
SELECT l.success, o.success FROM labels l JOIN labels o ON o.episode_id = l.episode_id AND o.kind = 'log'
WHERE l.source_id = ? AND l.kind <> 'log' AND l.success IS NOT NULL AND o.success IS NOT NULL
"""


def _against(field: str, same: str, counts: str) -> str:
    """Each label of a source that says another thing than another label of the same episode or step."""
    return (
        f"SELECT DISTINCT l.episode_id, {'l.step' if field == 'reward' else 'NULL'} AS step, '{field}', l.{field}, l.locator, "
        f"o.{field}, CASE WHEN o.kind = 'log' THEN concat_ws(' ', 'the log', o.outcome_from) ELSE o.locator END AS other, {counts} "
        f"FROM labels l JOIN labels o ON o.episode_id = l.episode_id AND {same} AND o.{field} <> l.{field} "
        "AND (o.source_id <> l.source_id OR o.locator > l.locator) JOIN episodes e ON e.episode_id = l.episode_id "
        "LEFT JOIN steps s ON s.episode_id = l.episode_id AND s.step = l.step "
        "WHERE l.source_id = ? AND l.kind <> 'log' ORDER BY l.episode_id, step, l.locator, other"
    )


_CONTRADICTIONS = (
    _against("success", "true", "e.success"),
    _against("score", "true", "e.score"),
    _against("reward", "o.step = l.step", "s.logged_reward"),
)
