"""What an ingest did, as data, as JSON and as a table that fits one screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from logforge.connectors.episodes import KINDS as NAME_KINDS
from logforge.core import LINES, BaseReport, Count, Lines, cut, each, ending, fit, listed, plural, table
from logforge.ingestion.quarantine import at_first
from logforge.schemas import EQUAL_ROW, remedy_of
from logforge.store import Store

UNREAD = "unread"
"""In place of a format: no connector claimed these sources."""
_RULES = 5
_PLACE = 36
_STAYED = 2
_OUTCOMES = 2
_HEADER = ("format", "sources", "records", "kept", "dup", "quar", "skip", "episodes", "messages", "steps")


class FormatCounts(NamedTuple):
    """The conservation law summed over the sources of one format, or of those that are UNREAD."""

    format: str
    sources: int
    records: int
    kept: int
    duplicates: int
    quarantined: int
    skipped: int
    episodes: int
    messages: int
    steps: int


class Outcomes(NamedTuple):
    """How the episodes of one format went, as far as is known, by the field of the log that says so."""

    format: str
    episodes: int
    known: int
    fields: dict[str, int]
    unknown: dict[str, int]

    def line(self) -> str:
        """For people: one line."""
        fields = ", ".join(f"{count:,} from {name}" for name, count in self.fields.items())
        missing = sum(self.unknown.values())
        return fit(
            f"outcomes of {self.format}: {self.known:,} of {plural(self.episodes, 'episode')}"
            + (f": {fields}" if fields else "")
            + (f"; {missing:,} void ({next(iter(self.unknown))})" if missing else "")
        )


class Repairs(NamedTuple):
    """How many calls had their arguments or their name mended, and how often each kind of repair was made."""

    arguments: int
    names: int
    kinds: dict[str, int]

    def lines(self) -> list[str]:
        """For people: a line for arguments, a line for names."""
        return [
            line
            for what, count, kinds in (
                ("argument", self.arguments, {k: n for k, n in self.kinds.items() if k not in NAME_KINDS}),
                ("name", self.names, {k: n for k, n in self.kinds.items() if k in NAME_KINDS}),
            )
            if count
            for line in counted(f"repaired {plural(count, what)}: ", kinds)
        ]


class Quarantined(NamedTuple):
    """A rule with how often it struck, and the first place with the reason and what was found there."""

    level: str
    rule: str
    reason: str
    detail: str
    times: int
    first: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON data, with what to do about it."""
        return {**each(self), "remedy": remedy_of(self.rule)}

    def line(self) -> str:
        """For people: one line."""
        place = ending("", self.first, _PLACE)
        return fit(f"{self.times:>7,} × {self.rule}: {self.reason}", f" @ {place}")


