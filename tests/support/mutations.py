"""Damaged logs, each made anew from (shape, number) alone: wrong types, odd numbers, deep nesting, other keys, torn bytes.

Most changes are made to the parsed values of a fixture, because a reader gets further with a file that is still JSON (or
CSV, Parquet, a zip archive) than with one whose bytes are damaged; the others are made to its bytes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from support.mutated_bytes import BYTES
from support.odd_values import BROKEN, LONG, NUMBERS, ODD, TEXTS, encode, nested, text_of
from support.written_files import written

Path = tuple[Any, ...]
_decode = msgspec.json.decode


class _Drop:
    """In place of a value: take it out."""


DROP = _Drop()


@dataclass(frozen=True)
class Seed:
    """A fixture taken to pieces: JSON values (`lines`, `array`, `document`; `csv` and `parquet` of rows), pairs of name and
    value (`zip`), or lines of text."""

    name: str
    kind: str
    pieces: tuple[Any, ...]

    @cached_property
    def spots(self) -> list[list[Path]]:
        """The paths to every value, those that differ in list indices only together."""
        found: dict[Path, list[Path]] = {}
        for index, piece in enumerate(self.pieces):
            for path in _paths(piece, (index,)):
                alike = tuple("*" if isinstance(key, int) else key for key in path)
                found.setdefault(alike, []).append(path)
        return list(found.values())


def _paths(value: Any, path: Path) -> Iterator[Path]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _paths(below, (*path, key))


@dataclass(frozen=True)
class Vocabulary:
    """What the fixtures of a shape are made of: values by their key, which other places then get."""

    seeds: list[Seed]
    by_key: dict[str, list[Any]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for seed in self.seeds:
            for path in [path for alike in seed.spots for path in alike[:20]]:
                if isinstance(path[-1], str):
                    self.by_key.setdefault(path[-1], []).append(at(seed.pieces, path))
        self.keys.extend(sorted(self.by_key))
        self.by_key.setdefault("", [None])

    def value(self, chance: random.Random, key: Any = None) -> Any:
        """A value of some fixture, from the same key when there is one."""
        name = key if key in self.by_key and chance.random() < 0.6 else chance.choice(self.keys or [""])
        return chance.choice(self.by_key[name])

    def key(self, chance: random.Random) -> str:
        """A key that some fixture has, or an odd one."""
        if not self.keys or chance.random() < 0.1:
            return chance.choice(("", "\x00", "a/b~", "type", "role", "content", "Ключ", "__class__", "0"))
        return chance.choice(self.keys)


def at(value: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        value = value[key]
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """A copy with another value at a path; the copy shares everything else."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        if not rest and new is DROP:
            return {k: v for k, v in value.items() if k != key}
        return {k: put(v, rest, new) if k == key else v for k, v in value.items()}
    if not rest and new is DROP:
        return [*value[:key], *value[key + 1 :]]
    return [*value[:key], put(value[key], rest, new), *value[key + 1 :]]


# --- changes of values ---------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A value that is to be changed, and where it stands."""

    value: Any
    key: Any
    chance: random.Random
    words: Vocabulary


def other_type(place: Place) -> Any:
    chance = place.chance
    return chance.choice(
        [
            v
            for v in (
                None,
                chance.random() < 0.5,
                chance.choice(NUMBERS),
                chance.choice(TEXTS),
                chance.choice(ODD),
                [place.value],
                {"a": place.value},
            )
            if type(v) is not type(place.value)
        ]
    )


def number(place: Place) -> Any:
    return place.chance.choice(NUMBERS)


def text(place: Place) -> Any:
    return place.chance.choice(TEXTS)


def broken(place: Place) -> Any:
    return place.chance.choice(BROKEN)


def odd(place: Place) -> Any:
    return place.chance.choice(ODD)


def drop(place: Place) -> Any:
    return DROP


def crossed(place: Place) -> Any:
    return place.words.value(place.chance, place.key)


def deep(place: Place) -> Any:
    depth = place.chance.choice((10, 60, 100, 190, 300, 500, 900, 990, 1100, 3000, 10_000))
    return nested(depth, place.chance.randrange(3), place.chance.choice(("1", "null", '"x"', "")))


def listed(place: Place) -> Any:
    return [place.value] * place.chance.choice((1, 2, 3))


