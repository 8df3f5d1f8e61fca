"""Messages of a mapped conversation: who says what, calls what, and what came back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from logforge.connectors.episodes import Call, EpisodeBuilder, bad_part, unknown_parts, words_of
from logforge.connectors.mapping.fields import FieldReader, is_blank
from logforge.connectors.mapping.paths import Spot, Trail
from logforge.connectors.mapping.spec import ROLES, Expression, Fields, MappingSpec, Speaker, written
from logforge.connectors.mapping.turns import Rewards, Turn, first_of

_T = TypeVar("_T")
_NOTHING: Fields = {}


class _Said(NamedTuple):
    """A message where it stands: the reader of its record, and how it is read."""

    reader: FieldReader
    speaker: Speaker
    here: Spot

    def field(self, key: str) -> Expression | None:
        """A field of the message."""
        return self.speaker.fields.get(key)

    def find(self, key: str) -> Spot | None:
        """Where a field's value stands."""
        return self.reader.find(self.field(key), self.here)

    @property
    def role(self) -> str | None:
        """Who speaks; None when it is none of the known roles."""
        found = self.find("role")
        return str(found.value) if found is not None and found.value in ROLES else None

    def items(self, fields: Fields | None) -> list[Spot]:
        """The calls or results in it, each where it stands; without a path the message itself."""
        if fields is None:
            return []
        return fields["path"].every(self.here, self.reader.record) if "path" in fields else [self.here]

    def says_nothing(self) -> bool:
        """No text, thought, call or result is here."""
        words = (self.find(key) for key in ("content", "thought"))
        if any(found is not None and not is_blank(found.value) for found in words):
            return False
        blocks = ((self.speaker.calls, "name"), (self.speaker.results, "content"))
        return not any(
            "path" in fields or self.reader.find(fields.get(key), item) is not None
            for fields, key in blocks
            if fields is not None
            for item in self.items(fields)
        )


