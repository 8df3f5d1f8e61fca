"""Tools that go by other names than they did: `OLD=NEW` pairs, resolved, and episodes told in the names of today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from logforge.connectors.records import read_text
from logforge.schemas import (
    CLARIFY,
    INVALID,
    OTHER,
    RESPOND,
    Episode,
    UnknownName,
    UsageError,
    Vocabulary,
    parse,
)

_RESERVED = frozenset({RESPOND, CLARIFY, INVALID, OTHER})
_REMEDY = "give --action-alias OLD=NEW, or a YAML file that maps old names to new ones"


def read_aliases(given: Iterable[str]) -> dict[str, str]:
    """Pairs as `OLD=NEW`, or YAML files of them, as a mapping from old to new. A name that is given twice is refused."""
    pairs: list[tuple[str, str]] = []
    for text in given:
        old, sign, new = text.partition("=")
        pairs += [(old, new)] if sign else _of_file(text)
    found: dict[str, str] = {}
    for old, new in pairs:
        if not old or not new or {old, new} & _RESERVED:
            raise UsageError(f"the alias {old!r} of {new!r}: a name is missing or reserved", _REMEDY)
        if found.get(old, new) != new:
            raise UsageError(f"{old!r} is an alias of both {found[old]!r} and {new!r}", _REMEDY)
        found[old] = new
    return found


def _of_file(text: str) -> list[tuple[str, str]]:
    file = Path(text)
    if not file.is_file():
        raise UsageError(f"{text!r} is neither OLD=NEW nor a file", _REMEDY)
    value = parse(read_text(file), text).value
    if not isinstance(value, dict) or not all(
        isinstance(part, str) for pair in value.items() for part in pair
    ):
        raise UsageError(f"{text}: not a mapping of names to names", _REMEDY)
    return list(value.items())


def resolve_aliases(
    given: Mapping[str, str], episodes: Iterable[Episode], earlier: Vocabulary | None = None
) -> dict[str, str]:
    """Each earlier name with the name of today, those of an `earlier` vocabulary included; names of names are followed.

    Raises UsageError for names that lead round in a circle, and UnknownName for one that neither the episodes nor the earlier
    vocabulary hold.
    """
    pairs = {**(earlier.aliases if earlier else {}), **given}
    found = {old: _last(old, pairs) for old in pairs}
    if given:
        known = {name for episode in episodes for name in _names(episode)}
        known |= {*(earlier.actions if earlier else ()), *(earlier.aliases if earlier else ())}
        for name in (name for pair in given.items() for name in pair):
            if name not in known:
                raise UnknownName("tool of an alias", name, sorted(known - _RESERVED))
    return dict(sorted(found.items()))


def _last(name: str, pairs: Mapping[str, str]) -> str:
    seen = [name]
    while seen[-1] in pairs:
        seen.append(pairs[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise UsageError(f"the aliases {' = '.join(seen)} lead round in a circle", _REMEDY)
    return seen[-1]


def _names(episode: Episode) -> set[str]:
    offered = {name for tools in episode.offered for name in tools or ()}
    return offered | {step.action for step in episode.steps if step.kind == "tool"}


def renamed(episode: Episode, aliases: Mapping[str, str]) -> Episode:
    """The episode with every tool under its name of today; messages stay as they were logged."""
    if not aliases or aliases.keys().isdisjoint(_names(episode) | _proposed(episode)):
        return episode
    lists: dict[int, list[str] | None] = {id(None): None}

    def tools(names: list[str] | None) -> list[str] | None:
        # One list for many steps stays one list: masks are made once for each.
        if id(names) not in lists:
            lists[id(names)] = list(dict.fromkeys(aliases.get(name, name) for name in names or ()))
        return lists[id(names)]

    steps = [
        msgspec.structs.replace(
            step,
            action=aliases.get(step.action, step.action) if step.kind == "tool" else step.action,
            proposed_action=aliases.get(step.proposed_action or "", step.proposed_action),
            tools=tools(step.tools),
        )
        for step in episode.steps
    ]
    return msgspec.structs.replace(episode, tools=tools(episode.tools), steps=steps)


def _proposed(episode: Episode) -> set[str]:
    return {step.proposed_action for step in episode.steps if step.proposed_action is not None}