def as_text(place: Place) -> Any:
    return text_of(place.value)


def long(place: Place) -> Any:
    chance = place.chance
    size = 1_000_000 if chance.random() < 0.03 else chance.choice((1_000, 10_000, 40_000))
    unit = chance.choice(LONG)
    return unit * (size // len(unit))


def renamed_key(place: Place) -> Any:
    key, new = place.chance.choice([*place.value]), place.words.key(place.chance)
    return {new if k == key else k: v for k, v in place.value.items()}


def swapped_keys(place: Place) -> Any:
    keys = [*place.value]
    values = [*place.value.values()]
    place.chance.shuffle(values)
    return dict(zip(keys, values, strict=True))


def added_key(place: Place) -> Any:
    key = place.words.key(place.chance)
    return place.value | {key: place.words.value(place.chance, key)}


def doubled_key(place: Place) -> Any:
    key = place.chance.choice([*place.value])
    other = encode(key) + b":" + encode(place.chance.choice([other_type, text, crossed])(place))
    whole = encode(place.value)
    return msgspec.Raw(whole[:-1] + b"," + other + b"}")


def emptied(place: Place) -> Any:
    return type(place.value)()


def keyless(place: Place) -> Any:
    return [*place.value.values()]


def reversed_list(place: Place) -> Any:
    return place.value[::-1]


def shuffled(place: Place) -> Any:
    return place.chance.sample(place.value, len(place.value))


def repeated(place: Place) -> Any:
    index = place.chance.randrange(len(place.value))
    times = place.chance.choice((1, 1, 1, 5, 40))
    return [*place.value[:index], *[place.value[index]] * times, *place.value[index:]]


def inserted(place: Place) -> Any:
    index = place.chance.randrange(len(place.value) + 1)
    new = place.chance.choice((odd, number, text, crossed))(place)
    return [*place.value[:index], new, *place.value[index:]]


def keyed(place: Place) -> Any:
    return {str(index): item for index, item in enumerate(place.value)}


def one_inside(place: Place) -> Any:
    """Of JSON inside text, something inside it."""
    try:
        inner = _decode(place.value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text(place)
    path = place.chance.choice([*_paths(inner, ())])
    return text_of(changed(inner, path, place.chance, place.words)[0])


def slipped(place: Place) -> Any:
    """A text that is cut, grown or has lost a character."""
    value, chance = place.value, place.chance
    one, two = sorted((chance.randrange(len(value) + 1), chance.randrange(len(value) + 1)))
    marks = [m.start() for m in re.finditer(r"[\"'{}\[\]():,<>\n`]", value[:5000])]
    how = chance.randrange(6)
    if how == 0:
        return value[:one]
    if how == 1:
        return value[:one] + value[two:]
    if how == 2:
        return value[:one] + chance.choice(TEXTS) + value[one:]
    if how == 3:
        return value[:two] + value[one:two] * chance.choice((1, 20)) + value[two:]
    if how == 4 and marks:
        mark = chance.choice(marks)
        return value[:mark] + value[mark + 1 :]
    return value.replace(
        *chance.choice(
            ((" ", ""), ("\n", " "), ('"', "'"), ("'", '"'), (":", ""), ("\\", ""), ("\n", "\r\n"))
        )
    )


Change = Callable[[Place], Any]
ANY: list[Change] = [other_type, other_type, number, text, odd, drop, drop, crossed, crossed, crossed, deep, listed, as_text, long]  # fmt: skip
OBJECT: list[Change] = [renamed_key, swapped_keys, added_key, added_key, doubled_key, keyless]
LIST: list[Change] = [emptied, reversed_list, shuffled, repeated, repeated, keyed]


def changed(value: Any, path: Path, chance: random.Random, words: Vocabulary) -> tuple[Any, str]:
    """A copy with the value at a path changed, and what was done to it."""
    here = at(value, path)
    choices = ANY
    if isinstance(here, dict) and here:
        choices = [*OBJECT, *ANY, emptied] if chance.random() < 0.5 else OBJECT
    elif isinstance(here, list):
        choices = [*(LIST if here else []), inserted, inserted] + (ANY if chance.random() < 0.4 else [])
    elif isinstance(here, str) and here:
        choices = [*ANY, slipped, slipped, slipped, *([one_inside] * 8 if here[:1] in "{[" else [])]
    change = chance.choice(choices)
    if chance.random() < 0.01:
        change = broken
    new = change(Place(here, path[-1] if path else None, chance, words))
    if not path and new is DROP:
        new = None
    return put(value, path, new), f"{change.__name__} at /{'/'.join(map(str, path))}"


# --- inputs -----------------------------------------------------------------------------------------------------------


class Input(NamedTuple):
    """A damaged log: its file name, bytes, what was done, and whether it is certainly still JSON (a table, an archive)."""

    name: str
    data: bytes
    notes: tuple[str, ...]
    whole: bool


def input_of(shape: str, number: int, words: Vocabulary) -> Input:
    """Damaged input number so and so of a shape, the same each time."""
    chance = random.Random(f"{shape} {number}")
    seed = chance.choice(words.seeds)
    pieces, kind = [*seed.pieces], _kind(seed.kind, chance)
    notes = [f"{seed.name} as {kind}"]
    how = chance.random()
    if how < 0.9:
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 6))):
            pieces, note = _one_change(seed, pieces, chance, words)
            notes.append(note)
    data = written(kind, pieces, chance)
    whole = how < 0.8
    if not whole:
        for _ in range(chance.choice((1, 1, 2, 4))):
            change = chance.choice(BYTES)
            data = change(data, chance)
            notes.append(change.__name__)
    odd_json = any(note.startswith(("broken", "deep")) for note in notes) or b"0" * 4000 in data
    return Input(seed.name, data, tuple(notes), whole and not odd_json)


