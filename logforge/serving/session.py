"""A conversation that goes on, told event by event: what the agent's next decision would see, as a build of its log has it.

Tell it of a turn after the decision: what the agent says as it decides, it did not know when it decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from logforge.connectors.episodes import (
    ERROR_CLASSES,
    SOFT_REFUSAL,
    OpenCalls,
    asks_user,
    classify_result,
    parse_arguments,
    tool_action,
)
from logforge.dataset.actions import ALWAYS
from logforge.dataset.states import (
    ROLES,
    Answered,
    Decided,
    Event,
    Knowledge,
    Offered,
    Said,
    State,
    StateBuilder,
)
from logforge.ingestion.hygiene import PREFIX, Heard, Hygiene, LiveHygiene
from logforge.schemas import (
    CLARIFY,
    INVALID,
    OTHER,
    RESPOND,
    RESULT_STATUSES,
    ResultStatus,
    UnknownName,
    UsageError,
)

_AS_INGEST = Hygiene()

F32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class Observation(NamedTuple):
    """What a policy acts on: `observation` float32 [features] and `mask` bool [actions]."""

    observation: F32
    mask: Bools


Encode = Callable[[Sequence[State]], tuple[F32, Bools]]


class Session:
    """One conversation. An event costs the same however many came before it. Made by StateServer.session.

    `flags` are those of its messages, by position (from 0), and `dangers` say how its decisions were dangerous, by number (from 0):
    what ingest stores of the same log as `messages.flags` and `steps.danger`. What is not flagged is in neither.
    """

    def __init__(
        self,
        builder: StateBuilder,
        encode: Encode,
        *,
        task: str | None = None,
        format: str | None = None,
        tools: list[str] | None = None,
        hygiene: Hygiene = _AS_INGEST,
    ) -> None:
        self._space, self._encode, self._format = builder.space, encode, format
        self._clean = LiveHygiene(hygiene)
        self.danger_list = hygiene.dangers
        self.flags: dict[int, tuple[str, ...]] = {}
        self.dangers: dict[int, str] = {}
        config = builder.config
        self._knowledge = Knowledge(self._clean.text(task).text, config.window_turns, config.history)
        self._calls = OpenCalls()
        self._turn: Said | None = None
        self._spoken: str | None = None
        self._group = -1
        self._position = self._called_at = 0
        self._latest: Decided | None = None
        self.repeats = 0
        """How often in a row the latest call was made, with the same arguments; 0 where the latest decision was to speak."""
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
        said = self._said(role, self._clean.text(content, role), self._clean.text(thought), at)
        if role == "assistant" and decided:
            self._turn, self._spoken = said, action or (CLARIFY if asks_user(said.content) else RESPOND)
        else:
            self._say(said)

    def call(self, name: str, arguments: Any = None, *, id: str | None = None, parallel: bool = False) -> int:
        """A tool call of the assistant's open turn (of one without a text, when none is open); returns its number.

        `arguments` are an object or JSON text. The calls of one turn are one parallel group; `parallel` adds a call to the
        latest group though its turn is over (a result came in between). Raises UsageError when there is none.
        """
        group = self._open_group() if parallel and self._turn is None else None
        action, given, flags = self._told(name, arguments)
        if group is not None:
            number = self._decide(Decided(action, given, True, group))
            self._knowledge.commit()
            self._flag(self._called_at, flags)
        else:
            number = self._call_in_turn(action, given, flags)
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
        _refuse_unknown("result status", status, RESULT_STATUSES)
        _refuse_unknown("error class", error_class, (*ERROR_CLASSES, SOFT_REFUSAL))
        self._end_turn()
        number = self._answered(call)
        heard = self._clean.text(content or "", "tool")
        text = heard.text or ""
        found, kind = classify_result(text, failed, status)
        self._say(self._said("tool", heard, Heard(None), at))
        self._knowledge.answer(Answered(number, found, error_class or kind, text, latency_s))

    def add(self, event: Event) -> None:
        """An event as a stored episode replays it (logforge.dataset.states.events.events_of): texts and verdicts are taken as they are.

        So an episode that a log cut off can be replayed, and go on.
        """
        self._end_turn()
        if isinstance(event, Offered):
            self._tools, self._mask = event.tools, None
        elif isinstance(event, Decided):
            self._replay(event)
        elif isinstance(event, Said):
            self._said_last = True
            self._say(event)
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
        mask = self.on_offer()
        if parallel:
            return self._knowledge.state(mask, self._open_group())
        self._end_turn()
        return self._knowledge.state(mask)

    def before(self, event: Decided) -> State:
        """What was known when a replayed decision was taken; it is to be added next."""
        return self._knowledge.state(self.on_offer(), event.group)

    def observe(self, offered: list[str] | None = None, *, parallel: bool = False) -> Observation:
        """The same state as numbers, and its mask: what a policy acts on."""
        observations, masks = self._encode([self.state(offered, parallel=parallel)])
        return Observation(observations[0], masks[0])

    @property
    def injections(self) -> tuple[str, ...]:
        """What was said to the agent so far that gives it orders it should not take: the flags, without `injection:`."""
        found = {flag for flags in self.flags.values() for flag in flags if flag.startswith(PREFIX)}
        return tuple(sorted(flag.removeprefix(PREFIX) for flag in found))

    def danger_of(self, name: str, arguments: Any = None) -> str | None:
        """How a tool call would be dangerous, by the session's list; None when it would not. What a shell runs stands in `arguments`."""
        return self.danger_list.of_action(*self._glanced(name, arguments))

    def times(self, name: str, arguments: Any = None) -> int:
        """How often in a row this very tool call was just made; 0 where the latest decision was another."""
        action, given = self._glanced(name, arguments)
        latest = self._latest
        same = latest is not None and (latest.action, latest.arguments) == (self._today(action), given)
        return self.repeats if same else 0

    def offers(self, action: str) -> bool:
        """Whether the next decision may be this action, under any of its names. A rare tool is offered by its own name, and a tool
        that the dataset does not know too; `<other>` stands for no tool that somebody could call."""
        self.on_offer()  # refuses where nobody says what is
        if action in ALWAYS or action in (OTHER, INVALID):
            return action in ALWAYS
        tools = self._space.tools_by_format[self._format or ""] if self._tools is None else self._tools
        return self._today(action) in map(self._today, tools)

    def on_offer(self) -> tuple[str, ...]:
        """The actions that the next decision may be."""
        if self._mask is None:
            self._mask = self._named()
        return self._mask

    @property
    def latest(self) -> str | None:
        """The latest decision's action."""
        return None if self._latest is None else self._latest.action

    def _named(self) -> tuple[str, ...]:
        if self._tools is None and self._format is None:
            remedy = "name the tools on offer, or the format whose logs hold such conversations"
            raise UsageError("nobody says which tools are on offer", remedy)
        return self._space.names(self._format or "", self._tools)

    def _today(self, action: str) -> str:
        """The name that a tool goes by in the dataset, from any that it had."""
        return self._space.vocabulary.aliases.get(action, action)

    def _glanced(self, name: str, arguments: Any) -> tuple[str, str]:
        """A call's action and arguments as they would be told, and nothing is."""
        given = self._clean.glance(parse_arguments(arguments).text, as_json=True)
        return self._clean.glance(tool_action(name)), given

    def _told(self, name: str, arguments: Any) -> tuple[str, str, frozenset[str]]:
        """A call's action and arguments as ingest stores them, and their flags."""
        action, given = (
            self._clean.text(tool_action(name)),
            self._clean.arguments(parse_arguments(arguments).text),
        )
        return action.text or "", given.text or "", action.flags | given.flags

    def _said(self, role: str, content: Heard, thought: Heard, at: float | None) -> Said:
        return Said(role, content.text, thought.text, _micros(at), tuple(content.flags | thought.flags))

    def _say(self, said: Said) -> None:
        self._knowledge.say(said)
        self._flag(self._position, said.flags)
        self._position += 1

    def _flag(self, position: int, flags: Iterable[str]) -> None:
        if found := {*self.flags.get(position, ()), *flags}:
            self.flags[position] = tuple(sorted(found))

    def _decide(self, logged: Decided) -> int:
        """A decision under its name of today; how it is dangerous goes by the name in the log, as at ingest."""
        today = self._today(logged.action) if logged.is_tool else logged.action
        decided = msgspec.structs.replace(logged, action=today)
        number = self._knowledge.decide(decided)
        before, self._latest = self._latest, decided
        if not decided.is_tool:
            self.repeats = 0
            return number
        same = before is not None and (before.action, before.arguments) == (decided.action, decided.arguments)
        self.repeats = self.repeats + 1 if same else 1
        if kind := self.danger_list.of_action(logged.action, logged.arguments):
            self.dangers[number] = kind
        return number

    def _call_in_turn(self, action: str, arguments: str, flags: frozenset[str]) -> int:
        turn = self._turn
        if turn is None:
            turn, self._spoken = Said("assistant", None), RESPOND
        if self._spoken is not None:  # the turn's first call
            self._spoken, self._group, self._called_at = None, self._group + 1, self._position
            self._calls.turn()
        self._turn = msgspec.structs.replace(turn, flags=(*turn.flags, *flags))
        return self._decide(Decided(action, arguments, True, self._group))

    def _end_turn(self) -> None:
        if self._turn is None:
            return
        if self._spoken is not None:
            self._decide(Decided(self._spoken, is_tool=False))
        self._say(self._turn)
        self._turn = self._spoken = None

    def _replay(self, event: Decided) -> None:
        number = self._decide(event)
        if self._said_last:
            self._calls.turn()
        self._said_last = False
        if event.is_tool:
            self._calls.add(number, event.call_id)
        if event.group is not None:
            self._group, self._called_at = max(self._group, event.group), self._position

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
