"""Logs with one key renamed, one value nested, or one object replaced by what nobody knows: nothing may be invented of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from logforge.schemas.episode import Episode, Reading, Reject, Skip

Way = tuple[str | int, ...]
STRANGE = {"kind": "hologram", "payload": {"blob": "?"}}


def spoiled(value: Any, unread: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """The value with each key renamed, each key's value nested, and each object in a list replaced, one at a time.

    Not so below the `unread` keys, which a connector passes over on purpose.
    """
    for way, key in _keys(value, ()):
        if unread & {*way, key}:
            continue
        yield (
            f"renamed {'/'.join(map(str, way))}/{key}",
            _changed(value, way, lambda found, key=key: _renamed(found, key)),
        )
        yield (
            f"nested {'/'.join(map(str, way))}/{key}",
            _changed(value, way, lambda found, key=key: {**found, key: {"wrapped": found[key]}}),
        )
    for way in _blocks(value, ()):
        if unread & {*way}:
            continue
        yield f"replaced {'/'.join(map(str, way))}", _changed(value, way, lambda _: STRANGE)


def _renamed(found: dict[str, Any], key: str) -> dict[str, Any]:
    return {f"x-{name}" if name == key else name: inner for name, inner in found.items()}


def _keys(value: Any, way: Way) -> Iterator[tuple[Way, str]]:
    if isinstance(value, dict):
        yield from ((way, key) for key in value)
    for key, inner in _inside(value):
        yield from _keys(inner, (*way, key))


def _blocks(value: Any, way: Way) -> Iterator[Way]:
    if isinstance(value, dict) and way and isinstance(way[-1], int):
        yield way
    for key, inner in _inside(value):
        yield from _blocks(inner, (*way, key))


def _inside(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _changed(value: Any, way: Way, change: Any) -> Any:
    if not way:
        return change(value)
    if isinstance(value, dict):
        return {
            key: _changed(inner, way[1:], change) if key == way[0] else inner for key, inner in value.items()
        }
    return [
        _changed(inner, way[1:], change) if index == way[0] else inner for index, inner in enumerate(value)
    ]


def decisions(readings: list[Reading]) -> set[tuple[str, str]]:
    """What agents decided: the kind of each step, and the tool or the words."""
    found = set()
    for episode in readings:
        if isinstance(episode, Episode):
            for step in episode.steps:
                said = step.action if step.kind == "tool" else episode.messages[step.position].content or ""
                found.add(("tool" if step.kind == "tool" else "said", said))
    return found


def invented(whole: list[Reading], spoilt: list[Reading]) -> set[tuple[str, str]]:
    """Utterances of the spoilt log that the whole one has not: a call that became a `respond`, or words of nobody."""
    known = {said for kind, said in decisions(whole) if kind == "said"}
    return {
        pair for pair in decisions(spoilt) if pair[0] == "said" and not _pieces(pair[1]) <= _all_pieces(known)
    }


def _pieces(text: str) -> set[str]:
    return set(text.split("\n"))


def _all_pieces(texts: set[str]) -> set[str]:
    return {piece for text in texts for piece in text.split("\n")}


def lost(whole: list[Reading], spoilt: list[Reading], what: str) -> set[str]:
    """Calls and words that vanished without a trace: nothing is told of the spoilt log that is not told of the whole one."""
    if _set_aside(spoilt) - _set_aside(whole):
        return set()
    before = {"hologram"} if what.startswith("replaced") else _words(_told(whole))
    return before - _words(_told(spoilt))


def _words(texts: set[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _set_aside(readings: list[Reading]) -> set[tuple[str, str]]:
    """What is told of everything that is not kept: a reject's rule and place, a skip's reason and how many there are."""
    rejects = {(reading.rule, reading.locator) for reading in readings if isinstance(reading, Reject)}
    skips = Counter(reading.reason for reading in readings if isinstance(reading, Skip))
    return rejects | {(reason, str(count)) for reason, count in skips.items()}


def _told(readings: list[Reading]) -> set[str]:
    """What was said, thought and called."""
    episodes = [reading for reading in readings if isinstance(reading, Episode)]
    texts = {text for e in episodes for m in e.messages for text in (m.content, m.thought) if text}
    return texts | {step.action for e in episodes for step in e.steps if step.kind == "tool"}