def _kind(kind: str, chance: random.Random) -> str:
    """How the pieces are written: now and then a record stands in a list, a list in lines."""
    if kind in ("lines", "array", "document") and chance.random() < 0.08:
        return chance.choice(("lines", "array"))
    return kind


def _one_change(
    seed: Seed, pieces: list[Any], chance: random.Random, words: Vocabulary
) -> tuple[list[Any], str]:
    if seed.kind == "text":
        change = chance.choice(LINES)
        return change(pieces, chance, words), change.__name__
    if len(pieces) > 1 and chance.random() < 0.12:
        place = Place(pieces, None, chance, words)
        change = chance.choice(
            [reversed_list, shuffled, repeated, inserted] if seed.kind != "zip" else [reversed_list, repeated]
        )
        return change(place), f"{change.__name__} of all"
    for _ in range(20):
        path = chance.choice(chance.choice(seed.spots))
        if seed.kind == "zip" and len(path) == 1:
            continue
        try:
            return changed(pieces, path, chance, words)
        except (LookupError, TypeError, AttributeError):
            continue  # an earlier change took it away
    return pieces, "nothing"


# --- changes of lines ---------------------------------------------------------------------------------------------


def _line_dropped(lines: list[Any], chance: random.Random, words: Vocabulary) -> list[Any]:
    index = chance.randrange(len(lines) + 1)
    return lines[:index] + lines[index + chance.choice((1, 1, 5)) :]


def _line_doubled(lines: list[Any], chance: random.Random, words: Vocabulary) -> list[Any]:
    index = chance.randrange(len(lines) + 1)
    return lines[:index] + lines[index : index + 3] * chance.choice((1, 30)) + lines[index:]


def _line_moved(lines: list[Any], chance: random.Random, words: Vocabulary) -> list[Any]:
    return chance.sample(lines, len(lines)) if chance.random() < 0.2 else lines[::-1]


def _line_crossed(lines: list[Any], chance: random.Random, words: Vocabulary) -> list[Any]:
    other = chance.choice(words.seeds).pieces
    index = chance.randrange(len(lines) + 1)
    return [
        *lines[:index],
        *(piece for piece in other[chance.randrange(len(other)) :][:20] if isinstance(piece, str)),
        *lines[index:],
    ]


def _line_slipped(lines: list[Any], chance: random.Random, words: Vocabulary) -> list[Any]:
    if not lines:
        return lines
    index = chance.randrange(len(lines))
    change = chance.choice((slipped, slipped, slipped, text, long, one_inside))
    return [*lines[:index], str(change(Place(lines[index], None, chance, words))), *lines[index + 1 :]]


LINES = (
    _line_dropped,
    _line_doubled,
    _line_moved,
    _line_crossed,
    _line_slipped,
    _line_slipped,
    _line_slipped,
)
