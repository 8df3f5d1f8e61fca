"""A comparison of two datasets, and as text that fits a terminal: only what differs, the most telling rows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logforge.core import WIDTH, BaseReport, Lines, ending, fit, listed, noted, plural, rest, table, text
from logforge.dataset.diff.changes import Lone, Setting, Source, Vocabularies
from logforge.dataset.diff.drift import LARGE, MODERATE, Drift
from logforge.rewards.lint import Mover, TermMean, mover_table
from logforge.splits import MOVES

if TYPE_CHECKING:
    from logforge.dataset.diff.changes import StepChange

    pass


SHOWN = 8
"""So many rows of a table are told; `--json` holds all."""


_PLACE, _MOVED = 36, 44
"""Columns that a place, and a change of a value, may take."""


def _shared(diff: DatasetDiff) -> str:
    return f"{plural(diff.shared_steps or 0, 'step')} of {plural(diff.shared_episodes or 0, 'episode')}"


def _blocks(diff: DatasetDiff) -> Iterator[str]:
    yield _table("settings", ("setting", "A", "B"), diff.settings, limit=36)
    yield "\n".join(_vocabulary(diff))
    yield _table(
        "sources",
        ("only in", "format", "path"),
        [(item.only_in, item.format, ending("", item.path or item.sha256, 60)) for item in diff.sources],
    )
    if diff.shared_episodes is not None:
        yield _table(
            f"episodes: {_shared(diff)} on both sides",
            ("only in", "split", "on the other side", "episodes", "example"),
            [lone._replace(example=ending("", lone.example, 24)) for lone in diff.episodes],
            limit=34,
        )
        yield _steps(diff)
    if diff.movers:
        yield mover_table(
            [mover._replace(locator=ending("", mover.locator, _PLACE)) for mover in diff.movers[:SHOWN]]
        )
    rows = [[row[name] for name in MOVES] for row in diff.splits]
    yield _table("splits", MOVES, rows, limit=24)
    for name in ("balance", "conflicts", "left_out"):
        yield _counts(name.replace("_", " "), getattr(diff, name))
    yield _drifts(diff)


def _vocabulary(diff: DatasetDiff) -> Iterator[str]:
    found = diff.vocabulary
    for word, names in (
        ("added", found.added),
        ("removed", found.removed),
        ("renamed", [f"{old} → {new}" for old, new in found.renamed]),
        ("with another id", [f"{name} ({old} → {new})" for name, old, new in found.moved]),
    ):
        if names:
            yield from listed(f"actions {word}: ", list(names), "more", lines=2)


def _steps(diff: DatasetDiff) -> str:
    if not diff.steps:
        return ""
    header = ("column", "steps", "episodes", "mean |Δ|")
    rows = [(change.column, change.steps, change.episodes, change.mean_difference) for change in diff.steps]
    lines = [table(header, rows)]
    lines += [_example(change) for change in diff.steps]
    if diff.tau is not None:
        lines.append(f"ranking of shared episodes by return: Kendall τ {diff.tau:.3f}")
    terms = [(term.term, term.mean_a, term.mean_b) for term in diff.terms]
    block = "\n".join(["steps that differ, and the largest (or first) difference of each column", *lines])
    return (
        block + ("\n\n" + _table("", ("term, mean per episode", "A", "B"), terms)).rstrip()
        if terms
        else block
    )


def _example(change: StepChange) -> str:
    place, before, after = change.largest[0]
    moved = fit(f": {before} → {after}", width=_MOVED)
    return ending(f"  {change.column} ", place, WIDTH - len(moved)) + moved


def _counts(title: str, rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    shown = [
        [f"{value[0]:,} → {value[1]:,}" if isinstance(value, list) else value for value in row.values()]
        for row in rows
    ]
    return _table(title, tuple(rows[0]), shown)


def _drifts(diff: DatasetDiff) -> str:
    telling = [item for item in diff.drifts if item.level != "stable"]
    stable = len(diff.drifts) - len(telling)
    rows = [(item.of, item.psi, item.noise, item.level, item.count_a, item.count_b) for item in telling]
    title = f"drift (PSI; from {MODERATE:g} moderate, from {LARGE:g} large, unless chance gives as much): {stable} stable"
    told = _table(title, ("distribution", "PSI", "by chance up to", "", "n in A", "n in B"), rows, limit=40)
    return told or title


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], limit: int = 60) -> str:
    if not rows:
        return ""
    more = rest(rows, SHOWN, "… and {:,} more (--json lists all)")
    return text([title or None, table(header, rows[:SHOWN], limit=limit), more])


PARTS = (
    "settings", "vocabulary", "sources", "files", "episodes", "steps", "splits", "balance", "conflicts", "left_out",
)  # fmt: skip
"""The fields of DatasetDiff in which datasets can differ; what else it holds follows from these."""


@dataclass(frozen=True)
class DatasetDiff(BaseReport):
    """Two datasets side by side. `parts` names the fields below in which they differ: none for equal ones.

    `files` are the files whose bytes differ. `tau` is Kendall's τ-b of the returns of shared episodes (None: one side does not
    vary). `drifts` says how far each distribution moved, whether or not that is worth a word; `notes` what could not be compared.
    """

    first = ("differs",)

    a: str
    b: str
    hash_a: str
    hash_b: str
    parts: tuple[str, ...]
    shared_episodes: int | None
    shared_steps: int | None
    settings: list[Setting]
    vocabulary: Vocabularies
    sources: list[Source]
    files: list[str]
    episodes: list[Lone]
    steps: list[StepChange]
    tau: float | None
    terms: list[TermMean]
    movers: list[Mover]
    splits: list[dict[str, Any]]
    balance: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    drifts: list[Drift]
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether anything differs."""
        return bool(self.parts)

    def exit_code(self, strict: bool) -> int:
        """1 for a difference where the caller wants to know by it (`--exit-code`)."""
        return int(strict and self.differs)

    def lines(self) -> Lines:
        """Only what differs, by topic."""
        if not self.differs:
            alike = "" if self.shared_steps is None else f": {_shared(self)} alike"
            yield f"{self.a} and {self.b} differ in nothing{alike} (hash {self.hash_a[:12]})"
            yield from noted(self.notes)
            return
        yield f"A {self.a} ({self.hash_a[:12]})  →  B {self.b} ({self.hash_b[:12]})"
        yield from listed("they differ in: ", [part.replace("_", " ") for part in self.parts], "more")
        yield from (f"\n{block}" for block in _blocks(self) if block)
        yield "\n" + text(noted(self.notes)) if self.notes else None