@dataclass
class Talk:
    """The messages of one conversation on their way into a builder."""

    spec: MappingSpec
    builder: EpisodeBuilder
    rewards: Rewards = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    """Messages left out as the mapping says, by the value that said so."""
    _open: list[_Said] = field(default_factory=list)
    _turn: str | None = None

    def add(self, reader: FieldReader, places: list[Spot]) -> None:
        """Add the messages of a record; consecutive ones of the agent with the same `turn` are one."""
        several = len(self.spec.speakers) > 1 or "role" not in (self.spec.messages or _NOTHING)
        for here in places:
            if self._skips(reader, here):
                continue
            said = [_Said(reader, speaker, here) for speaker in self.spec.speakers]
            heard = [one for one in said if one.role is not None] if several else said
            if not heard:
                self._unknown(said[0])
            for one in heard:
                if not (several and one.says_nothing()):
                    self._add(one)

    def _add(self, said: _Said) -> None:
        if (role := said.role) is None:
            self._unknown(said)
            return
        said.reader.take(said.find("role"))
        turn = said.reader.word(said.field("turn"), said.here) if role == "assistant" else None
        if turn is None or turn != self._turn:
            self.close()
        if role == "assistant":
            self._open.append(said)
            self._turn = turn
        else:
            self._other(role, said)

    def _skips(self, reader: FieldReader, here: Spot) -> bool:
        wanted = (self.spec.messages or _NOTHING).get("skip")
        if wanted is None or reader.truth(wanted, here) is not True:
            return False
        said = wanted.raw(here, reader.record)
        self.skipped[written(said.value) if said else "always"] += 1
        if self.spec.rows is None:
            reader.take(here)
        return True

    def _unknown(self, said: _Said) -> None:
        known = f"message whose role is none of {', '.join(ROLES)}"
        self.builder.rejects.append(bad_part(said.here.locator, known, "unknown_role", said.here.value))

    def _other(self, role: str, said: _Said) -> None:
        """A message that is no decision."""
        text, place = _content(said) if role == "tool" else self._words(said, decides=False)
        time = said.reader.time(said.field("time"), said.here)
        if role == "tool":
            self._result(said, said.speaker.fields, said.here, said.find("content"), time, "call_id")
        elif text is not None or said.speaker.results is None:
            self.builder.message(role, text, place, created_at=time)
        self._results(said, time)

    def close(self) -> None:
        """Add the open turn."""
        messages, self._open, self._turn = self._open, [], None
        if len(messages) == 1 and self._one_by_one(messages[0]):
            return
        if messages:
            self._together(messages)

    def _together(self, messages: list[_Said]) -> None:
        """One turn: texts joined, calls parallel."""
        turn, bad = Turn(), False
        for said in messages:
            calls, names, nameless = self._calls(said)
            found = said.find("content")
            is_name = found is not None and found.trail in names
            text, place = (None, said.here.locator) if is_name else self._words(said, decides=True)
            bad = bad or nameless
            turn.calls += calls
            turn.say(text, said.reader.text(said.field("thought"), said.here), place)
            turn.pay(said.reader.number(said.field("reward"), said.here))
        time = _first("time", FieldReader.time, messages)
        self.builder.offer(_first("tools", FieldReader.names, messages))
        more: dict[str, Any] = {
            "created_at": time,
            "model": _first("model", FieldReader.word, messages),
            "tokens_in": _first("tokens_in", FieldReader.count, messages),
            "tokens_out": _first("tokens_out", FieldReader.count, messages),
            "cost_usd": _first("cost", FieldReader.cost, messages),
        }
        if bad and not turn.calls:
            self.builder.message("assistant", turn.text, turn.place, thought=turn.thought, **more)
        else:
            turn.add(self.builder, self.rewards, **more)
        for said in messages:
            self._results(said, time)

    def _words(self, said: _Said, *, decides: bool) -> tuple[str | None, str]:
        """What is said, and where. What is no text and no part that is understood is noted: an agent's decision may lie in it."""
        text, place = _content(said)
        spots = said.reader.spots(said.field("content"), said.here)
        unknown = [(spot, part) for spot in spots for _, part in unknown_parts(spot.value)]
        if not unknown:
            return text, place
        known = [words_of(spot.value) for spot in spots]
        text = "\n".join(one for one in known if one) or None
        for spot, part in unknown:
            self.builder.unknown(spot.locator, part, decides=decides or text is None)
            said.reader.read.discard(spot.trail)
        return text, place

    def _one_by_one(self, said: _Said) -> bool:
        """Add calls that are turns of their own, each with its results behind it. False when the message has none such."""
        fields, reader = said.speaker.calls or _NOTHING, said.reader
        items = said.items(said.speaker.calls) if "path" in fields else []
        if len(items) < 2 or reader.truth(fields.get("apart"), said.here) is not True:
            return False
        text, place = self._words(said, decides=True)
        thought = reader.text(said.field("thought"), said.here)
        time = reader.time(said.field("time"), said.here)
        model = reader.word(said.field("model"), said.here)
        self.builder.offer(reader.names(said.field("tools"), said.here))
        for item in items:
            call, _, _ = self._called(said, [item])
            own = reader.text(fields.get("thought"), item)
            turn = Turn([text] if text else [], [one for one in (thought, own) if one], call, place)
            if call:
                turn.add(self.builder, self.rewards, created_at=time, model=model)
            self._results(said, time, item)
            text, place, thought = None, item.locator, None
        self._results(said, time, leave=[item.trail for item in items])
        return True

    def _calls(self, said: _Said) -> tuple[list[Call], set[Trail], bool]:
        """The calls, the trails of their names, and whether one has no name."""
        return self._called(said, said.items(said.speaker.calls))

    def _called(self, said: _Said, items: list[Spot]) -> tuple[list[Call], set[Trail], bool]:
        fields, reader, bad = said.speaker.calls or _NOTHING, said.reader, False
        calls: list[Call] = []
        names: set[Trail] = set()
        for item in items:
            name = reader.find(fields.get("name"), item)
            if name is not None and isinstance(name.value, str) and name.value:
                reader.take(name)
                arguments = reader.take(reader.find(fields.get("arguments"), item))
                own = reader.word(fields.get("id"), item)
                calls.append(Call(name.value, arguments, own, item.locator))
                names.add(name.trail)
            elif "path" in fields:
                bad = True
                self.builder.rejects.append(
                    bad_part(item.locator, "tool call without a name", "nameless_call", item.value)
                )
        return calls, names, bad

    def _results(
        self, said: _Said, time: int | None, call: Spot | None = None, leave: Sequence[Trail] = ()
    ) -> None:
        """The results in a message; those that stand in one call, or in none that is left out."""
        fields = said.speaker.results or _NOTHING
        for item in said.items(said.speaker.results):
            if item.trail in leave or (call is not None and item.trail != call.trail):
                continue
            content = said.reader.find(fields.get("content"), item)
            if content is not None:
                self._result(said, fields, item, content, time, "id")

    def _result(
        self, said: _Said, fields: Fields, item: Spot, content: Spot | None, time: int | None, key: str
    ) -> None:
        reader = said.reader
        text = reader.text(fields.get("content"), item)
        taken = self.builder.result(
            reader.word(fields.get(key), item),
            text,
            content.locator if content is not None and text else item.locator,
            failed=reader.failed(fields.get("error"), item),
            latency_s=reader.number(fields.get("latency"), item),
            reward=reader.number(fields.get("reward"), item),
            created_at=time,
        )
        if not taken and content is not None:
            reader.read.discard(content.trail)


def _content(said: _Said) -> tuple[str | None, str]:
    """The text, and where it stands."""
    found, text = said.find("content"), said.reader.text(said.field("content"), said.here)
    return text, found.locator if found is not None and text else said.here.locator


def _first(
    key: str, read: Callable[[FieldReader, Expression | None, Spot], _T | None], messages: list[_Said]
) -> _T | None:
    """What the first of these messages says that has the field."""
    return first_of(lambda said: read(said.reader, said.field(key), said.here), messages)
