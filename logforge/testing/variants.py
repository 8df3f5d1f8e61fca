"""Other versions of a log and of an episode: damaged, cut off, or with another future. What the conformance kit feeds."""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from logforge.connectors.records import SQLITE, Source, holds_columns
from logforge.connectors.records import json as jsontext
from logforge.schemas import Episode, Message, Reject, Step

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    7,
    -1,
    1.5,
    10**30,
    "",
    "text",
    "[",
    [],
    {},
    [None],
    [7, "x"],
    {"type": "text"},
    {"role": "tool"},
)
"""What `mutate` puts in place of a value."""

Kind = Literal["lines", "array", "document", "text", "zip", "binary"]


class Shape(NamedTuple):
    """A file taken to pieces: JSON values (lines, array, document), lines of text, or members of an archive."""

    kind: Kind
    pieces: list[Any]
    numbers: tuple[int, ...] = ()
    """Of lines of JSON, which line of the file each is."""

    def index_of(self, line: int) -> int:
        """Which piece a line of the file is."""
        return self.numbers.index(line) if self.kind == "lines" else line - 1

    def data(self) -> bytes:
        """The pieces as a file again."""
        if self.kind == "lines":
            return "".join(_line(piece) for piece in self.pieces).encode("utf-8", "replace")
        if self.kind == "array":
            return b"[" + b",\n".join(json.dumps(piece).encode() for piece in self.pieces) + b"]"
        if self.kind == "document":
            return json.dumps(self.pieces[0], indent=1).encode()
        if self.kind == "zip":
            return _archive(self.pieces)
        return b"".join(self.pieces)


class Raw(str):
    """A line that is no JSON."""


def shape_of(path: Path) -> Shape:
    """Take a file to pieces."""
    data = path.read_bytes()
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(path) as archive:
            return Shape("zip", [(name, archive.read(name)) for name in archive.namelist()])
    if data.startswith(SQLITE) or holds_columns(data):
        return Shape("binary", [data])
    found = list(Source(path, "").records())
    values = [Raw(value.excerpt) if isinstance(value, Reject) else value for _, value in found]
    broken = sum(isinstance(value, Raw) for value in values)
    if not found or broken * 2 > len(found) or (len(found) == 1 and broken):
        return Shape("text", re.findall(rb"[^\n]*\n|[^\n]+", data))
    where = found[-1][0]
    if where.startswith("#"):
        return Shape("document" if where == "#" else "array", values)
    return Shape("lines", values, tuple(int(place.removeprefix(":")) for place, _ in found))


def _line(piece: Any) -> str:
    return (piece if isinstance(piece, Raw) else json.dumps(piece)) + "\n"


def _archive(members: list[tuple[str, bytes]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "x") as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data)
    return file.getvalue()


def mutate(value: Any, chance: random.Random) -> Any:
    """A copy of a JSON value with one thing in it replaced, dropped, doubled or swapped."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(sorted(value))
        if chance.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: mutate(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        index = chance.randrange(len(value))
        how = chance.random()
        if how < 0.1:
            return value[:index] + value[index + 1 :]
        if how < 0.2:
            return [*value[:index], value[index], *value[index:]]
        return [*value[:index], mutate(value[index], chance), *value[index + 1 :]]
    return chance.choice(ODD_VALUES)


def mutant(shape: Shape, chance: random.Random) -> Shape:
    """A shape with a few of its pieces changed; of a long one a window of it."""
    pieces = _window(shape, chance)
    for _ in range(chance.randrange(1, 6)):
        if pieces:
            index = chance.randrange(len(pieces))
            pieces[index : index + 1] = _other_piece(shape.kind, pieces[index], chance)
    return Shape(shape.kind, pieces)


def _window(shape: Shape, chance: random.Random) -> list[Any]:
    size = {"lines": 8, "array": 8, "text": 60}.get(shape.kind, len(shape.pieces))
    start = chance.randrange(max(1, len(shape.pieces) - size))
    header = shape.pieces[:1] if shape.kind == "text" and start else []
    return header + shape.pieces[start : start + size]


def _other_piece(kind: Kind, piece: Any, chance: random.Random) -> list[Any]:
    if kind == "zip":
        name, data = piece
        try:
            return [(name, json.dumps(mutate(json.loads(data), chance)).encode())]
        except ValueError:
            return []
    if kind in ("text", "binary"):
        how = chance.randrange(4)
        cut = chance.randrange(len(piece) + 1)
        return [[], [piece, piece], [piece[:cut]], [piece[:cut], b"\n", piece[cut:]]][how]
    return [mutate(piece, chance)]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, and what follows some place cut off."""
    content = bytearray(data)
    for _ in range(chance.randrange(4)):
        if content:
            content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content[: chance.randrange(len(content) + 1)])


