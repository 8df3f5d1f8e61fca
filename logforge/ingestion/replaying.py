"""Reads again the sources from which something was set aside, after what was wrong has been put right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from logforge.core import WIDTH, BaseReport, Count, Lines, Tick, each, listed, plural, silent, table
from logforge.ingestion.pipeline import read_again
from logforge.ingestion.quarantine import choice
from logforge.ingestion.stored_sources import holder_of
from logforge.schemas import remedy_of
from logforge.store import Store

_STAYED = 2
_RULES = 6
"""Of so many rules the change is shown."""


class Change(NamedTuple):
    """How much a rule set aside in the sources read again, before and after."""

    rule: str
    before: int
    after: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON data, with what to do about it."""
        return {**each(self), "remedy": remedy_of(self.rule)}


@dataclass(frozen=True)
class Replay(BaseReport):
    """What reading again brought. `gone` are sources whose files are not there any more, `stayed` says of others what read
    them and is not here: both stay as they are."""

    read: int
    rescued: int
    """Records that are kept (or known to be duplicates) now and were not before, summed over the sources that gained."""
    lost: int
    """And those that were and are not, summed over the sources that lost."""
    changes: tuple[Change, ...]
    gone: tuple[str, ...]
    stayed: tuple[str, ...] = ()

    @property
    def before(self) -> int:
        """How much was set aside in the sources read again."""
        return sum(change.before for change in self.changes)

    @property
    def after(self) -> int:
        """How much is set aside in them now."""
        return sum(change.after for change in self.changes)

    def exit_code(self) -> int:
        """0 when something got better and nothing was lost, or there was nothing to mend; else 1."""
        better = self.rescued > 0 or self.after < self.before
        return int(self.lost > 0 or (bool(self.changes or self.gone or self.stayed) and not better))

    def lines(self) -> Lines:
        """What was rescued and what is left, by rule, with what is left to do."""
        if not self.read and not self.gone and not self.stayed:
            yield "nothing to replay: nothing is set aside here"
            return
        rescued = f"{plural(self.read, 'source')} read again: {plural(self.rescued, 'record')} rescued"
        yield f"{rescued}; set aside {self.before:,} before, {self.after:,} now"
        if self.lost:
            yield f"{plural(self.lost, 'record')} {'is' if self.lost == 1 else 'are'} no longer kept"
        shown = self.changes[:_RULES]
        if shown:
            yield table(("rule", "before", "now"), [(c.rule, Count(c.before), Count(c.after)) for c in shown])
            yield from listed(
                "also: ", [c.rule for c in self.changes[_RULES:]], "more rules: --json lists all"
            )
        for change in shown:
            yield from wrap(f"→ {change.rule}: {remedy_of(change.rule)}", WIDTH) if change.after else []
        yield from listed("gone, kept as it was: ", self.gone, "more: --json lists all")
        yield from listed("left as it was: ", self.stayed, "more: --json lists all", _STAYED)


def replay(
    store: Store,
    *,
    rule: str | None = None,
    source: str | Path | None = None,
    format: str | None = None,
    mapping: str | Path | None = None,
    workers: int = 1,
    progress: Tick = silent,
) -> Replay:
    """Read the sources again from which something was set aside, each in one transaction in place of its rows.

    Their bytes may be the same: the fix may be a newer connector, an installed extra or a `mapping`, as well as an edited
    file. `rule` and `source` (a path) choose among them; the other arguments are those of `ingest`. Raises UnknownName,
    UsageError or SpecError for what cannot be chosen, StoreError when the store cannot be written.
    """
    chosen = choice(store, rule, source)
    found = store.con.sql(
        "SELECT DISTINCT s.source_id, s.path, s.settings FROM quarantine q JOIN sources s ON s.source_id = q.source_id "
        f"WHERE q.level <> 'transition' AND s.format IS DISTINCT FROM 'outcomes' AND {chosen.where} ORDER BY s.path",
        params=chosen.values or None,
    ).fetchall()
    before = _standing(store)
    settings = {path: given for _, path, given in found}
    done = read_again(store, settings, format=format, mapping=mapping, workers=workers, progress=progress)
    after = _standing(store)
    scope = done.read | {identifier for identifier, _, _ in found if identifier not in after.held}
    left = {stayed.path for stayed in done.stayed.values()}  # an archive's members stay with it
    gains = [after.held[identifier] - before.held[identifier] for identifier in scope]
    return Replay(
        read=len(scope),
        rescued=sum(gain for gain in gains if gain > 0),
        lost=-sum(gain for gain in gains if gain < 0),
        changes=_changes(before, after, scope),
        gone=tuple(
            path
            for identifier, path, _ in found
            if identifier not in scope and holder_of(path, left) not in left
        ),
        stayed=tuple(sorted(map(str, done.stayed.values()))),
    )


class _Standing(NamedTuple):
    """Records kept or known to be duplicates by source (which of two copies is which may change when one of them is read),
    and things set aside by source and rule."""

    held: Counter[str]
    aside: Counter[tuple[str, str]]


def _standing(store: Store) -> _Standing:
    held = store.con.sql("SELECT source_id, (kept + duplicates)::BIGINT FROM sources").fetchall()
    aside = store.con.sql(
        "SELECT source_id, rule, count(*) FROM quarantine WHERE level <> 'transition' GROUP BY 1, 2"
    ).fetchall()
    return _Standing(Counter(dict(held)), Counter({(source, rule): n for source, rule, n in aside}))


def _changes(before: _Standing, after: _Standing, scope: Collection[str]) -> tuple[Change, ...]:
    was, now = (_by_rule(standing, scope) for standing in (before, after))
    changes = [Change(rule, was[rule], now[rule]) for rule in was | now]
    return tuple(sorted(changes, key=lambda change: (-change.before, -change.after, change.rule)))


def _by_rule(standing: _Standing, scope: Collection[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (source, rule), number in standing.aside.items():
        if source in scope:
            counts[rule] += number
    return counts
