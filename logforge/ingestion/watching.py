"""`logforge ingest --watch`: follows files and folders, and reads again what grew, came or changed.

At least once in, exactly once stored: a source that changed is read whole again and takes the place of what it brought
before, so an event that is delivered twice counts as a duplicate, one that comes late re-opens its own episode, and a line
that was torn leaves the quarantine when it is whole. The store is open only while there is something to read.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple

from logforge.core import BaseReport, Lines, listed, plural
from logforge.ingestion import pipeline
from logforge.ingestion.report import IngestReport
from logforge.ingestion.sources import Found, check_paths, find, refuse_pipes
from logforge.schemas import StoreError
from logforge.store import Store, open_store, own_files

INTERVAL_S = 2.0
_REST = 4
"""Looking at very many files takes a while; at least so many times as long we do not look."""

Files = tuple[Path, ...]
"""A source: its file and those that belong to it."""
Stamp = tuple[tuple[int, int, int], ...]
"""Modification time, size and inode of each file of a source: cheap to look at, and one of them changes with the bytes."""


class Held(NamedTuple):
    """What a store holds."""

    episodes: int
    messages: int
    steps: int


@dataclass(frozen=True)
class Pass(BaseReport):
    """One pass that read something, or found a file gone. `new` is what the store holds more than before, `stayed` says of
    files that changed why what they brought was left as it is."""

    first = ("event",)
    event: ClassVar[str] = "pass"

    read: int
    gone: int
    records: int
    kept: int
    duplicates: int
    quarantined: int
    skipped: int
    new: Held
    total: Held
    stayed: tuple[str, ...] = ()

    def lines(self) -> Lines:
        """One line, and one on what was left as it was."""
        more = ", ".join(_signed(count, name) for name, count in self.new._asdict().items() if count)
        aside = f", {plural(self.quarantined, 'record')} in quarantine" if self.quarantined else ""
        they = "it" if self.gone == 1 else "they"
        gone = f"; {plural(self.gone, 'file')} gone, what {they} brought stays" if self.gone else ""
        yield f"{plural(self.read, 'source')} read: {more or 'nothing new'}{aside}{gone}"
        yield from listed("left as it was: ", self.stayed, "more: --json lists all")


def _signed(change: int, names: str) -> str:
    return f"{'+' if change > 0 else '-'}{plural(abs(change), names.removesuffix('s'))}"


@dataclass(frozen=True)
class Summary(BaseReport):
    """What a watch did until it was stopped."""

    first = ("event",)
    event: ClassVar[str] = "stopped"

    passes: int
    read: int
    total: Held

    def lines(self) -> Lines:
        """The last line."""
        held = ", ".join(
            plural(count, name.removesuffix("s")) for name, count in self.total._asdict().items()
        )
        passes = "1 pass" if self.passes == 1 else f"{self.passes:,} passes"
        yield f"stopped after {passes}, {plural(self.read, 'source')} read; the store holds {held}"


def watch(
    store: str | Path,
    paths: Iterable[str | Path],
    *,
    interval: float = INTERVAL_S,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda text: None,
    ingest: Callable[..., IngestReport] = pipeline.ingest,
    **options: Any,
) -> Iterator[Pass | Summary]:
    """Follow the paths until `stop` is set, looking every `interval` seconds; the last item is a Summary.

    Each pass is an `ingest`, and `options` are its own. While another process has the store open, the pass is put off and `say` told so. Raises
    what `ingest` raises.
    """
    paths, stop = list(paths), stop or threading.Event()
    refuse_pipes(paths)
    check_paths(paths)
    seen: dict[Files, Stamp] = {}
    passes: list[Pass] = []
    put_off = False
    while not stop.is_set():
        start = time.monotonic()
        now = _stamps(paths, Path(store))
        rest = _REST * (time.monotonic() - start)
        changed = [file for files, stamp in now.items() if seen.get(files) != stamp for file in files]
        gone = len(seen.keys() - now.keys())
        try:
            if changed or gone or not passes:
                # The first pass takes everything there is, also what is only to be named and skipped.
                passes.append(_pass(store, changed if passes else paths, gone, partial(ingest, **options)))
                seen, put_off = now, False
                yield passes[-1]
        except StoreError as error:
            if error.rule != "store_locked":
                raise
            if not put_off:
                say(f"{error.message}; what changed is read when it is free")
            put_off = True
        except KeyboardInterrupt:  # in the midst of a pass: its transaction is undone
            break
        stop.wait(max(interval, rest))
    total = passes[-1].total if passes else Held(0, 0, 0)
    yield Summary(len(passes), sum(item.read for item in passes), total)


def _stamps(paths: Iterable[str | Path], store: Path) -> dict[Files, Stamp]:
    """The sources that can be read, each with its stamp."""
    here = [path for path in paths if Path(path).exists()]
    own = own_files(store)
    items = [item for item in find(here, store.parent) if item.verdict is None and item.path not in own]
    stamps = (((item.path, *item.companions), _stamp(item)) for item in items)
    return {files: stamp for files, stamp in stamps if stamp is not None}


def _stamp(item: Found) -> Stamp | None:
    """None when it went away just now."""
    try:
        looks = [path.stat() for path in (item.path, *item.companions)]
    except OSError:
        return None
    return tuple((look.st_mtime_ns, look.st_size, look.st_ino) for look in looks)


def _pass(
    store: str | Path, paths: Iterable[str | Path], gone: int, ingest: Callable[..., IngestReport]
) -> Pass:
    here = [path for path in paths if Path(path).exists()]
    with open_store(store) as opened:
        before = _held(opened)
        report = ingest(opened, here)
        total = _held(opened)
    names = ("records", "kept", "duplicates", "quarantined", "skipped")
    counts = {name: sum(getattr(item, name) for item in report.formats) for name in names}
    new = Held(*(after - then for then, after in zip(before, total, strict=True)))
    return Pass(report.read, gone, **counts, new=new, total=total, stayed=report.stayed)


def _held(store: Store) -> Held:
    query = "SELECT (SELECT count(*) FROM episodes), (SELECT count(*) FROM messages), (SELECT count(*) FROM steps)"
    return Held(*store.con.sql(query).fetchall()[0])


@contextmanager
def until_told() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: what is being read is stored first. A second Ctrl-C ends it at once."""
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
