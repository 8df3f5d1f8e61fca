"""Drafts of mappings: what each place with objects would be read as, line by line, with what is unsure about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from logforge.inspecting.contents import unread_texts
from logforge.inspecting.places import Place, may_group, order_of, session_key
from logforge.inspecting.routes import Route, as_path, found, name_of
from logforge.inspecting.run_fields import run_fields
from logforge.inspecting.talks import Block, Talk, talks_of
from logforge.inspecting.units import Line, Units, written
from logforge.inspecting.words import (
    RUN_WORDS,
    TURN_WORDS,
    plain_name,
)


@dataclass(frozen=True)
class Draft:
    """A mapping as it would be, without its name. `doubts` belong to no line."""

    records: Route | None
    episode: dict[str, Line]
    messages: Block
    time_unit: str | None = None
    doubts: tuple[str, ...] = ()

    @property
    def blocks(self) -> Block:
        """The file's content, in its order."""
        made: Block = {}
        if self.records is not None:
            made["records"] = Line(as_path(self.records))
        if self.time_unit is not None:
            made["time_unit"] = Line(self.time_unit)
        if self.episode:
            made["episode"] = self.episode
        return {**made, "messages": self.messages}


def drafts_of(place: Place) -> Iterator[Draft]:
    """The mappings that would read a place, the likeliest first."""
    for talk in talks_of(place.units):
        yield from _held(place, talk)


def _held(place: Place, talk: Talk) -> Iterator[Draft]:
    keyed = session_key(place.units) if not talk.is_pair else None
    if keyed is not None:
        yield _by_rows(place, talk, keyed)
    if place.is_table:
        if not talk.is_role:
            yield _alone(place, talk, "")
        elif keyed is None:
            yield _by_file(place, talk)
        return
    if not talk.is_role and not talk.is_pair and keyed is None and _are_runs(place.route):
        yield _alone(
            place, talk, "" if _named_runs(place.route) else "is each of these a conversation of its own?"
        )
    yield _in_lists(place, talk)


def _named_runs(route: Route) -> bool:
    return plain_name(name_of(route)) in RUN_WORDS - TURN_WORDS - {
        "items",
        "data",
        "rows",
        "results",
        "records",
    }


def _are_runs(route: Route) -> bool:
    return route[-1] is None and plain_name(name_of(route)) not in TURN_WORDS


def _records_of(place: Place) -> Route | None:
    return None if place.is_table else place.route


def _by_rows(place: Place, talk: Talk, keyed: tuple[Route, str]) -> Draft:
    """Rows with one id are a conversation."""
    route, doubt = keyed
    groups: dict[str, list[int]] = {}
    for at, value in enumerate(place.units.column(route)):
        groups.setdefault(written(value), []).append(at)
    units = [place.units.chosen(places) for places in groups.values()]
    is_mixed = any(places != list(range(places[0], places[-1] + 1)) for places in groups.values())
    ordered, doubts = _ordered(units, is_mixed=is_mixed)
    messages: Block = {"rows": Line("episode", "; ".join(doubts)), **ordered}
    episode = {"id": Line(as_path(route), doubt)}
    episode |= run_fields(place.units, [*talk.read, route], units)
    return _draft(_records_of(place), episode, messages | talk.block, talk)


def _ordered(groups: Sequence[Units], *, is_mixed: bool = False) -> tuple[Block, list[str]]:
    """The line that sorts messages, if any; and what is unsure where there is none."""
    order = order_of(groups, is_mixed=is_mixed)
    if order.route is None:
        return {}, [order.doubt] if order.doubt else []
    return {"order": Line(as_path(order.route), order.doubt)}, []


def _by_file(place: Place, talk: Talk) -> Draft:
    """All rows of the file are one conversation."""
    systems = 0 if not talk.block.get("role") else sum(talk.asks)
    doubt = "" if len(place.units) <= 400 and systems else "is all of the file one conversation?"
    ordered, _ = _ordered([place.units])
    if not doubt and (others := may_group(place.units, talk.said, talk.read)):
        doubt = f"all of the file, or does {' or '.join(map(as_path, others[:3]))} tell conversations apart?"
    messages: Block = {"rows": Line("file", doubt or _several(place.units, talk)), **ordered}
    episode = run_fields(place.units, talk.read, [place.units])
    return _draft(_records_of(place), episode, messages | talk.block, talk)


def _several(units: Units, talk: Talk) -> str:
    """Why rows without an id may be more than one conversation."""
    texts = [str(value) for value in units.values]
    return "equal rows: is this one conversation?" if len(set(texts)) < 0.9 * len(texts) else ""


def _alone(place: Place, talk: Talk, doubt: str) -> Draft:
    """Each object is a conversation: a question and its answer."""
    groups = [place.units.chosen([at]) for at in range(len(place.units))]
    episode = run_fields(place.units, talk.read, groups)
    return _draft(_records_of(place), episode, {"path": Line("$", doubt)} | talk.block, talk)


