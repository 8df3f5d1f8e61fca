"""Whether the files that a store was read from are still what they were: only then its locators lead to what they led to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from logforge.core import Tick, silent
from logforge.ingestion import holder_of
from logforge.ingestion.sources import found_again, sha256_of
from logforge.schemas import Problem
from logforge.store import Store

_REMEDY = "bring the file back as it was, or ingest it again and build again"
_KEPT = "SELECT path, sha256 FROM sources WHERE (kept > 0 OR format = 'archive') AND format IS DISTINCT FROM 'rule' ORDER BY path"


class Moved(NamedTuple):
    """A file that is not what was read: changed, or gone."""

    path: str
    how: str

    def render(self) -> str:
        """One line."""
        return f"{self.path} {self.how}: lines and places that lead into it may be others now"

    def problem(self) -> Problem:
        """For `check --sources`."""
        return Problem(self.how, self.path, rule="source_moved", remedy=_REMEDY)


def moved(store: Store, labels: Iterable[str] | None = None, progress: Tick = silent) -> Iterator[Moved]:
    """The files of these sources (all that rows are kept of) that hold other bytes than when they were read, or are gone.

    Of an archive's member it is the archive. Every byte is read.
    """
    read: dict[str, str] = dict(store.con.sql(_KEPT).fetchall())
    wanted = read if labels is None else {label: read[label] for label in labels if label in read}
    holders = {holder_of(label, read) for label in wanted}
    here = {item.label: item for item in found_again(holders, store.path.resolve().parent)}
    for number, label in enumerate(sorted(holders)):
        progress(number, len(holders), label)
        item = here.get(label)
        if item is None:
            yield Moved(label, "is gone")
        elif item.verdict is not None:
            yield Moved(label, f"cannot be read any more ({item.verdict.reason})")
        elif _digest(item.path, item.companions) != read[label]:
            yield Moved(label, "has changed since it was read")


def _digest(path: Path, companions: tuple[Path, ...]) -> str:
    try:
        return sha256_of(path, *companions)
    except OSError:
        return ""
