"""Fits the second level of actions on the train split: which values are words, which templates a tool has, which numbers.

All thresholds count split groups as well as calls: what one task alone says is neither common nor fit to be told again.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import duckdb
import polars as pl

from logforge.core import POLARS_TYPES
from logforge.dataset.actions.arguments import REST, ArgumentSpace, leaves, number, template, word
from logforge.schemas import (
    ARGUMENT_CANDIDATES,
    CLARIFY,
    INVALID,
    OTHER,
    RESPOND,
    ArgumentTemplate,
    Vocabulary,
)

WORDS: Final = 16
"""A key with more values than this (each in two split groups or more) holds free text, not words."""
DISTINCT: Final = 1000
"""A key with more distinct values than this is not looked at any further."""
TEMPLATES: Final = 15
"""The most frequent templates of a tool, besides the one for the rest."""
NUMBERS: Final = 20
"""So many calls must give a number for it to have a column."""
EXAMPLES: Final = 3
"""So many logged calls stand for a template."""
_BATCH = 10_000

CANDIDATES = {c.name: POLARS_TYPES[c.type] for c in ARGUMENT_CANDIDATES.columns if c.name != "dataset"}
"""The columns of schemas.tables.ARGUMENT_CANDIDATES, without `dataset`, as polars types."""


class Call(NamedTuple):
    """Equal calls of the train split: their tool and arguments, how many, the first and last of their split groups, and where
    the first of them lies."""

    action: str
    arguments: str
    times: int
    first_group: str
    last_group: str
    episode_id: str
    step: int


@dataclass
class _Seen:
    """How often something was seen, and whether in more split groups than one."""

    count: int = 0
    first: str = ""
    last: str = ""

    def add(self, call: Call) -> None:
        self.first = min(self.first, call.first_group) if self.count else call.first_group
        self.last = max(self.last, call.last_group)
        self.count += call.times

    @property
    def shared(self) -> bool:
        return self.first != self.last


@dataclass
class _Key:
    """The values under one key of a tool: its words until they are too many, and its numbers."""

    words: dict[str, _Seen] | None = field(default_factory=dict)
    numbers: _Seen = field(default_factory=_Seen)

    def add(self, key: str, value: object, call: Call) -> None:
        if number(value) is not None:
            self.numbers.add(call)
        text = word(key, value) if isinstance(value, str) else None
        if text is not None and self.words is not None:
            self.words.setdefault(text, _Seen()).add(call)
            if len(self.words) > DISTINCT:
                self.words = None

    @property
    def kept(self) -> frozenset[str]:
        shared = [text for text, seen in (self.words or {}).items() if seen.shared]
        return frozenset(shared if len(shared) <= WORDS else ())


class FittedArguments(NamedTuple):
    """The second level, and rows of `argument_candidates`: the logged calls that stand for each template."""

    space: ArgumentSpace
    candidates: pl.DataFrame


NO_CANDIDATES = pl.DataFrame(schema=CANDIDATES)


def fit_arguments(
    con: duckdb.DuckDBPyConnection,
    groups: pl.DataFrame,
    vocabulary: Vocabulary,
    aliases: Mapping[str, str] | None = None,
    earlier: ArgumentSpace | None = None,
) -> FittedArguments:
    """The second level that the calls of some episodes show. `groups` are these episodes (`episode_id`) with their split
    group (`group_key`): the train split's. Nothing depends on the order of the store's rows.

    What an `earlier` level has stays in its place, and new templates and numbers follow. The words of its templates stay as they are:
    with other words the same call would be of another template.
    """
    known = (earlier or ArgumentSpace()).renamed(aliases or {})
    tools = set(vocabulary.actions) - {RESPOND, CLARIFY, INVALID, OTHER}

    def calls() -> Iterator[Call]:
        return (call for call in _calls(con, groups, aliases or {}) if call.action in tools)

    words, numbers = _fit_words(calls)
    words = {tool: found for tool, found in words.items() if not known.own(tool) - {REST}} | dict(known.words)
    counts = _count_templates(calls, words)
    fresh = (
        ArgumentTemplate(tool, text)
        for tool in sorted(tools, key=vocabulary.id)
        for text in _added(counts.get(tool, {}), known.own(tool))
    )
    numbers = (*known.numbers, *(name for name in numbers if name not in known.numbers))
    space = ArgumentSpace((*known.templates, *fresh), numbers, words)
    return FittedArguments(space, _candidates(calls, space))


def _calls(
    con: duckdb.DuckDBPyConnection, groups: pl.DataFrame, aliases: Mapping[str, str]
) -> Iterator[Call]:
    """Equal calls as one row, a batch at a time: the database holds what does not fit into memory."""
    today = pl.DataFrame(list(aliases.items()), {"old": pl.String, "now": pl.String}, orient="row")
    cursor = con.cursor()
    cursor.register("learnt", groups.select("episode_id", "group_key").to_arrow())
    cursor.register("today", today.to_arrow())
    cursor.execute(
        "SELECT action, arguments, count(*), min(group_key), max(group_key), min(place).episode_id, min(place).step FROM ("
        "SELECT coalesce(t.now, s.action) AS action, s.arguments, g.group_key, "
        "{'episode_id': s.episode_id, 'step': s.step} AS place "
        "FROM steps s JOIN learnt g USING (episode_id) LEFT JOIN today t ON t.old = s.action "
        "WHERE s.kind = 'tool' AND s.action_valid) GROUP BY ALL"
    )
    try:
        while rows := cursor.fetchmany(_BATCH):
            yield from (Call(*row) for row in rows)
    finally:
        cursor.close()


def _fit_words(
    calls: Callable[[], Iterator[Call]],
) -> tuple[dict[str, Mapping[str, frozenset[str]]], tuple[str, ...]]:
    keys: dict[str, dict[str, _Key]] = defaultdict(lambda: defaultdict(_Key))
    for call in calls():
        for key, value in leaves(call.arguments) or ():
            keys[call.action][key].add(key, value, call)
    words: dict[str, Mapping[str, frozenset[str]]] = {
        tool: kept
        for tool, found in sorted(keys.items())
        if (kept := {key: held.kept for key, held in sorted(found.items()) if held.kept})
    }
    numbers = sorted(
        f"{tool}.{key}"
        for tool, found in keys.items()
        for key, held in found.items()
        if held.numbers.count >= NUMBERS and held.numbers.shared
    )
    return words, tuple(numbers)


def _count_templates(
    calls: Callable[[], Iterator[Call]], words: Mapping[str, Mapping[str, frozenset[str]]]
) -> dict[str, dict[str, _Seen]]:
    counts: dict[str, dict[str, _Seen]] = defaultdict(lambda: defaultdict(_Seen))
    for call in calls():
        found = leaves(call.arguments)
        if found is not None:
            counts[call.action][template(found, words.get(call.action, {}))].add(call)
    return counts


def _added(counts: Mapping[str, _Seen], known: frozenset[str]) -> list[str]:
    """The templates that a tool gets besides those known: REST, and the most frequent ones as far as there is room."""
    shared = {text: seen for text, seen in counts.items() if seen.shared and text not in known}
    room = TEMPLATES - len(known - {REST})
    most = sorted(shared, key=lambda text: (-shared[text].count, text))[: max(room, 0)]
    return most if REST in known else [REST, *most]


def _candidates(calls: Callable[[], Iterator[Call]], space: ArgumentSpace) -> pl.DataFrame:
    """The most frequent calls of each template."""
    best: dict[int, list[tuple[int, str, Call]]] = defaultdict(list)
    for call in calls():
        place = space.of(call.action, call.arguments).template
        if place is not None:
            kept = [*best[place], (-call.times, call.arguments, call)]
            best[place] = heapq.nsmallest(EXAMPLES, kept) if len(kept) > EXAMPLES else kept
    rows = [
        (place, call.action, rank, call.times, call.episode_id, call.step)
        for place in sorted(best)
        for rank, (_, _, call) in enumerate(sorted(best[place]))
    ]
    return pl.DataFrame(rows, CANDIDATES, orient="row")
