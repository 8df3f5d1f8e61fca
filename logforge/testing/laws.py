"""The laws of the conformance kit: each looks at one file of a connector's and tells what breaks it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from logforge.connectors import registry
from logforge.connectors.episodes import TOOL_PREFIX
from logforge.connectors.records import Connector, NeedsWhole, Source, Span, TakesCompanions, look
from logforge.dataset.actions import ActionSpace, seen_in
from logforge.dataset.states import State, StateBuilder, StateConfig
from logforge.lineage import holds, resolve, texts_at
from logforge.schemas import Episode, Reading, Reject, Step
from logforge.testing.soundness import counted, episodes_in, mispaired, unsound
from logforge.testing.variants import (
    Shape,
    damaged,
    mutant,
    shape_of,
    stops_before,
    torn,
    with_another_future,
)

LABEL = "log"
"""The name that files have while they are read."""
EMPTY = (b"", b"\n \n", b"[]", b"[\n", b"{", b"null", b"\x00\xff", b"[" * 5000, b'{"a":' * 5000)
"""Files with nothing in them."""

COUNTABLE = ("lines", "array", "document")
"""Shapes whose records can be counted also when some of their values are wrong."""

CountRecords = Callable[[Path], int]


@dataclass
class Case:
    """A file of a connector's, and what a law needs to look at it."""

    connector: Connector
    path: Path
    folder: Path
    examples: int = 20
    seed: int = 0
    count_records: CountRecords | None = None
    foreign: tuple[Path, ...] = ()
    _made: int = field(default=0)

    @cached_property
    def companions(self) -> tuple[Path, ...]:
        """The further files of the source."""
        return companions_of(self.connector, self.path)

    @cached_property
    def readings(self) -> list[Reading]:
        """What the connector makes of the file."""
        return self.read(self.path, self.companions)

    @cached_property
    def shape(self) -> Shape:
        """The file taken to pieces."""
        return shape_of(self.path)

    @property
    def episodes(self) -> list[Episode]:
        """The episodes among the readings."""
        return episodes_in(self.readings)

    def chance(self) -> random.Random:
        """Chance that is the same for each run on this file."""
        return random.Random(f"{self.seed} {self.path.name}")

    def read(
        self, path: Path, companions: tuple[Path, ...] = (), label: str = LABEL, span: Span | None = None
    ) -> list[Reading]:
        """Read a file with the connector, or some lines of it."""
        return list(self.connector.read(Source(path, label, companions, span=span)))

    def variant(self, data: bytes) -> Path:
        """A file of other content with the same name in a folder of the same name."""
        self._made += 1
        path = self.folder / str(self._made) / self.path.parent.name / self.path.name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return path

    def read_as(self, data: bytes) -> list[Reading]:
        """Read other content in the file's place, without companions."""
        path = self.variant(data)
        readings = self.read(path)
        path.unlink()
        return readings


def companions_of(connector: Connector, path: Path) -> tuple[Path, ...]:
    """The further files that a connector reads together with this one."""
    if not isinstance(connector, TakesCompanions):
        return ()
    return tuple(sorted(other for other in connector.companions(path) if other.is_file() and other != path))


def count_json_records(path: Path) -> int:
    """Lines of a JSON-lines file, elements of an array, or one document: for connectors whose records are these."""
    return sum(1 for _ in Source(path, LABEL).records())


def conservation(case: Case) -> Iterator[str]:
    """Every record is accounted for exactly once."""
    number = counted(case.readings)
    if number < 1 and case.path.read_bytes().strip():
        yield "the file is not empty, and nothing in it is accounted for"
    if case.count_records is not None and number != (wanted := case.count_records(case.path)):
        yield f"{number} records are accounted for, the file holds {wanted}"


def soundness(case: Case) -> Iterator[str]:
    """Everything yielded is well-formed: types, positions, canonical arguments, results, parts of episodes that are there."""
    yield from unsound(case.readings)


def determinism(case: Case) -> Iterator[str]:
    """The same file gives the same readings, wherever it lies and whatever it is called while it is read."""
    if case.read(case.path, case.companions) != case.readings:
        yield "a second reading differs"
    if case.companions:
        return
    moved = case.read_as(case.path.read_bytes())
    if moved != case.readings:
        yield "the same bytes in another folder give other readings"
    renamed = episodes_in(case.read(case.path, label="another/name"))
    if [e.episode_id for e in renamed] != [e.episode_id for e in case.episodes]:
        yield "episode ids depend on the label (the path) of the file"


