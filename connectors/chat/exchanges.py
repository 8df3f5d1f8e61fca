"""Logs of a chat API's requests, each with its response: those of one conversation put together, whoever the vendor is.

A record is one request with its response: {"request": …, "response": …}, or the request's own keys with `response` (or the
response's own keys) beside them. A request repeats the whole conversation, so those that continue one another are one episode.
A request that is sent again after an error goes on with it; one that got an answer and is asked again, or goes on from an earlier
point, is a conversation of its own, whose copied decisions count once (see connectors/episodes/decision_keys.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import Continuations, bad_part, content_id, episode_id, micros, reject
from logforge.connectors.records import NotJson, Source, at, loads
from logforge.schemas import Duplicate, Reading, Reject


class Exchange(NamedTuple):
    """A request, its response, and where both stand."""

    row: dict[str, Any]
    locator: str
    request: dict[str, Any]
    asked: str
    response: dict[str, Any]
    given: str
    names: tuple[str, ...] = ()
    """Of the messages: texts that are equal for equal ones."""

    @property
    def messages(self) -> list[Any]:
        """The conversation that was sent."""
        messages: list[Any] = self.request["messages"]
        return messages

    @property
    def time(self) -> int | None:
        """When it was made."""
        keys = ("timestamp", "created_at", "start_time", "startTime", "time")
        return next((time for key in keys if (time := micros(self.row.get(key))) is not None), None)

    @property
    def rejects(self) -> list[Reject]:
        """What stands in the response's place and is none."""
        found = self.row.get("response")
        if self.response or found in (None, "", {}):
            return []
        return [bad_part(at(self.locator, "/response"), "response is no object", "bad_answer", found)]


class Talk(NamedTuple):
    """A conversation: its requests, and which request got the answer that stands at an index of the last one's messages."""

    chain: list[Exchange]
    told: dict[int, Exchange]
    native: Callable[[Exchange], str | None]
    """The id of a response, when it names that response alone."""
    cut: bool
    """The log is cut off there."""

    def named(self, told: Exchange | None, positions: range) -> dict[int, str]:
        """The id of the response that wrote the messages at these positions, by position; empty when it has none."""
        native = None if told is None else self.native(told)
        return {} if native is None else dict.fromkeys(positions, native)


class Api(NamedTuple):
    """What differs between vendors."""

    beside: str
    """What a response has that lies beside the request's keys."""
    name: Callable[[Any], str]
    """A text that is equal for equal messages."""
    answer: Callable[[dict[str, Any]], Any]
    """The message that a response gives; None when it gives none."""
    native: Callable[[dict[str, Any]], str | None]
    """The id of a response, when it is unique wherever it is met."""
    episode: Callable[[Talk], Iterator[Reading]]


def read_exchanges(source: Source, api: Api) -> Iterator[Reading]:
    """One episode per conversation, after what is set aside."""
    talks = _Talks(api)
    for locator, row in source.records():
        talks.cut = isinstance(row, Reject) and row.rule == "malformed_record"
        try:
            reading = row if isinstance(row, Reject) else talks.add(row, locator)
        except RecursionError:
            reading = Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")
        if reading is not None:
            yield reading
    yield from talks.episodes()


@dataclass
class _Talks:
    api: Api
    continuations: Continuations[Exchange] = field(default_factory=Continuations)
    seen: dict[str, int] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)
    """Ids that the server gave to several responses: they name none."""
    cut: bool = False

    def add(self, row: Any, locator: str) -> Reading | None:
        """Take a record into its conversation, or say why not."""
        exchange = exchange_of(row, locator, self.api.beside)
        if isinstance(exchange, Reject):
            return exchange
        exchange = exchange._replace(names=tuple(map(self.api.name, exchange.messages)))
        answer = self.api.answer(exchange.response)
        reply = [] if answer is None else [self.api.name(answer)]
        if (native := self.api.native(exchange.response)) is not None:
            said = hash((*exchange.names, *reply))
            if self.seen.get(native) == said:
                return Duplicate()
            if self.seen.setdefault(native, said) != said:
                self.repeated.add(native)
        self.continuations.add(exchange.names, reply, exchange)
        return None

    def episodes(self) -> Iterator[Reading]:
        """One episode per conversation."""
        for chain in self.continuations.chains:
            told = self.continuations.told(chain[-1].names) | {
                len(exchange.names): exchange for exchange in chain
            }
            talk = Talk(chain, told, self._native, self.cut and chain[-1] is self.continuations.latest)
            try:
                yield from list(self.api.episode(talk))
            except RecursionError:
                where, records = chain[0].locator, len(chain)
                yield Reject(locator=where, reason="nested too deep", rule="nested_too_deep", records=records)

    def _native(self, exchange: Exchange) -> str | None:
        native = self.api.native(exchange.response)
        return None if native in self.repeated else native


def exchange_of(row: Any, locator: str, beside: str) -> Exchange | Reject:
    """The request and response of a record, or why it holds none."""
    if not isinstance(row, dict):
        return reject(locator, "record is no object", "", row)
    asked, request = _body(row.get("request", row), at(locator, "/request" if "request" in row else ""))
    given, response = _body(row.get("response"), at(locator, "/response"))
    if response is None and beside in row:
        given, response = locator, row
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        return reject(locator, "no list of messages", "", row)
    return Exchange(row, locator, request, asked, response if isinstance(response, dict) else {}, given)


def _body(value: Any, where: str) -> tuple[str, Any]:
    """A request or response, which may be JSON text or lie under `body`. With where it stands."""
    if isinstance(value, str):
        try:
            value, where = loads(value), where + "#"
        except NotJson:
            return where, None
    if isinstance(value, dict) and isinstance(value.get("body"), dict | str) and "messages" not in value:
        return _body(value["body"], at(where, "/body"))
    return where, value


def talk_id(format_name: str, talk: Talk) -> str:
    """The id of a conversation: that of its first response, else the whole first record's."""
    first = talk.chain[0]
    native = talk.native(first)
    return content_id(format_name, first.row) if native is None else episode_id(format_name, native)