@dataclass(frozen=True)
class IngestReport(BaseReport):
    """What an ingest read. `unchanged` sources were skipped; the counts cover what was read and what was unchanged.

    `redactions` counts the secrets replaced in stored text by kind, `allowed` those that stay because the user said so, `flags` the flagged messages. `stayed` says of sources
    that changed why what they brought was left as it is.
    """

    last = ("kept",)

    read: int
    unchanged: int
    formats: tuple[FormatCounts, ...]
    quarantine: tuple[Quarantined, ...]
    skip_reasons: dict[str, int]
    repairs: Repairs
    outcomes: tuple[Outcomes, ...] = ()
    redactions: dict[str, int] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)
    flags: dict[str, int] = field(default_factory=dict)
    stayed: tuple[str, ...] = ()
    samples: int = 0
    """Rows that are equal to an earlier one of their file and have neither an id nor a time: each is kept as a sample."""

    @property
    def kept(self) -> int:
        """Records that are in the store."""
        return sum(item.kept for item in self.formats)

    @property
    def quarantined(self) -> int:
        """Records and parts set aside."""
        return sum(item.times for item in self.quarantine)

    def exit_code(self, strict: bool = False) -> int:
        """0 when something is kept, in these sources or in others that hold the same; 1 when nothing is, or with `strict` when
        something was set aside."""
        held = any(item.kept or item.duplicates for item in self.formats)
        return int(not held or (strict and self.quarantined > 0))

    def lines(self) -> Lines:
        """At most one screen, the largest first."""
        if not self.formats:
            yield "nothing to read: no file was found"
            return
        notes = [self._law(), *self._notes(), *self._aside()]
        rows = self._rows(LINES - 3 - len(notes))
        yield f"{plural(self.read, 'source')} read, {self.unchanged:,} unchanged"
        yield table(_HEADER, [[cut(row[0], 17), *map(Count, row[1:])] for row in rows], limit=17)
        yield from notes

    def _rows(self, room: int) -> list[FormatCounts]:
        """The largest formats, the others as one, the unread ones, and all of them as one, in so many rows."""
        read = sorted(
            (item for item in self.formats if item.format != UNREAD), key=lambda f: (-f.records, f.format)
        )
        tail = [item for item in self.formats if item.format == UNREAD]
        tail += [_sum("total", self.formats)] if len(self.formats) > 1 else []
        if len(read) + len(tail) <= room:
            return read + tail
        most = max(1, room - len(tail) - 1)
        return [*read[:most], _sum(f"{len(read) - most:,} others", read[most:]), *tail]

    def _law(self) -> str:
        total = _sum("total", self.formats)
        return fit(
            f"records {total.records:,} = kept {total.kept:,} + duplicates {total.duplicates:,} + "
            f"quarantined {total.quarantined:,} + skipped {total.skipped:,}"
        )

    def _notes(self) -> list[str]:
        """A line on each thing that happened to what was read."""
        secrets = plural(sum(self.redactions.values()), "secret")
        return [
            *self._outcomes(),
            *counted("skipped: ", self.skip_reasons),
            *self._equal_rows(),
            *self.repairs.lines(),
            *counted(f"redacted {secrets}: ", self.redactions),
            *counted("allowed, and so left: ", self.allowed),
            *counted("messages flagged: ", self.flags),
            *listed("left as it was: ", self.stayed, "more: --json lists all", _STAYED),
        ]

    def _equal_rows(self) -> list[str]:
        rows = "row that equals" if self.samples == 1 else "rows that equal"
        return [
            fit(f"{self.samples:,} {rows} another of the file kept as samples; --no-samples: as copies")
        ] * bool(self.samples)

    def _outcomes(self) -> list[str]:
        """How many episodes have a known outcome: a line for each of the formats with most episodes, the others as one."""
        ordered = sorted(self.outcomes, key=lambda item: (-item.episodes, item.format))
        rest = ordered[_OUTCOMES:]
        known, episodes = sum(item.known for item in rest), sum(item.episodes for item in rest)
        others = f"outcomes of {len(rest):,} other formats: {known:,} of {plural(episodes, 'episode')}"
        return [*(item.line() for item in ordered[:_OUTCOMES]), *([others] if rest else [])]

    def _aside(self) -> list[str]:
        """What was set aside: the most frequent rules, and the command that says more."""
        if not self.quarantine:
            return []
        rest = self.quarantine[_RULES:]
        rules = [f"{item.times:,} × {item.rule}" for item in rest]
        return [
            f"{plural(self.quarantined, 'thing')} set aside:",
            *(item.line() for item in self.quarantine[:_RULES]),
            *listed("   also ", rules, "more rules: --json lists all"),
            "what to do about each: logforge quarantine",
        ]


def counted(head: str, counts: dict[str, int]) -> list[str]:
    """Things with their numbers, the most frequent first, in one line; none when there is nothing."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return listed(head, [f"{number:,} {name}" for name, number in ordered], "more kinds: --json lists all")


def _sum(name: str, items: Iterable[FormatCounts]) -> FormatCounts:
    columns = list(zip(*items, strict=True))[1:]
    return FormatCounts(name, *(sum(column) for column in columns))


def report_of(
    store: Store, done: list[str], unchanged: list[str], stayed: Iterable[str] = ()
) -> IngestReport:
    """The report over some sources, from the store's own tables; `stayed` says which of the unchanged changed, and why."""
    store.con.register(
        "_done", pl.DataFrame({"source_id": done + unchanged}, schema={"source_id": pl.String}).to_arrow()
    )
    try:
        return IngestReport(
            read=len(done),
            unchanged=len(unchanged),
            formats=tuple(FormatCounts(*row) for row in store.con.sql(_FORMATS).fetchall()),
            quarantine=tuple(Quarantined(*row) for row in store.con.sql(_QUARANTINE).fetchall()),
            skip_reasons=dict(store.con.sql(_SKIPS).fetchall()),
            repairs=_repairs(store),
            outcomes=_outcomes(store),
            redactions=dict(store.con.sql(_SECRETS.format("<>")).fetchall()),
            allowed=dict(store.con.sql(_SECRETS.format("=")).fetchall()),
            flags=dict(store.con.sql(_FLAGS).fetchall()),
            stayed=tuple(stayed),
            samples=store.con.sql(_SAMPLES).fetchall()[0][0],
        )
    finally:
        store.con.unregister("_done")