def locators(case: Case) -> Iterator[str]:
    """Every locator leads back to the bytes that the text, the call or the result came from."""
    if case.companions:
        return
    for item in case.readings:
        if isinstance(item, Episode):
            yield from _lost(case, item.locator, lambda value: True, "the episode")
            yield from _locators_of(case, item)
        elif isinstance(item, Reject):
            yield from _lost(case, item.locator, lambda value: True, f"a reject ({item.rule})")


def _locators_of(case: Case, episode: Episode) -> Iterator[str]:
    for message in episode.messages:
        text = message.content
        meets = partial(_shows, text or "", message.locator)
        yield from _lost(case, message.locator, meets, f"{message.role} message {(text or '')[:60]!r}")
    for step in episode.steps:
        if step.kind == "tool":
            yield from _lost(case, step.locator, partial(_tells, case, step), f"call of {step.action}")
        if step.result and step.result_locator is not None:
            meets = partial(_answers, step.result, step.result_locator)
            yield from _lost(case, step.result_locator, meets, f"result of {step.action}")


def _shows(text: str, locator: str, value: Any) -> bool:
    return not text or holds(value, text, _is_plain(locator))


def _answers(text: str, locator: str, value: Any) -> bool:
    if text in texts_at(value) or (_is_plain(locator) and holds(value, text, True)):
        return True
    if isinstance(value, str) and text in value:
        return True  # a piece of a text that several turns and answers share
    # a result that the log holds in several messages has the place of the first
    return any(found and text.startswith(f"{found}\n") for found in texts_at(value))


def _lost(case: Case, locator: str, meets: Callable[[Any], bool], what: str) -> Iterator[str]:
    try:
        value = resolve(case.path, locator, LABEL)
    except (LookupError, KeyError, OSError) as error:
        yield f"{what}: {error}"
        return
    if not meets(value):
        yield f"{what} is not found at {locator}: {str(value)[:80]!r}"


def _words(value: Any) -> Iterator[str]:
    """Every text and number in a value, keys too."""
    if isinstance(value, dict):
        yield from value
    elif not isinstance(value, list):
        yield str(value)
        return
    for inner in value.values() if isinstance(value, dict) else value:
        yield from _words(inner)


def _is_plain(locator: str) -> bool:
    return "#" not in locator and "!" not in locator


def _block(case: Case, locator: str, value: Any) -> Any:
    """Of a plain text file, the line with those below it: a call may stand on several."""
    if not isinstance(value, str) or not _is_plain(locator):
        return value
    number = int(locator.rpartition(":")[2])
    return b"\n".join(case.path.read_bytes().split(b"\n")[number - 1 : number + 9]).decode("utf-8", "replace")


def _tells(case: Case, step: Step, value: Any) -> bool:
    """A place names the action, or holds the text that its arguments are."""
    value = _block(case, step.locator, value)
    text = value if isinstance(value, str) else "\n".join(_words(value))
    name = step.action.removeprefix(TOOL_PREFIX)
    if name in text or json.dumps(name)[1:-1] in text:
        return True
    given = json.loads(step.arguments) if step.arguments_status != "invalid" else {}
    texts = [inner for inner in given.values() if isinstance(inner, str)] if isinstance(given, dict) else []
    return any(inner and (inner in text or text.strip() in inner) for inner in texts)


def pairing(case: Case) -> Iterator[str]:
    """A result belongs to the nearest preceding unanswered call of its id, also when ids repeat."""
    for episode in case.episodes:
        yield from mispaired(episode)
    ids = {
        s.tool_call_id for e in case.episodes for s in e.steps if s.tool_call_id and len(s.tool_call_id) > 3
    }
    if not ids or case.shape.kind in ("zip", "binary"):
        return
    data = case.path.read_bytes()
    for name in sorted(ids, key=len, reverse=True):
        data = data.replace(name.encode(), b"the-one-id")
    readings = case.read_as(data)
    yield from (f"when all call ids are equal: {what}" for what in unsound(readings))
    for episode in episodes_in(readings):
        yield from (f"when all call ids are equal: {what}" for what in mispaired(episode))


