"""What labels brought, what they contradict, and which side counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from logforge.core import BaseReport, Lines, plural, rest
from logforge.schemas import remedy_of

_SHOWN = 10


class Contradiction(NamedTuple):
    """Two labels of one episode or step that disagree, and what counts now (None: unknown)."""

    episode_id: str
    step: int | None
    field: str
    says: Any
    locator: str
    other_says: Any
    other: str
    counts: Any

    def render(self) -> str:
        """One line."""
        what = f"{self.episode_id}{'' if self.step is None else f':{self.step}'} {self.field}"
        stands = "unknown" if self.counts is None else _word(self.counts)
        return f"  {what}: {_word(self.says)} at {self.locator}, {_word(self.other_says)} by {self.other}; {stands} counts"


class Aside(NamedTuple):
    """Rows that were set aside by one rule, and where the first of them is."""

    rule: str
    rows: int
    reason: str
    first: str


@dataclass(frozen=True)
class OutcomesReport(BaseReport):
    """The labels of one source. `agreed` and `judged` compare its successes with those that the logs tell; `kappa` is
    Cohen's, null where it says nothing."""

    source: str
    precedence: int
    records: int
    labels: int
    episodes: int
    steps: int
    unknown: int
    agreed: int
    judged: int
    kappa: float | None
    contradictions: tuple[Contradiction, ...] = ()
    aside: tuple[Aside, ...] = ()
    unchanged: bool = False

    def exit_code(self) -> int:
        """0 when something was labelled, else 1."""
        return int(self.labels == 0)

    def lines(self) -> Lines:
        """What was labelled, how it fits what the logs say, and what was set aside."""
        told = f"{plural(self.labels, 'label')} for {plural(self.episodes, 'episode')}"
        told += f" and {plural(self.steps, 'step')}" if self.steps else ""
        yield f"{self.source}: {told} (precedence {self.precedence}){'; as before' if self.unchanged else ''}"
        yield (
            f"  {plural(self.unknown, 'row')} without an outcome: unknown stays unknown"
            if self.unknown
            else None
        )
        if self.judged:
            kappa = "" if self.kappa is None else f", Cohen's κ {self.kappa:.2f}"
            yield f"  agrees with {self.agreed} of the {self.judged} verdicts that the logs tell of these{kappa}"
        if self.contradictions:
            yield f"{plural(len(self.contradictions), 'contradiction')}; the higher precedence counts, of equal ones none:"
            yield from (item.render() for item in self.contradictions[:_SHOWN])
            yield rest(self.contradictions, _SHOWN, "  … and {} more (--json lists all)")
        for item in self.aside:
            yield f"{plural(item.rows, 'row')} set aside ({item.rule}): {item.reason}, at {item.first}"
            yield f"  → {remedy_of(item.rule)}"


@dataclass(frozen=True)
class RemovedReport(BaseReport):
    """Labels that are gone."""

    first: ClassVar[tuple[str, ...]] = ("removed",)
    removed: ClassVar[bool] = True

    source: str
    labels: int

    def lines(self) -> Lines:
        """A line."""
        yield f"removed {plural(self.labels, 'label')} of {self.source}: what the logs and other labels say counts again"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"