class Torn(NamedTuple):
    """A file cut off inside a piece, and the file as it would be without that piece."""

    torn: bytes
    whole: bytes
    broken: bool
    """The last piece is no JSON any more."""


def torn(shape: Shape, chance: random.Random, count: int) -> Iterator[Torn]:
    """Lines and arrays that end inside one of their pieces, the first one apart."""
    if shape.kind not in ("lines", "array") or len(shape.pieces) < 2:
        return
    for _ in range(count):
        index = chance.randrange(1, len(shape.pieces))
        piece = _line(shape.pieces[index]).rstrip("\n").encode("utf-8", "replace")
        part = piece[: chance.randrange(1, len(piece) + 1)]
        whole = Shape(shape.kind, shape.pieces[:index]).data()
        before = whole if shape.kind == "lines" else whole[:-1] + b",\n"
        yield Torn(before + part, whole, not _is_json(part))


def _is_json(data: bytes) -> bool:
    try:
        jsontext.loads(data)
        return True
    except jsontext.NotJson:
        return False


class _Element(NamedTuple):
    """An element of a list in a file: the way to the list, and its index. A line is an element of the file itself."""

    way: tuple[str, ...]
    place: int


def stops_before(shape: Shape, episode: Episode, position: int) -> Shape | None:
    """The file as it was before a message of an episode: the lists that hold its messages stop there.

    The messages' locators tell which lists these are. None where they do not, or where what came before lies behind.
    """
    elements = _elements(episode)
    ends: dict[tuple[str, ...], int] = {}
    for number, element in enumerate(elements):
        if element is not None and number >= position:
            ends[element.way] = min(element.place, ends.get(element.way, element.place))
    earlier = [element for element in elements[:position] if element is not None]
    if None in elements[position:] or any(e.place >= ends.get(e.way, e.place + 1) for e in earlier):
        return None
    try:
        return _without_tails(shape, ends) if ends else None
    except (LookupError, TypeError, ValueError):
        return None


def _elements(episode: Episode) -> list[_Element | None]:
    """Of each message, the outermost element that is not the same for all of them."""
    ways = [_way(message.locator) for message in episode.messages]
    shared = 0
    while all(len(way) > shared and way[shared] == ways[0][shared] for way in ways):
        shared += 1
    found: list[_Element | None] = []
    for way in ways:
        depth = next((i for i in range(shared, len(way)) if way[i].isdigit()), None)
        found.append(None if depth is None else _Element(way[:depth], int(way[depth])))
    return found


_PLACE = re.compile(r"[^#!:]*(?:!(?P<member>[^#:]+))?(?::(?P<line>\d+))?(?P<pointers>.*)", re.DOTALL)


def _way(locator: str) -> tuple[str, ...]:
    """A locator as keys and indices: `!member`, the line, then the pointers (`#` where JSON lies in text)."""
    place = _PLACE.fullmatch(locator)
    if place is None:
        return ()
    start = [f"!{place['member']}"] if place["member"] else [place["line"]] if place["line"] else []
    pointers = place["pointers"].split("#")[1:]
    tokens = [token for pointer in pointers for token in [*pointer.split("/")[1:], "#"]]
    return (*start, *(token.replace("~1", "/").replace("~0", "~") for token in tokens[:-1]))


