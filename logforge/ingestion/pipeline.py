"""Raw logs into the store: each source whole or not at all, nothing lost, a second run changes nothing.

request → sources found → looked at, one by one → read and stored, batch by batch, until nothing is without an owner → report
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from logforge.core import Tick, from_summary, silent, stage
from logforge.ingestion.batches import read_groups
from logforge.ingestion.looking import find_sources, look, look_again
from logforge.ingestion.ownership import remove_sources
from logforge.ingestion.reading import prepare
from logforge.ingestion.report import IngestReport, report_of
from logforge.ingestion.request import Place, Request, Stored, read_options
from logforge.ingestion.rounds import CHECKPOINT_BYTES, MEMORY, hand_over, read_and_store
from logforge.ingestion.sources import Limits, apart, room_beside
from logforge.ingestion.stored_sources import Stayed, source_id_of
from logforge.ingestion.storing import commit
from logforge.ingestion.workers import Crew
from logforge.store import Store, refuse_pending


def ingest(
    store: Store,
    paths: Iterable[str | Path],
    *,
    format: str | None = None,
    mapping: str | Path | None = None,
    strict_arguments: bool = False,
    samples: bool = True,
    redact: bool = True,
    danger: Iterable[str] = (),
    pii: Iterable[str] = (),
    allow_secret: Iterable[str] = (),
    flag_with: Iterable[str] = (),
    limits: Limits | None = None,
    name: str | None = None,
    workers: int = 1,
    progress: Tick = silent,
) -> IngestReport:
    """Read every file at or below `paths` into the store; `-` is standard input, and `name` what its source is called.

    `format` forces a connector by name; `mapping` is a YAML file that describes a shape of your own. `strict_arguments`
    refuses to mend damaged arguments and names. `samples` keeps each of equal rows of a file that have neither an id nor a time;
    without it they are copies. `redact` takes secrets out of all text before it is stored; `danger` lists
    further dangerous tools (`KIND=PATTERN`, or `none` to leave the built-in list out). `pii` names kinds of personal data to take out
    too, `allow_secret` what stays (globs or SHA-256), `flag_with` functions of the user's that flag messages. `limits` say how far a packed file may unfold. `workers` is the number of
    reading processes, this one among them; more than one needs the caller's `if __name__ == "__main__":` guard, as every process pool does.
    Raises UnknownName for an unknown format, SpecError for a wrong mapping, InputError for a path that does not exist,
    StoreError when the store cannot be written, or a forget in it was cut short. Bad input never raises: it is quarantined.
    """
    paths = list(paths)
    files, pipes = apart(paths, name)
    options = read_options(
        paths,
        format,
        mapping,
        strict_arguments,
        limits,
        redact,
        danger,
        pii,
        allow_secret,
        flag_with,
        samples,
    )
    refuse_pending(store)
    sources = find_sources(Request(store, tuple(files), tuple(pipes), name, options, progress))
    with room_beside(store.path) as room, Crew(workers, partial(prepare, redact), room) as crew:
        looked = look(sources, Place(room, crew))
        stored = read_and_store(looked)
    return tell(stored)


@stage(
    from_summary("counts of what was read", "rows of sources, quarantine and secrets, in the store's engine")
)
def tell(stored: Stored) -> IngestReport:
    """What the store holds now of all that was asked for."""
    as_before = (stored.kept | set(stored.stayed)) - stored.read
    with stored.store.settings(CHECKPOINT_BYTES, memory_limit=MEMORY):
        stayed = sorted(map(str, stored.stayed.values()))
        return report_of(stored.store, sorted(stored.read), sorted(as_before), stayed)


STAGES: Final = (find_sources, look, read_and_store, tell)
"""What an ingest does, in this order: each takes what the one before gives."""
ROUND: Final = (read_groups, commit, hand_over)
"""What `read_and_store` does, again and again until nothing is handed over."""


class Again(NamedTuple):
    """The ids of the sources that were read again, and those that stay as they were because nothing here reads them."""

    read: set[str]
    stayed: dict[str, Stayed]


def read_again(
    store: Store,
    sources: Mapping[str, str],
    *,
    format: str | None = None,
    mapping: str | Path | None = None,
    workers: int = 1,
    progress: Tick = silent,
) -> Again:
    """Read stored sources (settings by path) again, whatever their bytes: what reads them may have changed.

    They are read with the settings and the mapping they were read with; `format` and `mapping` are those of `ingest`, and
    go first. A source whose file is gone stays as it is. Raises as `ingest` does.
    """
    made = read_options([], format, mapping, False)
    refuse_pending(store)
    request = Request(store, (), (), None, made, progress)
    with room_beside(store.path) as room, Crew(workers, partial(prepare, made.redact), room) as crew:
        stored = read_and_store(look_again(request, sources, Place(room, crew)))
    _remove_entered(store, sources, stored.read)
    return Again(set(stored.read), stored.stayed)


def _remove_entered(store: Store, labels: Iterable[str], read: frozenset[str]) -> None:
    """Folders that could not be entered and now can are no sources of their own any more."""
    home = store.path.resolve().parent
    entered = {source_id_of(label) for label in labels if (home / label).is_dir()} - read
    with store.transaction():
        remove_sources(store, entered)
