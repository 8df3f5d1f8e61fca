"""What a forget took, or would take, as data, as JSON and as text."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from logforge.core.tabulate import plural
from logforge.store.forgotten import Kind

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
class ForgetReport:
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

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        datasets, runs = [item._asdict() for item in self.datasets], [item._asdict() for item in self.runs]
        return {**asdict(self), "datasets": datasets, "runs": runs}

    def render(self) -> str:
        """For people: what went, what it means for datasets, and where it still is."""
        if not self.episodes and not self.sources:
            before = f"the {self.kind} {self.name!r} was forgotten before, and nothing of it is left"
            return "\n".join([before, *map(self._run, self.runs)])
        verb = "would forget" if self.dry_run else "forgot"
        lines = [
            f"{verb} {self.kind} {self.name!r}: {plural(self.episodes, 'episode')}, "
            f"{plural(self.messages, 'message')}, {plural(self.steps, 'step')}"
        ]
        if self.related:
            lines.append(
                f"  {self.related} of the episodes are sub-agents, or sessions that resume or share its text"
            )
        if self.sources:
            lines.append(f"  {plural(len(self.sources), 'whole source')}")
        lines += [self._loss(item) for item in self.datasets]
        lines += map(self._run, self.runs)
        if self.files:
            lines.append(
                "still in these log files, which logforge never changes; delete them if it must be gone there:"
            )
            lines += [f"  {name}" for name in self.files[:_SHOWN]]
            lines += [f"  … and {len(self.files) - _SHOWN} more"] if len(self.files) > _SHOWN else []
        lines.append("nothing was changed" if self.dry_run else "an ingest will not bring it back")
        return "\n".join(lines)

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
class RevokeReport:
    """What is no longer kept out."""

    kind: Kind
    name: str

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"revoked": True, **asdict(self)}

    def render(self) -> str:
        """For people."""
        return (
            f"the {self.kind} {self.name!r} is no longer kept out: the next ingest of its logs reads it again"
        )