def _without_tails(shape: Shape, ends: dict[tuple[str, ...], int]) -> Shape:
    pieces = list(shape.pieces)
    for way, end in ends.items():
        if not way and shape.kind in ("lines", "text"):
            pieces = pieces[: shape.index_of(end)]
        elif shape.kind == "lines":
            index = shape.index_of(int(way[0]))
            pieces[index] = _cut_list(pieces[index], way[1:], end)
        elif shape.kind == "zip":
            index = next(i for i, (name, _) in enumerate(pieces) if f"!{name}" == way[0])
            name, data = pieces[index]
            pieces[index] = (name, json.dumps(_cut_list(json.loads(data), way[1:], end)).encode())
        elif shape.kind == "array":
            pieces = _cut_list(pieces, way, end)
        elif shape.kind == "document":
            pieces = [_cut_list(pieces[0], way, end)]
    return Shape(shape.kind, pieces, shape.numbers)


def _cut_list(value: Any, way: tuple[str, ...], end: int) -> Any:
    if not way:
        return value[:end]
    if way[0] == "#":
        return json.dumps(_cut_list(json.loads(value), way[1:], end))
    if isinstance(value, list):
        index = int(way[0])
        return [*value[:index], _cut_list(value[index], way[1:], end), *value[index + 1 :]]
    return value | {way[0]: _cut_list(value[way[0]], way[1:], end)}


# --- other futures of an episode ------------------------------------------------------------------------------------

_replace: Callable[..., Any] = msgspec.structs.replace
_TIME = 1_700_000_000_000_000


def with_another_future(
    episode: Episode, index: int, chance: random.Random, actions: tuple[str, ...] = ("other",)
) -> Episode:
    """The same up to decision `index` and different wherever it may be: this step and its text, all that follows,
    results that come later, and everything that is said of the episode as a whole."""
    cut = _cut(episode.steps, index)
    past = [m for m in episode.messages if m.position < cut]
    later = [
        _other_message(m, chance) for m in episode.messages if m.position >= cut and chance.random() < 0.7
    ]
    extra = [Message(0, chance.choice(["user", "tool"]), "added", "y", thought="added", created_at=_TIME + 5)]
    messages = past + [_replace(m, position=cut + i) for i, m in enumerate(later + extra)]
    before = [_unresolved(step, cut, chance) for step in episode.steps[:index]]
    after = [_other_step(step, chance, actions) for step in episode.steps[index:] if chance.random() < 0.7]
    after = [_replace(step, tools=chance.choice([None, [], list(actions)])) for step in after]
    same_group = episode.steps[index].parallel_group
    first = _replace(_other_step(episode.steps[index], chance, actions), parallel_group=same_group)
    steps = [_replace(step, step=i) for i, step in enumerate([*before, first, *after])]
    other: Episode = _replace(
        episode,
        messages=messages,
        steps=steps,
        ending="truncated",
        ending_reason="other",
        success=chance.choice([True, False, None]),
        score=chance.random(),
        reference="other",
        metadata='{"other":1}',
        started_at=_TIME - 10**9,
        ended_at=_TIME + 10**12,
        records=99,
        policy_id="other",
        model="other",
        temperature=9.0,
    )
    return other


def _cut(steps: list[Step], index: int) -> int:
    group = steps[index].parallel_group
    return min(
        s.position
        for s in steps[: index + 1]
        if s is steps[index] or (group is not None and s.parallel_group == group)
    )


def _other_message(message: Message, chance: random.Random) -> Any:
    text = f"other {chance.random()}"
    return _replace(message, content=text, thought="other", created_at=_TIME + chance.randrange(10**9))


def _other_step(step: Step, chance: random.Random, actions: tuple[str, ...]) -> Any:
    return _replace(
        step,
        action=chance.choice(actions),
        kind="tool",
        arguments='{"other":1}',
        action_valid=chance.random() < 0.5,
        result="other",
        result_status=chance.choice(["ok", "error", "timeout"]),
        error_class="other",
        result_position=step.position + 1,
        latency_s=9.0,
        logged_reward=9.0,
        parallel_group=None,
    )


def _unresolved(step: Step, cut: int, chance: random.Random) -> Any:
    """An earlier step; if its result is not known at the cut, it turns out differently. It keeps name and arguments."""
    if step.result_position is not None and step.result_position < cut:
        return step
    told = chance.random() < 0.5
    return _replace(
        step,
        action_valid=chance.random() < 0.5,
        result="other",
        result_status="error" if told else "missing",
        error_class="other" if told else None,
        result_position=cut + 1 if told else None,
        logged_reward=5.0,
    )