def _outcomes(store: Store) -> tuple[Outcomes, ...]:
    found: dict[str, Outcomes] = {}
    for name, source, unknown, episodes, known in store.con.sql(_OUTCOME_FIELDS).fetchall():
        one = found.get(name, Outcomes(name, 0, 0, {}, {}))
        fields = one.fields | ({source or "elsewhere": known} if known else {})
        void = one.unknown | ({unknown: episodes} if unknown else {})
        found[name] = Outcomes(name, one.episodes + episodes, one.known + known, fields, void)
    return tuple(found.values())


def _repairs(store: Store) -> Repairs:
    kinds = dict(store.con.sql(_REPAIR_KINDS).fetchall())
    ((arguments,),) = store.con.sql(_REPAIRED_ARGUMENTS).fetchall()
    return Repairs(arguments, sum(kinds.get(kind, 0) for kind in NAME_KINDS), kinds)


_FORMATS = """
    WITH stored AS (
        SELECT e.source_id, count(*) AS episodes,
               sum((SELECT count(*) FROM messages m WHERE m.episode_id = e.episode_id)) AS messages,
               sum((SELECT count(*) FROM steps s WHERE s.episode_id = e.episode_id)) AS steps
        FROM episodes e GROUP BY 1
    )
    SELECT coalesce(format, 'unread'), count(*), sum(records)::BIGINT, sum(kept)::BIGINT, sum(duplicates)::BIGINT,
           sum(quarantined)::BIGINT, sum(skipped)::BIGINT, coalesce(sum(episodes), 0)::BIGINT,
           coalesce(sum(messages), 0)::BIGINT, coalesce(sum(steps), 0)::BIGINT
    FROM sources JOIN _done USING (source_id) LEFT JOIN stored USING (source_id)
    GROUP BY 1 ORDER BY 1
"""
_OUTCOME_FIELDS = """
    SELECT e.format, outcome_from, regexp_replace(outcome_unknown, ':.*', '', 's') AS unknown, count(*),
           count(*) FILTER (success IS NOT NULL OR score IS NOT NULL)
    FROM episodes e JOIN _done USING (source_id)
    GROUP BY ALL ORDER BY 1, 5 DESC, 4 DESC, 2 NULLS LAST, 3 NULLS LAST
"""
_QUARANTINE = """
    SELECT q.level, q.rule, {reason}, {detail}, count(*), {locator}
    FROM quarantine q JOIN _done ON _done.source_id = q.source_id JOIN sources s ON s.source_id = q.source_id
    WHERE q.level <> 'transition' GROUP BY 1, 2 ORDER BY 5 DESC, 2
""".format(**{name: at_first(f"q.{name}") for name in ("reason", "detail", "locator")})
_SECRETS = """
    SELECT kind, sum(count)::BIGINT FROM secrets JOIN _done USING (source_id) WHERE rule {} 'allowed' GROUP BY 1 ORDER BY 2 DESC, 1
"""
_FLAGS = """
    SELECT flag, count(*)
    FROM (
        SELECT unnest(flags) AS flag
        FROM messages JOIN episodes USING (episode_id) JOIN _done USING (source_id) WHERE flags IS NOT NULL
    )
    GROUP BY 1 ORDER BY 2 DESC, 1
"""
_SAMPLES = f"""
    SELECT count(*) FROM episodes JOIN _done USING (source_id) JOIN copies USING (episode_id, source_id)
    WHERE copies.records > 0 AND contains(metadata::VARCHAR, '"{EQUAL_ROW}":') AND json_extract(metadata, '$.{EQUAL_ROW}') IS NOT NULL
"""
_REPAIRED_ARGUMENTS = """
    SELECT count(*) FROM steps JOIN episodes USING (episode_id) JOIN _done USING (source_id)
    WHERE arguments_status = 'repaired'
"""
_REPAIR_KINDS = """
    SELECT kind, count(*)
    FROM (
        SELECT unnest(string_split(repair, '+')) AS kind
        FROM steps JOIN episodes USING (episode_id) JOIN _done USING (source_id) WHERE repair IS NOT NULL
    )
    GROUP BY 1 ORDER BY 2 DESC, 1
"""
_SKIPS = """
    SELECT reason.key, sum(reason.value)::BIGINT
    FROM (SELECT unnest(map_entries(skip_reasons)) AS reason FROM sources JOIN _done USING (source_id)) GROUP BY 1 ORDER BY 1
"""
