"""Logs of an API's requests with their responses, where each request repeats what was said: one episode per conversation.

A record is one request with its response: in `request` and `response` (which may be JSON text, or lie under `body`), or beside
each other in one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logforge.connectors.episodes import (
    Continuations,
    EpisodeBuilder,
    close,
    content_id,
    episode_id,
    first_text,
    first_user_text,
    is_unique,
    keyed,
    micros,
    read_outcome,
    reject,
)
from logforge.connectors.records import NeedsWhole, NotJson, Source, at, canonical, loads
from logforge.connectors.sdks.talks import SESSION_KEYS, Placed, Told, ending_of
from logforge.schemas import Duplicate, Reading, Reject

_TIMES = ("timestamp", "created_at", "start_time", "time")


class Round(NamedTuple):
    """A request and its response. `asked` is all that the model was given, what earlier requests held included."""

    row: dict[str, Any]
    locator: str
    request: dict[str, Any]
    response: dict[str, Any]
    asked: list[Placed]
    given: list[Placed]
    place: str
    """Where the request stands."""
    back: str
    """Where the response stands."""
    native: str | None
    """The response's id."""

    @property
    def time(self) -> int | None:
        """When the response was made."""
        stamps = (part.get(key) for part in (self.response, self.row) for key in _TIMES)
        return next((time for stamp in stamps if (time := micros(stamp)) is not None), None)


class Bodies(NamedTuple):
    """A request and a response, and where they stand."""

    place: str
    request: Any
    back: str
    response: Any


class Api(NamedTuple):
    """What differs between APIs."""

    format: str
    keys: frozenset[str]
    """Keys of a row, a request and a response that are read, and so no metadata."""
    asked: Callable[[dict[str, Any], str], list[Placed] | None]
    """The messages of a request; None when it is none."""
    given: Callable[[dict[str, Any], str], list[Placed]]
    """The messages of a response."""
    name: Callable[[Any], str | None]
    """A text that is equal for equal messages; None for one that a later request may leave out."""
    native: Callable[[dict[str, Any]], str | None]
    """The id of a response."""
    build: Callable[[EpisodeBuilder, list[Round], Told], None]
    """Add a conversation."""
    earlier: Callable[[dict[str, Any]], str | None] = lambda request: None
    """The id of the response that a request goes on with, where it does not repeat what was said."""
    builder: type[EpisodeBuilder] = EpisodeBuilder
    bodies: Callable[[dict[str, Any], str], Bodies] | None = None
    """Where a record has its request and its response, if not where most have them."""

    def names(self, placed: list[Placed]) -> list[str]:
        """The names of messages that have one."""
        return [name for message, _ in placed if (name := self.name(message)) is not None]

    def news(self, chain: list[Round]) -> Iterator[tuple[Round, list[Placed]]]:
        """Each request of a conversation with what it adds to what was said before, the responses included."""
        known = 0
        for round in chain:
            fresh: list[Placed] = []
            count = 0
            for placed in round.asked:
                named = self.name(placed.message) is not None
                count += named
                if count > known or (known == 0 and not named):
                    fresh.append(placed)
            yield round, fresh
            known = count + len(self.names(round.given))


def read_rounds(source: Source, api: Api) -> Iterator[Reading]:
    """One episode per conversation, after what is set aside."""
    if source.span:
        raise NeedsWhole
    log = _Log(api)
    for locator, row in source.records():
        log.cut = isinstance(row, Reject) and row.rule == "malformed_record"
        try:
            reading = row if isinstance(row, Reject) else log.add(row, locator)
        except RecursionError:
            reading = Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")
        if reading is not None:
            yield reading
    for chain in log.continuations.chains:
        yield from _episode(api, chain, cut=log.cut and chain[-1] is log.continuations.latest)