def _in_lists(place: Place, talk: Talk) -> Draft:
    """The objects of a list are a conversation; of lists in lists, those of the innermost that holds more than one turn."""
    holder, doubt = _holder(place, talk)
    records = [one for document in place.documents for one in found(document, holder)]
    inner = place.route[len(holder) :]
    whole = Units.of(records)
    groups = [Units.of(items) for items in place.conversations(holder)]
    doubts = [why for why in (doubt, _grows(place, holder)) if why]
    opening = _openings(whole, inner, talk)
    path: str | list[str] = as_path(inner)
    if opening:
        path = [*map(as_path, opening), as_path(inner)]
        doubts.append("what stands apart is taken to come first")
    ordered, _ = _ordered(groups)
    messages: Block = {"path": Line(path, "; ".join(doubts)), **({} if opening else ordered)}
    keyed = session_key(whole) if holder == () and len(whole) > 1 else None
    if keyed is not None and _turns(groups, place, talk) <= 1.0:
        route, why = keyed
        parts: dict[str, list[int]] = {}
        for at, value in enumerate(whole.column(route)):
            parts.setdefault(written(value), []).append(at)
        together = [whole.chosen(places) for places in parts.values()]
        episode = {"id": Line(as_path(route), why), **run_fields(whole, [route, inner], together)}
        again = _GROWS if _begin_alike(together, inner) else ""
        rows: Block = {"rows": Line("episode", again), **messages}
        left = _left_outside(whole, [inner, route], episode)
        return _draft(None, episode, rows | talk.block, replace(talk, doubts=(*talk.doubts, *left)))
    closed = [inner, *opening]
    episode = run_fields(whole, closed, [whole.chosen([at]) for at in range(len(whole))])
    left = _left_outside(whole, closed, episode)
    return _draft(holder or None, episode, messages | talk.block, replace(talk, doubts=(*talk.doubts, *left)))


def _openings(whole: Units, inner: Route, talk: Talk) -> list[Route]:
    """Messages that stand outside the list: objects in which the same fields say who speaks, and what."""
    if talk.speaks is None:
        return []
    speaks = talk.speaks
    routes = [
        route
        for route in whole.counts
        if route
        and None not in route
        and route != inner[: len(route)]
        and whole.counts[route] >= 0.5 * len(whole)
    ]
    return [
        route
        for route in routes
        if whole.share(route, lambda value: isinstance(value, dict) and speaks(value)) >= 0.5
    ]


def _left_outside(whole: Units, closed: Sequence[Route], episode: dict[str, Line]) -> list[str]:
    """Texts of the record that are no message and no field of the run: they may be what was said before or after."""
    read = {path for line in episode.values() for path in _paths_of(line)}
    texts = [
        route for route in unread_texts(whole, closed) if as_path(route) not in read and None not in route
    ]
    return [f"{as_path(route)} is text outside of the messages" for route in texts[:3]]


def _paths_of(line: Line) -> list[str]:
    value = line.value["path"] if isinstance(line.value, dict) else line.value
    return value if isinstance(value, list) else [value]


def _holder(place: Place, talk: Talk) -> tuple[Route, str]:
    """What holds one conversation."""
    levels = place.nested
    for at, holder in enumerate(levels):
        if at + 1 == len(levels):
            return holder, ""
        turns = _turns([Units.of(items) for items in place.conversations(holder)], place, talk)
        around = plain_name(name_of(holder))
        if turns > 1.0 or around in RUN_WORDS - TURN_WORDS:
            return holder, ""
        if around not in TURN_WORDS:
            return levels[at + 1], f"are all of {around} one conversation?"
    return (), ""


def _turns(groups: Sequence[Units], place: Place, talk: Talk) -> float:
    """How often the user speaks in a conversation, on average."""
    asking = {id(value) for value, asks in zip(place.units.values, talk.asks, strict=True) if asks}
    texts = {str(value) for value, asks in zip(place.units.values, talk.asks, strict=True) if asks}
    counts = [sum(id(value) in asking or str(value) in texts for value in group.values) for group in groups]
    return sum(counts) / max(1, len(counts))


_GROWS = "each record seems to repeat the talk so far: only the last of each is a whole conversation"


def _begin_alike(groups: Sequence[Units], inner: Route) -> bool:
    """The records of one conversation begin with what the ones before held."""
    for group in groups:
        held = [[str(item) for item in found(value, inner)] for value in group.values]
        if any(later[: len(earlier)] == earlier and earlier for earlier, later in pairwise(held)):
            return True
    return False


def _grows(place: Place, holder: Route) -> str:
    """Whether each conversation begins with the one before: then a record is a request that repeats the talk so far."""
    talks = [[str(item) for item in items] for items in place.conversations(holder)]
    grown = sum(
        len(earlier) >= 2 and len(later) > len(earlier) and later[: len(earlier)] == earlier
        for earlier, later in pairwise(talks)
    )
    return _GROWS if grown > 0.2 * len(talks) else ""


def _draft(records: Route | None, episode: dict[str, Line], messages: Block, talk: Talk) -> Draft:
    return Draft(records, episode, messages, talk.unit, talk.doubts)
