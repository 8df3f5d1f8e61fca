"""The quality report of a dataset: one offline HTML page and JSON, every number with the query that gives it.

logforge/report/sections/catalogue.py has the order of the sections.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logforge.core import BaseReport, Lines, Tick, noted, picked, replaced_file, silent, table
from logforge.report.page import Context, Section, page
from logforge.report.sections import SECTIONS
from logforge.schemas import UnknownName
from logforge.shards import SAMPLE
from logforge.store import Store

HTML, JSON = "report.html", "report.json"
_MARKS = {"good": "ok   ", "note": "note ", "alarm": "ALARM"}
_WIDE = 100


@dataclass(frozen=True)
class Report(BaseReport):
    """The sections of a dataset's report, and the files it was written to."""

    dataset: str
    hash: str
    sections: tuple[Section, ...]
    files: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For `--json`, and the report's JSON file but for the files' own names."""
        sections = {section.key: section.as_dict() for section in self.sections}
        return {
            **picked(self, "dataset", "hash"),
            "sections": sections,
            **(picked(self, "files") if self.files else {}),
        }

    def html(self) -> str:
        """The page."""
        about = f"Dataset {self.dataset}, build {self.hash}. Open “SQL” under a section for the queries behind its numbers."
        return page(f"Quality of {self.dataset}", about, self.sections)

    def lines(self) -> Lines:
        """A section alone with its numbers and tables, all of them by what they find."""
        if len(self.sections) == 1 and not self.files:
            yield from _whole(self.sections[0])
            return
        yield from (line for section in self.sections for line in _findings(section))
        yield from noted(self.files, "written: ")


def _findings(section: Section) -> list[str]:
    if not section.findings:
        return [f"{_MARKS['good']}  {section.title}"]
    return [f"{_MARKS[finding.level]}  {section.title}: {finding.text}" for finding in section.findings]


def _whole(section: Section) -> list[str]:
    numbers = [(item.label, item.value, item.low, item.high) for item in section.numbers]
    lines = [section.title, *(f"{_MARKS[f.level]}  {f.text}" for f in section.findings)]
    if numbers:
        lines += ["", table(("number", "value", "low", "high"), numbers, limit=_WIDE)]
    for item in section.tables:
        lines += ["", item.title, table(item.columns, item.rows, limit=_WIDE) if item.rows else "none"]
    return lines


def measure(context: Context, names: Sequence[str] = (), progress: Tick = silent) -> Report:
    """The sections named, or all of them. Raises UnknownName for a name that is none."""
    for name in names:
        if name not in SECTIONS:
            raise UnknownName("section", name, list(SECTIONS))
    wanted = [name for name in SECTIONS if not names or name in names]
    sections = []
    for place, name in enumerate(wanted):
        progress(place, len(wanted), name)
        sections.append(SECTIONS[name](context))
    return Report(context.dataset, context.hash, tuple(sections))


def report(
    store: Store,
    dataset: str = "default",
    *,
    sections: Sequence[str] = (),
    out: str | Path | None = None,
    seed: int = 0,
    sample: int = SAMPLE,
    reference: str | None = None,
    progress: Tick = silent,
) -> Report:
    """Measure a dataset and write `report.html` and `report.json` into the folder `out` (default: `NAME-report` beside the
    dataset's folder). With `sections` only those, and files only where `out` is given.

    Probes look at `sample` decisions of each split at most. `reference` is the dataset SACo is relative to. Raises UnknownName
    for a dataset or section that is not there.
    """
    context = Context(store, dataset, seed=seed, sample=sample, reference=reference)
    found = measure(context, sections, progress)
    if sections and out is None:
        return found
    folder = Path(out) if out is not None else context.folder.with_name(f"{context.folder.name}-report")
    texts = {HTML: found.html(), JSON: json.dumps(found.as_dict(), ensure_ascii=False, indent=1) + "\n"}
    for name, text in texts.items():
        with replaced_file(folder / name) as file:
            file.write_text(text, "utf-8")
    return Report(found.dataset, found.hash, found.sections, tuple(str(folder / name) for name in texts))