def no_future(case: Case) -> Iterator[str]:
    """A state is a function of what was known before the decision: neither a changed nor a missing future shows in it."""
    builder = _state_builder(case.episodes)
    tools = tuple(sorted({step.action for episode in case.episodes for step in episode.steps})) or ("other",)
    chance = case.chance()
    for episode in chance.sample(case.episodes, min(4, len(case.episodes))):
        states = builder.symbols(episode)
        for index in range(len(episode.steps)):
            other = builder.symbols(with_another_future(episode, index, chance, tools))
            if other[index] != states[index]:
                yield f"{episode.locator}: the state of step {index} changes with what follows it"
    if not case.companions:
        yield from _shorter_logs(case, builder, chance)


def _shorter_logs(case: Case, builder: StateBuilder, chance: random.Random) -> Iterator[str]:
    whole = {episode.episode_id: builder.symbols(episode) for episode in case.episodes}
    starts = _starts(case.episodes)
    said = {e.episode_id: {message.locator for message in e.messages} for e in case.episodes}
    for cut, data in _earlier(case, chance):
        for episode in episodes_in(case.read_as(data)):
            start = starts.get((episode.native_id, episode.session_id, episode.locator), "")
            name = episode.episode_id if episode.episode_id in whole else start
            full = whole.get(name)
            if full is None or len(episode.steps) >= len(full):
                continue
            if name != cut and said[name] & said[cut]:
                continue  # another branch of the same tree has lost messages from its middle: no earlier log of it
            for step, mine, theirs in zip(episode.steps, builder.symbols(episode), full, strict=False):
                # A turn that the cut went through is not whole: what its first calls were, its later ones may not know.
                in_torn_turn = step.position == len(episode.messages) - 1 and bool(mine.group)
                if mine != theirs and not in_torn_turn:
                    yield f"{episode.locator}: the state of step {step.step} differs when the log stops after it: {_difference(mine, theirs)}"


