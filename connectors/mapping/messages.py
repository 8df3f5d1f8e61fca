"""Messages of a mapped conversation: who says what, calls what, and what came back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from logforge.connectors.episodes import Call, EpisodeBuilder, bad_part
from logforge.connectors.mapping.fields import FieldReader
from logforge.connectors.mapping.paths import Spot, Trail
from logforge.connectors.mapping.spec import ROLES, Expression, Fields, MappingSpec, written
from logforge.connectors.mapping.turns import Rewards, Turn, first_of
from logforge.connectors.mapping.values import text_in

_T = TypeVar("_T")
_NOTHING: Fields = {}


@dataclass
class Talk:
    """The messages of one record on their way into a builder."""

    spec: MappingSpec
    reader: FieldReader
    builder: EpisodeBuilder
    rewards: Rewards = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    """Messages left out as the mapping says, by the value that said so."""
    _open: list[Spot] = field(default_factory=list)
    _turn: str | None = None

    @property
    def _fields(self) -> Fields:
        return self.spec.messages or _NOTHING

    def add(self, messages: list[Spot]) -> None:
        """Add the messages; consecutive ones of the agent with the same `turn` are one."""
        for here in messages:
            if self._skips(here) or (role := self._role(here)) is None:
                continue
            turn = self.reader.word(self._fields.get("turn"), here) if role == "assistant" else None
            if turn is None or turn != self._turn:
                self._close()
            if role == "assistant":
                self._open.append(here)
                self._turn = turn
            else:
                self._other(role, here)
        self._close()

    def _skips(self, here: Spot) -> bool:
        wanted = self._fields.get("skip")
        if wanted is None or self.reader.truth(wanted, here) is not True:
            return False
        said = wanted.raw(here, self.reader.record)
        self.skipped[written(said.value) if said else "always"] += 1
        self.reader.take(here)
        return True

    def _role(self, here: Spot) -> str | None:
        found = self.reader.find(self._fields.get("role"), here)
        if found is not None and found.value in ROLES:
            return str(self.reader.take(found))
        known = f"message whose role is none of {', '.join(ROLES)}"
        self.builder.rejects.append(bad_part(here.locator, known, "unknown_role", here.value))
        return None

    def _other(self, role: str, here: Spot) -> None:
        """A message that is no decision."""
        text, place = self._content(here)
        time = self.reader.time(self._fields.get("time"), here)
        if role == "tool":
            content = self.reader.find(self._fields.get("content"), here)
            self._result(self._fields, here, content, time, "call_id")
        elif text is not None or self.spec.results is None:
            self.builder.message(role, text, place, created_at=time)
        self._results(here, time)

    def _content(self, here: Spot) -> tuple[str | None, str]:
        found = self.reader.find(self._fields.get("content"), here)
        text = text_in(self.reader.take(found))
        return text, found.locator if found is not None and text else here.locator

    def _close(self) -> None:
        """Add the open turn."""
        messages, self._open, self._turn = self._open, [], None
        if not messages:
            return
        fields, reader, turn, bad = self._fields, self.reader, Turn(), False
        for here in messages:
            calls, names, nameless = self._calls(here)
            found = reader.find(fields.get("content"), here)
            text, place = self._content(here)
            if found is not None and found.trail in names:
                text, place = None, here.locator
            bad = bad or nameless
            turn.calls += calls
            turn.say(text, reader.text(fields.get("thought"), here), place)
            turn.pay(reader.number(fields.get("reward"), here))
        time = self._first("time", reader.time, messages)
        self.builder.offer(self._first("tools", reader.names, messages))
        more: dict[str, Any] = {
            "created_at": time,
            "model": self._first("model", reader.word, messages),
            "tokens_in": self._first("tokens_in", reader.count, messages),
            "tokens_out": self._first("tokens_out", reader.count, messages),
            "cost_usd": self._first("cost", reader.cost, messages),
        }
        if bad and not turn.calls:
            self.builder.message("assistant", turn.text, turn.place, thought=turn.thought, **more)
        else:
            turn.add(self.builder, self.rewards, **more)
        for here in messages:
            self._results(here, time)

    def _first(
        self, key: str, read: Callable[[Expression, Spot], _T | None], messages: list[Spot]
    ) -> _T | None:
        wanted = self._fields.get(key)
        return first_of(lambda here: read(wanted, here), messages) if wanted else None

    def _calls(self, here: Spot) -> tuple[list[Call], set[Trail], bool]:
        """The calls, the trails of their names, and whether one has no name."""
        fields, bad = self.spec.calls or _NOTHING, False
        calls: list[Call] = []
        names: set[Trail] = set()
        for item in self._items(self.spec.calls, here):
            name = self.reader.find(fields.get("name"), item)
            if name is not None and isinstance(name.value, str) and name.value:
                self.reader.take(name)
                arguments = self.reader.take(self.reader.find(fields.get("arguments"), item))
                own = self.reader.word(fields.get("id"), item)
                calls.append(Call(name.value, arguments, own, item.locator))
                names.add(name.trail)
            elif "path" in fields:
                bad = True
                self.builder.rejects.append(
                    bad_part(item.locator, "tool call without a name", "nameless_call", item.value)
                )
        return calls, names, bad

    def _items(self, fields: Fields | None, here: Spot) -> list[Spot]:
        if fields is None:
            return []
        return fields["path"].every(here, self.reader.record) if "path" in fields else [here]

    def _results(self, here: Spot, time: int | None) -> None:
        for item in self._items(self.spec.results, here):
            fields = self.spec.results or _NOTHING
            content = self.reader.find(fields.get("content"), item)
            if content is not None:
                self._result(fields, item, content, time, "id")

    def _result(self, fields: Fields, item: Spot, content: Spot | None, time: int | None, key: str) -> None:
        text = self.reader.text(fields.get("content"), item)
        taken = self.builder.result(
            self.reader.word(fields.get(key), item),
            text,
            content.locator if content is not None and text else item.locator,
            failed=self.reader.failed(fields.get("error"), item),
            latency_s=self.reader.number(fields.get("latency"), item),
            reward=self.reader.number(fields.get("reward"), item),
            created_at=time,
        )
        if not taken and content is not None:
            self.reader.read.discard(content.trail)
