"""What an ingest did, as data, as JSON and as a table that fits one screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import polars as pl

from logforge.connectors.tool_names import KINDS as NAME_KINDS
from logforge.store import Store
from logforge.tabulate import table


class FormatCounts(NamedTuple):
    """The conservation law summed over the sources of one format (`unread`: no connector claimed them)."""

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


class Repairs(NamedTuple):
    """How many calls had their arguments or their name mended, and how often each kind of repair was made."""

    arguments: int
    names: int
    kinds: dict[str, int]

    def lines(self) -> list[str]:
        """For people: a line for arguments, a line for names."""
        return [
            f"repaired {count} {what}: " + ", ".join(f"{n} × {kind}" for kind, n in kinds.items())
            for what, count, kinds in (
                ("arguments", self.arguments, {k: n for k, n in self.kinds.items() if k not in NAME_KINDS}),
                ("names", self.names, {k: n for k, n in self.kinds.items() if k in NAME_KINDS}),
            )
            if count
        ]


class Quarantined(NamedTuple):
    """A rule with how often it struck and the first place."""

    level: str
    rule: str
    reason: str
    times: int
    first: str


@dataclass(frozen=True)
class IngestReport:
    """What an ingest read. `unchanged` sources were skipped; the counts cover what was read and what was unchanged."""

    read: int
    unchanged: int
    formats: tuple[FormatCounts, ...]
    quarantine: tuple[Quarantined, ...]
    skip_reasons: dict[str, int]
    repairs: Repairs

    @property
    def kept(self) -> int:
        """Records that are in the store."""
        return sum(item.kept for item in self.formats)

    @property
    def quarantined(self) -> int:
        """Records and parts set aside."""
        return sum(item.times for item in self.quarantine)

    def exit_code(self, strict: bool = False) -> int:
        """0 when something was kept; 1 when nothing was, or with `strict` when something was set aside."""
        return int(self.kept == 0 or (strict and self.quarantined > 0))

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            **asdict(self),
            "formats": [item._asdict() for item in self.formats],
            "quarantine": [item._asdict() for item in self.quarantine],
            "repairs": self.repairs._asdict(),
            "kept": self.kept,
        }

    def render(self) -> str:
        """For people."""
        total = [sum(column) for column in list(zip(*self.formats, strict=True))[1:]] if self.formats else []
        names = FormatCounts._fields
        rows = [list(item) for item in self.formats] + ([["total", *total]] if len(self.formats) > 1 else [])
        if not rows:
            return "nothing to read: no file was found"
        lines = [f"{self.read} sources read, {self.unchanged} unchanged", table(names, rows)]
        if total:
            lines.append(
                f"records {total[1]} = kept {total[2]} + duplicates {total[3]} + quarantined {total[4]} + skipped {total[5]}"
            )
        lines += [f"skipped: {count} × {reason}" for reason, count in sorted(self.skip_reasons.items())]
        lines += self.repairs.lines()
        for item in self.quarantine:
            lines.append(
                f"quarantined {item.times} {item.level}(s), {item.rule}: {item.reason} — first: {item.first}"
            )
        return "\n".join(lines)


def report_of(store: Store, done: list[str], unchanged: list[str]) -> IngestReport:
    """The report over some sources, from the store's own tables."""
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
        )
    finally:
        store.con.unregister("_done")


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
_QUARANTINE = """
    SELECT level, rule, any_value(reason), count(*), min(locator)
    FROM quarantine JOIN _done USING (source_id) WHERE level <> 'transition' GROUP BY 1, 2 ORDER BY 4 DESC, 2
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