@dataclass
class _Log:
    api: Api
    continuations: Continuations[Round] = field(default_factory=Continuations)
    by_id: dict[str, Round] = field(default_factory=dict)
    cut: bool = False

    def add(self, row: Any, locator: str) -> Reading | None:
        """Take a record into its conversation, or say why not."""
        round = self._round(row, locator)
        if isinstance(round, Reject):
            return round
        asked = self.api.names(round.asked)
        if round.native is not None:
            same = self.by_id.get(round.native)
            if same is not None and self.api.names(same.asked) == asked:
                return Duplicate()
            self.by_id[round.native] = round
        self.continuations.add(asked, self.api.names(round.given), round)
        return None

    def _round(self, row: Any, locator: str) -> Round | Reject:
        if not isinstance(row, dict):
            return reject(locator, "record is no object", "", row)
        place, request, back, response = (self.api.bodies or bodies_of)(row, locator)
        asked = self.api.asked(request, place) if isinstance(request, dict) else None
        if asked is None or not isinstance(request, dict):
            return reject(locator, "no request with messages", "", row)
        response = response if isinstance(response, dict) else {}
        earlier = self.api.earlier(request)
        if earlier is not None:
            before = self.by_id.get(earlier)
            if before is None:
                return Reject(
                    locator=locator,
                    reason="it goes on with a conversation that is not in this file",
                    rule="unsupported_shape",
                    detail=f"it names {earlier[:80]!r}",
                )
            asked = [*before.asked, *before.given, *asked]
        given = self.api.given(response, back)
        native = self.api.native(response)
        return Round(row, locator, request, response, asked, given, place, back, native)


def bodies_of(row: dict[str, Any], locator: str) -> Bodies:
    """A request and a response: each under its key, else in the row itself."""
    asked, given = (
        _body(row[key], at(locator, f"/{key}")) if key in row else (locator, row)
        for key in ("request", "response")
    )
    return Bodies(*asked, *given)


def _body(value: Any, where: str) -> tuple[str, Any]:
    if isinstance(value, str):
        try:
            return _body(loads(value), f"{where}#")
        except NotJson:
            return where, None
    inner = value.get("body") if isinstance(value, dict) else None
    if isinstance(inner, dict | str) and len(value) <= _ENVELOPE:
        return _body(inner, at(where, "/body"))
    return where, value


_ENVELOPE = 5
"""A body lies in an object of few keys (`status_code`, `request_id`, `headers`, `method`)."""


def _episode(api: Api, chain: list[Round], *, cut: bool) -> Iterator[Reading]:
    first, last = chain[0], chain[-1]
    builder, told = api.builder(), Told()
    api.build(builder, chain, told)
    outcome = read_outcome(last.row, last.locator, builder.rejects)
    ending, reason = ending_of(builder, told, judged=outcome.known, cut=cut)
    model = told.model or first_text(first.request, "model", "model_id", "modelId")
    native = first.native if is_unique(first.native) else None
    kept = {k: v for part in (last.row, last.request) for k, v in part.items() if k not in api.keys}
    episode = builder.finish(
        id=content_id(api.format, first.row) if native is None else episode_id(api.format, native),
        format=api.format,
        locator=first.locator,
        records=len(chain),
        ending=ending,
        ending_reason=reason,
        native_id=first_text(first.row, "request_id", "requestId", "custom_id", "key") or first.native,
        session_id=first_text(last.row, *SESSION_KEYS),
        user_id=first_text(last.row, "user_id", "userId") or first_text(last.request, "user"),
        task_id=first_text(last.row, "task_id"),
        task=first_user_text(builder),
        model=model,
        policy_id=model,
        temperature=told.temperature,
        **outcome.fields(),
        metadata=canonical(kept | told.more | {"requests": len(chain)}),
    )
    yield from keyed(close(builder, episode), _response_ids(builder, chain))


def _response_ids(builder: EpisodeBuilder, chain: list[Round]) -> dict[int, str]:
    """The ids of the responses by the position of their messages."""
    homes = {
        placed.where: round.native for round in chain for placed in round.given if round.native is not None
    }
    found: dict[int, str] = {}
    for message in builder.messages:
        if message.role == "assistant":
            place = message.locator
            while place and place not in homes:
                place = place.rpartition("/")[0]
            if place:
                found[message.position] = homes[place]
    return found
