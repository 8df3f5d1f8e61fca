"""What a forget took, or would take, as data, as JSON and as text."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from logforge.core import BaseReport, Lines, noted, plural, rest
from logforge.store import Kind

_SHOWN = 20


class DatasetLoss(NamedTuple):
    """What a dataset loses: logged and augmented episodes with their transitions. `hash` is the one it had before."""

    name: str
    path: str
    hash: str
    episodes: int
    transitions: int


class RunLoss(NamedTuple):
    """How many golden states a policy's folder loses."""

    path: str
    states: int


@dataclass(frozen=True)
class ForgetReport(BaseReport):
    """What is gone. `related` of the episodes share the text of those that were named: sub-agents, resumed and forked
    sessions. `files` are the log files that still hold it, `runs` the policies that lost golden states, of this or of an earlier
    forget."""

    kind: Kind
    name: str
    dry_run: bool
    episodes: int
    related: int
    messages: int
    steps: int
    sources: tuple[str, ...]
    datasets: tuple[DatasetLoss, ...]
    files: tuple[str, ...]
    runs: tuple[RunLoss, ...] = ()

    @classmethod
    def nothing_left(cls, kind: Kind, name: str) -> ForgetReport:
        """The report of something that was forgotten before."""
        return cls(kind, name, False, 0, 0, 0, 0, (), (), ())

    @property
    def warning(self) -> str:
        """What may still hold texts of it, where no folder of runs was looked at."""
        if self.dry_run or self.runs or not self.datasets:
            return ""
        names = ", ".join(item.name for item in self.datasets)
        return (
            f"runs trained on {names} may hold texts of it: each policy carries up to 20 states. `logforge forget "
            f"--{self.kind} {shlex.quote(self.name)} --runs DIR` takes them out of the policies below DIR"
        )

    def lines(self) -> Lines:
        """What went, what it means for datasets, and where it still is."""
        if not self.episodes and not self.sources:
            yield f"the {self.kind} {self.name!r} was forgotten before, and nothing of it is left"
            yield from map(self._run, self.runs)
            return
        held = (plural(getattr(self, noun), noun[:-1]) for noun in ("episodes", "messages", "steps"))
        yield f"{'would forget' if self.dry_run else 'forgot'} {self.kind} {self.name!r}: {', '.join(held)}"
        if self.related:
            yield f"  {self.related} of the episodes are sub-agents, or sessions that resume or share its text"
        if self.sources:
            yield f"  {plural(len(self.sources), 'whole source')}"
        yield from map(self._loss, self.datasets)
        yield from map(self._run, self.runs)
        if self.files:
            yield "still in these log files, which logforge never changes; delete them if it must be gone there:"
            yield from noted(self.files[:_SHOWN], "  ")
            yield rest(self.files, _SHOWN, "  … and {} more")
        yield "nothing was changed" if self.dry_run else "an ingest will not bring it back"

    def _run(self, item: RunLoss) -> str:
        states = plural(item.states, "golden state")
        return f"  policy {item.path}: {states}" + (
            "" if self.dry_run else " taken out; what it learnt stays"
        )

    def _loss(self, item: DatasetLoss) -> str:
        what = f"{plural(item.episodes, 'episode')}, {plural(item.transitions, 'transition')}"
        if self.dry_run:
            return f"  dataset {item.name}: {what}"
        return (
            f"  dataset {item.name}: {what} taken out of {item.path}; train again what was trained on it, and delete its "
            "old runs and exports"
        )


@dataclass(frozen=True)
class RevokeReport(BaseReport):
    """What is no longer kept out."""

    first = ("revoked",)
    revoked: ClassVar[bool] = True

    kind: Kind
    name: str

    def lines(self) -> Lines:
        """A line."""
        yield f"the {self.kind} {self.name!r} is no longer kept out: the next ingest of its logs reads it again"
