"""Which sources are read again because episodes have lost their owner: the best copy whose file is there takes over."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from logforge.connectors import detection as connectors
from logforge.core import rows_table
from logforge.ingestion.ownership import Orphan, orphans
from logforge.ingestion.reading import ReadOptions
from logforge.ingestion.sources import Found, same_place
from logforge.schemas import QUARANTINE
from logforge.store import Store, keys_in, store_key


class Heir(NamedTuple):
    """A file to be read again, and how it was read."""

    place: Found
    options: ReadOptions


def heirs(store: Store, tried: set[str], options: ReadOptions) -> dict[str, Heir]:
    """The sources, by id, whose copies take over the ownerless episodes: of each, the best whose file is there.

    A copy whose file is gone cannot be read again; that is said in the quarantine.
    """
    home = store.path.resolve().parent
    chosen: dict[str, Heir] = {}
    gone: list[Orphan] = []
    for copies in orphans(store).values():
        here = (copy for copy in copies if copy.source_id not in tried and _readable(copy, options))
        places = ((copy, same_place(copy.path, home)) for copy in here)
        found = next(((copy, place) for copy, place in places if place is not None), None)
        if found is None:
            gone += [] if copies[0].owned else copies[:1]
        elif found[0].source_id not in chosen:
            copy, place = found
            then = replace(
                ReadOptions.of(copy.settings, options.mapping),
                forgotten=keys_in(store),
                limits=options.limits,
                flag_with=options.flag_with,
                secret_key=store_key(store.path),
            )
            chosen[copy.source_id] = Heir(place, then)
    if not chosen:
        _say_gone(store, gone)
    return chosen


def _readable(copy: Orphan, options: ReadOptions) -> bool:
    """What read it is here: a connector, a mapping that is given, or the one it was read with."""
    earlier = ReadOptions.of(copy.settings, None).earlier
    given = {one.name for one in (options.mapping, earlier) if one is not None}
    return copy.format in connectors.registry() or copy.format in given


def _say_gone(store: Store, gone: list[Orphan]) -> None:
    said = store.con.sql("SELECT episode_id FROM quarantine WHERE rule = 'copy_gone' ORDER BY 1").fetchall()
    if [row[0] for row in said] == sorted(copy.episode_id for copy in gone):
        return
    with store.transaction():
        store.con.execute("DELETE FROM quarantine WHERE rule = 'copy_gone'")
        rows = [
            {
                "level": "part",
                "source_id": copy.source_id,
                "episode_id": copy.episode_id,
                "locator": copy.path,
                "reason": "the file that held this episode is gone, and the file it was stored from no longer has it",
                "rule": "copy_gone",
                "records": 0,
            }
            for copy in gone
        ]
        store.insert("quarantine", rows_table(QUARANTINE, rows))
