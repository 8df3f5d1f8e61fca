"""A conversation that goes on, told event by event: what the agent's next decision would see, as a build of its log has it.

Tell it of a turn after the decision: what the agent says as it decides, it did not know when it decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from logforge.connectors.arguments import parse_arguments
from logforge.connectors.open_calls import OpenCalls
from logforge.connectors.outcome import ERROR_CLASSES, asks_user, classify_result
from logforge.connectors.tool_names import tool_action
from logforge.events import Answered, Decided, Event, Offered, Said
from logforge.features import ROLES
from logforge.knowledge import Knowledge
from logforge.live_hygiene import LiveHygiene
from logforge.schemas.episode import CLARIFY, RESPOND, RESULT_STATUSES, ResultStatus
from logforge.schemas.errors import UnknownName, UsageError
from logforge.states import StateBuilder
from logforge.symbols import State

F32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class Observation(NamedTuple):
    """What a policy acts on: `observation` float32 [features] and `mask` bool [actions]."""

    observation: F32
    mask: Bools


Encode = Callable[[Sequence[State]], tuple[F32, Bools]]


class Session:
    """One conversation. An event costs the same however many came before it. Made by StateServer.session."""

    def __init__(
        self,
        builder: StateBuilder,
        encode: Encode,
        *,
        task: str | None = None,
        format: str | None = None,
        tools: list[str] | None = None,
        redacts: bool = True,
    ) -> None:
        self._space, self._encode, self._format = builder.space, encode, format
        self._clean = LiveHygiene(redacts)
        config = builder.config
        self._knowledge = Knowledge(self._clean.text(task), config.window_turns, config.history)
        self._calls = OpenCalls()
        self._turn: Said | None = None
        self._spoken: str | None = None
        self._group = -1
        self._said_last = True
        self._mask: tuple[str, ...] | None = None
        self._tools: list[str] | None = None
        self.offer(tools)

    # What happens.

    def offer(self, tools: list[str] | None) -> None:
        """From the next decision on these tools are on offer. None: nobody says which, so all of the session's format are."""
        self._tools = None if tools is None else [tool_action(name) for name in tools]
        self._mask = None

    def message(
        self,
        role: str,
        content: str | None,
        *,
        thought: str | None = None,
        at: float | None = None,
        action: Literal["respond", "clarify"] | None = None,
        decided: bool = True,
    ) -> None:
        """A message; `at` is in seconds since 1970, as time.time() tells it.

        One of the assistant opens its turn: the calls that follow belong to it. Without any it was the decision to speak,
        `action` (by default what the connectors take it for). `decided=False`: no decision (a greeting by script, say).
        """
        _refuse_unknown("role", role, ROLES)
        self._end_turn()
        said = Said(role, self._clean.text(content), self._clean.text(thought), _micros(at))
        if role == "assistant" and decided:
            self._turn, self._spoken = said, action or (CLARIFY if asks_user(said.content) else RESPOND)
        else:
            self._knowledge.say(said)

    def call(self, name: str, arguments: Any = None, *, id: str | None = None, parallel: bool = False) -> int:
        """A tool call of the assistant's open turn (of one without a text, when none is open); returns its number.

        `arguments` are an object or JSON text. The calls of one turn are one parallel group; `parallel` adds a call to the
        latest group though its turn is over (a result came in between). Raises UsageError when there is none.
        """
        told = self._clean.arguments(parse_arguments(arguments).text)
        if parallel and self._turn is None:
            number = self._knowledge.decide(Decided(tool_action(name), told, True, self._open_group()))
            self._knowledge.commit()
        else:
            number = self._call_in_turn(name, told)
        self._calls.add(number, id)
        return number

    def result(
        self,
        call: int | str | None,
        content: str | None,
        *,
        failed: bool | None = None,
        status: ResultStatus | None = None,
        error_class: str | None = None,
        latency_s: float | None = None,
        at: float | None = None,
    ) -> None:
        """The result of a call, by its number or by its id (of calls of one id, the latest turn's first); None: the earliest
        unanswered call of the latest turn. Results may come late and in any order.

        Status and error class are what the connectors would read from the text and from `failed`, where they are not given.
        Raises UsageError when no call waits for it.
        """
        text = self._clean.text(content) or ""
        found, kind = classify_result(text, failed)
        kind = error_class or kind
        _refuse_unknown("result status", status, RESULT_STATUSES)
        _refuse_unknown("error class", kind, ERROR_CLASSES)
        self._end_turn()
        number = self._answered(call)
        self._knowledge.say(Said("tool", text, None, _micros(at)))
        self._knowledge.answer(Answered(number, status or found, kind, text, latency_s))

    def add(self, event: Event) -> None:
        """An event as a stored episode replays it (events.events_of): names, texts and verdicts are taken as they are.

        So an episode that a log cut off can be replayed, and go on.
        """
        self._end_turn()
        if isinstance(event, Offered):
            self._tools, self._mask = event.tools, None
        elif isinstance(event, Decided):
            self._replay(event)
        elif isinstance(event, Said):
            self._said_last = True
            self._knowledge.say(event)
        else:
            self._calls.close(event.decision)
            self._knowledge.answer(event)

    # What is seen.

    def state(self, offered: list[str] | None = None, *, parallel: bool = False) -> State:
        """What is known before the next decision, in symbols. With `offered`, these tools are on offer from now on.

        It ends an open turn. `parallel`: the next decision is another call of the latest group instead, which sees the
        names and arguments of the group's earlier calls, and no result of theirs.
        """
        if offered is not None:
            self.offer(offered)
        if self._mask is None:
            self._mask = self._on_offer()
        if parallel:
            return self._knowledge.state(self._mask, self._open_group())
        self._end_turn()
        return self._knowledge.state(self._mask)

    def before(self, event: Decided) -> State:
        """What was known when a replayed decision was taken; it is to be added next."""
        if self._mask is None:
            self._mask = self._on_offer()
        return self._knowledge.state(self._mask, event.group)

    def observe(self, offered: list[str] | None = None, *, parallel: bool = False) -> Observation:
        """The same state as numbers, and its mask: what a policy acts on."""
        observations, masks = self._encode([self.state(offered, parallel=parallel)])
        return Observation(observations[0], masks[0])

    def _on_offer(self) -> tuple[str, ...]:
        if self._tools is None and self._format is None:
            remedy = "name the tools on offer, or the format whose logs hold such conversations"
            raise UsageError("nobody says which tools are on offer", remedy)
        return self._space.names(self._format or "", self._tools)

    def _call_in_turn(self, name: str, arguments: str) -> int:
        if self._turn is None:
            self._turn, self._spoken = Said("assistant", None), RESPOND
        if self._spoken is not None:  # the turn's first call
            self._spoken, self._group = None, self._group + 1
            self._calls.turn()
        return self._knowledge.decide(Decided(tool_action(name), arguments, True, self._group))

    def _end_turn(self) -> None:
        if self._turn is None:
            return
        if self._spoken is not None:
            self._knowledge.decide(Decided(self._spoken, is_tool=False))
        self._knowledge.say(self._turn)
        self._turn = self._spoken = None

    def _replay(self, event: Decided) -> None:
        number = self._knowledge.decide(event)
        if self._said_last:
            self._calls.turn()
        self._said_last = False
        if event.is_tool:
            self._calls.add(number, event.call_id)
        if event.group is not None:
            self._group = max(self._group, event.group)

    def _answered(self, call: int | str | None) -> int:
        """The number of the call that a result answers."""
        number = call if isinstance(call, int) else self._calls.take(call)
        if number is not None and self._knowledge.awaits(number):
            return self._calls.close(number)
        what = "no call of the latest turn" if call is None else f"no call {call!r}"
        raise UsageError(
            f"{what} waits for a result", "tell of each call before its result, and of that once"
        )

    def _open_group(self) -> int:
        """The group of the latest decision, which another call may join."""
        group = self._knowledge.group
        if group is None or self._spoken is not None:
            raise UsageError("the latest decision is no call that another may join", "leave `parallel` out")
        return group


def _refuse_unknown(kind: str, name: str | None, names: Sequence[str]) -> None:
    if name is not None and name not in names:
        raise UnknownName(kind, name, names)


def _micros(at: float | None) -> int | None:
    return None if at is None else round(at * 1e6)