def _earlier(case: Case, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """The file as it was earlier: before some messages of some episodes (by their ids)."""
    for episode in chance.sample(case.episodes, min(4, len(case.episodes))):
        positions = range(2, len(episode.messages))
        for position in chance.sample(positions, min(6, len(positions))):
            if (shape := stops_before(case.shape, episode, position)) is not None:
                yield episode.episode_id, shape.data()


def _starts(episodes: list[Episode]) -> dict[tuple[str | None, ...], str]:
    """What tells episodes apart even when the log was cut (an id may be a hash of the whole record)."""
    starts = [(e.native_id, e.session_id, e.locator) for e in episodes]
    found = Counter(starts)
    return {s: e.episode_id for s, e in zip(starts, episodes, strict=True) if found[s] == 1}


def _difference(mine: State, theirs: State) -> str:
    names = [name for name in State.__struct_fields__ if getattr(mine, name) != getattr(theirs, name)]
    return ", ".join(f"{name} is {str(getattr(mine, name))[:80]}" for name in names)


def _state_builder(episodes: Sequence[Episode]) -> StateBuilder:
    return StateBuilder(StateConfig(), ActionSpace.build(map(seen_in, episodes)), 8)


def bad_neighbour(case: Case) -> Iterator[str]:
    """A damaged line or element between others is set aside alone."""
    pieces = case.shape.pieces
    if case.shape.kind not in ("lines", "array") or len(pieces) < 2 or case.companions:
        return
    index = case.chance().randrange(1, len(pieces))
    plain = case.read_as(case.shape.data())
    if case.shape.kind == "lines":
        lines = [Shape("lines", [piece]).data() for piece in pieces]
        data = b"".join([*lines[:index], b'{"cut off": [\n', *lines[index:]])
    else:
        data = Shape("array", [*pieces[:index], 7, *pieces[index:]]).data()
    readings = case.read_as(data)
    if counted(readings) != counted(plain) + 1:
        yield f"with a damaged piece more, {counted(readings)} records are accounted for instead of {counted(plain) + 1}"
    if [_told(e) for e in episodes_in(readings)] != [_told(e) for e in episodes_in(plain)]:
        yield "a damaged piece changes the episodes around it"


def _told(episode: Episode) -> tuple[Any, ...]:
    """What an episode tells, wherever it lies."""
    messages = [(m.role, m.content, m.thought) for m in episode.messages]
    return messages, [(s.action, s.arguments, s.result, s.result_position) for s in episode.steps]


def torn_tail(case: Case) -> Iterator[str]:
    """A file that is cut off anywhere is read up to there: it raises nothing, and what is whole stays."""
    chance = case.chance()
    data = case.path.read_bytes()
    for _ in range(case.examples):
        part = data[: chance.randrange(len(data) + 1)]
        readings = case.read_as(part)
        yield from (f"cut off at byte {len(part)}: {what}" for what in unsound(readings))
    for cut in torn(case.shape, chance, case.examples // 2):
        if not cut.broken:
            continue
        readings, whole = case.read_as(cut.torn), case.read_as(cut.whole)
        if counted(readings) != counted(whole) + 1:
            yield f"cut off at byte {len(cut.torn)}: {counted(readings)} records instead of {counted(whole)} and the torn one"
        texts = [_texts(episode) for episode in episodes_in(readings)]
        for episode in episodes_in(whole):
            mine = _texts(episode)
            if not any(other[: len(mine)] == mine for other in texts):
                yield f"cut off at byte {len(cut.torn)}: the messages of {episode.locator}, which are whole, are gone"


def _texts(episode: Episode) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in episode.messages]


def parts(case: Case) -> Iterator[str]:
    """Lines that are read in parts give what they give when read at once, if the connector says so (`splittable`)."""
    if not getattr(case.connector, "splittable", False) or case.shape.kind != "lines":
        return
    chance = case.chance()
    data = case.shape.data() * 2
    for number in range(case.examples):
        path = case.variant(damaged(data, chance) if number else data)
        if Source(path, LABEL).is_lines():
            spans = _some_spans(path.read_bytes(), chance)
            try:
                readings = [reading for span in spans for reading in case.read(path, span=span)]
            except NeedsWhole:
                continue
            if readings != case.read(path):
                yield f"read in the parts {spans}, {path.read_bytes()[:200]!r} gives other readings than read at once"
        path.unlink()


def _some_spans(data: bytes, chance: random.Random) -> list[Span]:
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    cuts = sorted({0, len(data), *chance.sample(ends, min(len(ends), 3))})
    return [Span(begin, end, data.count(b"\n", 0, begin) + 1) for begin, end in pairwise(cuts)]


def damage(case: Case) -> Iterator[str]:
    """Whatever values and bytes are wrong, nothing raises and what is yielded is sound."""
    chance = case.chance()
    data = case.path.read_bytes()
    for number in range(case.examples * 2):
        other = mutant(case.shape, chance).data() if number % 2 else damaged(data, chance)
        path = case.variant(other)
        try:
            readings = case.read(path)
        except Exception as error:
            yield f"raises {type(error).__name__}: {error} on {other[:200]!r}"
            continue
        yield from (f"in damaged input: {what}" for what in unsound(readings))
        count = case.count_records if number % 2 and case.shape.kind in COUNTABLE else None
        if count is not None and counted(readings) != (wanted := count(path)):
            yield f"damaged input of {wanted} records counts {counted(readings)}"
        path.unlink()
    for content in EMPTY:
        readings = case.read_as(content)
        if episodes_in(readings) or counted(readings) > 1:
            yield f"{content[:20]!r} gives {len(episodes_in(readings))} episodes, {counted(readings)} records"


def sniffing(case: Case) -> Iterator[str]:
    """The connector claims its files surer than any other does, no file of others, and never raises at a head."""
    head = look(case.path)
    mine = case.connector.sniff(head)
    if not 0 < mine <= 1 or case.connector.sniff(look(case.path)) != mine:
        yield f"its confidence is {mine}, and must be the same number above 0 up to 1 each time"
    for name, other in registry().items():
        if name != case.connector.name and (theirs := other.sniff(head)) >= mine:
            yield f"{name} claims the file with {theirs}, this connector with {mine}"
    for path in case.foreign:
        if claim := case.connector.sniff(look(path)):
            yield f"claims {path.parent.name}/{path.name}, a file of another format, with {claim}"
    chance = case.chance()
    data = case.path.read_bytes()
    for _ in range(case.examples):
        path = case.variant(damaged(data, chance))
        if not 0 <= (claim := case.connector.sniff(look(path))) <= 1:
            yield f"its confidence in a damaged file is {claim}"
        path.unlink()


Law = Callable[[Case], Iterator[str]]

LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        conservation,
        soundness,
        determinism,
        locators,
        pairing,
        no_future,
        bad_neighbour,
        torn_tail,
        damage,
        sniffing,
        parts,
    )
}
"""Every law that looks at one file, by name; its docstring says it. `hash_seed`, of all files together, comes on top."""
