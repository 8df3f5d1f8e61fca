"""Puts an episode together from what a connector reads, in order: messages, calls, results, end.

Here, once for all formats: positions, parallel groups, respond and clarify steps, canonical arguments, and the
pairing of a result with the nearest preceding unanswered call of its id.
"""

from __future__ import annotations

from math import fsum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from logforge.connectors.episodes.arguments import Parsed
from logforge.connectors.episodes.arguments import (
    parse_arguments as parse_arguments,  # connectors import it from here
)
from logforge.connectors.episodes.outcome import asks_user, classify_result
from logforge.connectors.episodes.pairing import OpenCalls, is_unique
from logforge.connectors.episodes.policies import policy_name, prompt_version
from logforge.connectors.episodes.set_aside import SetAside
from logforge.connectors.episodes.tool_names import meant, tool_action
from logforge.connectors.episodes.words import is_summary
from logforge.connectors.records import excerpt
from logforge.schemas import Ending, Episode, Message, Reject, ResultStatus, Step, StepKind


class Call(NamedTuple):
    """A tool call as the log has it: `arguments` may be an object, JSON text, empty or damaged.

    `offered`: it is known that the tool was on offer, though no list names it (the model's provider ran it).
    """

    name: str
    arguments: Any
    call_id: str | None = None
    locator: str | None = None
    proposed: str | None = None
    offered: bool = False


class _Result(msgspec.Struct, frozen=True, gc=False):
    text: str | None
    status: ResultStatus
    error_class: str | None
    position: int
    latency_s: float | None
    reward: float | None
    locator: str


class _Open(msgspec.Struct, frozen=True, gc=False):
    """A step as decided, before its result is known."""

    position: int
    kind: StepKind
    action: str
    locator: str
    arguments: Parsed
    logged: Any
    call_id: str | None
    group: int | None
    proposed: str | None
    reward: float | None
    tools: list[str] | None = None
    valid: bool = False
    """Valid whatever the list says."""
    propensity: float | None = None


_MISSING = _Result(None, "missing", None, -1, None, None, "")


_LINKS = ("parent_episode_id", "continues_episode_id")
"""What names another episode, and so never the episode itself."""


def distinct_calls(calls: list[Call]) -> list[Call]:
    """The calls of a turn without those that are said again: LangChain keeps a call as a block and in `tool_calls`."""
    if len(calls) < 2 or all(call.call_id is None for call in calls):
        return calls
    found: dict[Any, Call] = {}
    for index, call in enumerate(calls):
        key = (call.call_id, call.name, parse_arguments(call.arguments)[0]) if call.call_id else index
        found.setdefault(key, call)
    return list(found.values())


class EpisodeBuilder(SetAside):
    """Collects one episode. Call in the log's order, then `finish`."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self._steps: list[_Open] = []
        self._results: dict[int, _Result] = {}
        self._open = OpenCalls()
        self._states: dict[int, ResultStatus] = {}
        self._groups = 0
        self._offered: list[str] | None = None
        self.cut: str | None = None
        """Why the latest message of the agent was cut off, where the log says so. What follows shows that the run went on."""
        self._unparsed = -1
        self._told = -1
        """The step of which the log itself says that the next result is its own, by where that stands."""
        self._nameless: dict[int, str | None] = {}
        """Steps of the latest turn whose results came without a call id, each with the tool that the result names."""
        self._early: dict[str, tuple[Reject, dict[str, Any]]] = {}
        """Results whose call may yet come, by call id."""

    @property
    def offered(self) -> list[str] | None:
        """What `offer` named last; None when it named nothing yet."""
        return self._offered

    def offer(self, tools: list[str] | None) -> None:
        """From the next turn on these tools are offered. None: the log does not say, so it stays as it was."""
        if tools is not None and tools != self._offered:
            self._offered = tools

    def message(self, role: str, content: Any, locator: str, **more: Any) -> int:
        """Add what is no decision of the agent (system, developer, user): a text or the parts of one. Returns its position."""
        if self._nameless:
            self._settle()
        if self._early:
            self._forget_early()
        text = self.words_in(content, locator, role == "assistant")
        if role == "user" and is_summary(text):
            role = "system"  # written by the program: context, and no word of a person
        if content is None and not more.get("thought"):
            self.wordless(locator)
        position, self.cut = len(self.messages), None
        self.messages.append(Message(position, role, text, locator, **more))
        return position

    def turn(
        self,
        content: Any,
        calls: list[Call],
        locator: str,
        *,
        kind: StepKind | None = None,
        arguments: Any = None,
        reward: float | None = None,
        propensity: float | None = None,
        **more: Any,
    ) -> int:
        """Add an assistant turn: one step per call, or one respond/clarify step when it says something and calls nothing.

        `content` is a text or the parts of one. A call that is said twice (same id, name and arguments) is one.
        A turn without a word and without a call is a message and no step. Without calls, `kind` overrides the rule that tells respond from clarify, and `arguments` may carry what the
        log says of the utterance (a label, say). `reward` is the whole turn's; so is `propensity`, which says nothing
        of a step where the turn decided several. Returns the message's position.
        """
        if self._nameless:
            self._settle()
        position, self.cut = len(self.messages), None
        content = self.words_in(content, locator, True)
        self.messages.append(Message(position, "assistant", content, locator, **more))
        if not calls and not (content and content.strip()):
            if content is None and not more.get("thought") and self.undecided is None:
                self.wordless(locator)
            self.without_step(reward, locator)
            return position
        if not calls:
            said: StepKind = kind or ("clarify" if asks_user(content) else "respond")
            parsed = parse_arguments(arguments)
            self._steps.append(
                _Open(
                    position, said, said, locator, parsed, arguments, None, None, None, reward, self._offered,
                    propensity=propensity,
                )
            )  # fmt: skip
            return position
        self._open.turn()
        group = None
        calls = distinct_calls(calls)
        if len(calls) > 1:
            group, self._groups = self._groups, self._groups + 1
        for call in calls:
            # what a turn earned is earned once, and known after its last call
            earned, chance = reward if call is calls[-1] else None, propensity if group is None else None
            self._call(call, position, group, locator, earned, chance)
        if self._early:
            self._take_early(calls)
        return position

    def unparsed(self, content: str, locator: str, **more: Any) -> int:
        """Add an assistant turn whose text holds a call that cannot be read for certain: a message that makes no step.

        What results follow are nobody's. Returns the message's position.
        """
        self._open.turn()
        self._unparsed = position = len(self.messages)
        self.messages.append(Message(position, "assistant", content, locator, **more))
        self.rejects.append(
            Reject(
                level="part",
                locator=locator,
                reason="a call in the text that cannot be read for certain",
                rule="unparsed_call",
                excerpt=excerpt(content),
            )
        )
        return position

    def _call(
        self,
        call: Call,
        position: int,
        group: int | None,
        locator: str,
        reward: float | None,
        propensity: float | None,
    ) -> None:
        index = len(self._steps)
        self._steps.append(
            _Open(
                position,
                "tool",
                call.name,
                call.locator or locator,
                parse_arguments(call.arguments),
                call.arguments,
                call.call_id,
                group,
                call.proposed,
                reward,
                self._offered,
                call.offered,
                propensity,
            )
        )
        self._open.add(index, call.call_id)

    def result(
        self,
        call_id: str | None,
        text: str | None,
        locator: str,
        *,
        failed: bool | None = None,
        status: ResultStatus | None = None,
        error_class: str | None = None,
        latency_s: float | None = None,
        reward: float | None = None,
        name: str | None = None,
        **more: Any,
    ) -> bool:
        """Add a tool's answer and pair it with the nearest preceding unanswered call of its id.

        Without an id it goes to the earliest unanswered call of the latest turn with calls, of the tool `name` where there is one.
        When calls are left over in the end, it was one of several: then it is set aside. `failed` is the log's own
        flag, `status` and `error_class` its own verdict, where it has them. False: no call takes it; the answer is then a rejected
        part and no message, unless its call comes yet.
        """
        index, hint = self._taken(call_id, name)
        if index is None:
            told = {
                "failed": failed,
                "status": status,
                "error_class": error_class,
                "latency_s": latency_s,
                **more,
            }
            self._orphan(call_id, text, locator, {"reward": reward, **told})
            return False
        if call_id is None and index != self._told:
            self._nameless[index] = hint
        text = text or ""  # an answer that says nothing is still an answer; null is for calls without one
        found, kind = classify_result(text, failed, status)
        position, self.cut = len(self.messages), None
        self.messages.append(Message(position, "tool", text, locator, **more))
        self._results[index] = _Result(text, found, error_class or kind, position, latency_s, reward, locator)
        return True

    def _taken(self, call_id: str | None, name: str | None) -> tuple[int | None, str | None]:
        """The call that a result answers, and the tool that the result names where that tells it from others."""
        named = [i for i in self._open.waiting if self._steps[i].action == name] if call_id is None else []
        return (self._open.close(named[0]), name) if named else (self._open.take(call_id), None)

    def _orphan(self, call_id: str | None, text: str | None, locator: str, told: dict[str, Any]) -> None:
        orphan = Reject(
            level="part",
            locator=locator,
            reason="result without a call it could answer",
            rule="orphan_result",
            detail=self._why_orphan(call_id),
            excerpt=excerpt(text or ""),
        )
        self.rejects.append(orphan)
        if call_id is not None and not self._open.knows(call_id) and (is_unique(call_id) or self.messages):
            self._early.setdefault(call_id, (orphan, {"text": text, "locator": locator, **told}))

    def _take_early(self, calls: list[Call]) -> None:
        """Results that a log has before their calls. A short id may be another call's, unless they stand side by side."""
        for call in calls:
            if (early := self._early.pop(call.call_id or "", None)) is not None:
                orphan, told = early
                self.rejects = [part for part in self.rejects if part is not orphan]
                self.result(call.call_id, **told)
        self._forget_early()

    def _forget_early(self) -> None:
        """A short id may be another call's: its result waits no longer than to what stands next to it."""
        self._early = {own: early for own, early in self._early.items() if is_unique(own)}

    def _settle(self) -> None:
        """After the results of a turn: those without a call id that could be of several different calls are set aside."""
        told, self._nameless = self._nameless, {}
        waiting = self._open.waiting
        if not waiting:
            return
        gone: dict[int, list[int]] = {}
        for index, hint in told.items():
            left = [i for i in waiting if hint in (None, self._steps[i].action)]
            rivals = [*left, *(i for i, other in told.items() if other == hint)]
            if left and len({(self._steps[i].action, self._steps[i].arguments.text) for i in rivals}) > 1:
                gone.setdefault(self._results[index].position, []).append(index)
        if gone:
            self._set_aside(gone, sorted({self._steps[i].action for i in waiting}))

    def _set_aside(self, gone: dict[int, list[int]], left: list[str]) -> None:
        """Take the results at these positions, of these steps, out again."""
        for position, indexes in gone.items():
            message = self.messages[position]
            self.rejects.append(
                Reject(
                    level="part",
                    locator=message.locator,
                    reason="result without a call id, and several calls of its turn that it could answer",
                    rule="ambiguous_result",
                    detail=f"open calls: {self._steps[indexes[0]].action}, {', '.join(left)}",
                    excerpt=excerpt(message.content or ""),
                )
            )
            for index in indexes:
                del self._results[index]
                self._open.add(index, self._steps[index].call_id)
        kept = [message for message in self.messages if message.position not in gone]
        places = {message.position: place for place, message in enumerate(kept)}
        self.messages[:] = [replace(message, position=places[message.position]) for message in kept]
        self._results = {i: replace(r, position=places[r.position]) for i, r in self._results.items()}

    def _why_orphan(self, call_id: str | None) -> str:
        if call_id is None:
            return "no call id, and no call of the latest turn is open"
        return f"call id {call_id!r}" + (" has its result already" if self._open.knows(call_id) else "")

    def also_answers(self, call_id: str | None) -> bool:
        """The result just added answers this call too (one result message may name several calls)."""
        index = self._open.take(call_id)
        if index is None or not self._results:
            return False
        self._results[index] = next(reversed(self._results.values()))
        return True

    def state(self, index: int, status: ResultStatus) -> None:
        """What the log says of a call (by its step) whose result it does not hold: the call stays unanswered."""
        self._states[index] = status

    @property
    def last_action(self) -> str:
        """The last decision's action; "" when there is none."""
        return self._steps[-1].action if self._steps else ""

    @property
    def calls(self) -> int:
        """How many tool calls there were so far."""
        return sum(step.kind == "tool" for step in self._steps)

    @property
    def ends_unanswered(self) -> bool:
        """True when the last turn calls tools and the log does not hold the result of every call."""
        if self._unparsed >= 0 and self._unparsed == len(self.messages) - 1:
            return True
        last = len(self._steps) - 1
        if last < 0 or self._steps[last].kind != "tool":
            return False
        turn = self._steps[last].position
        while last >= 0 and self._steps[last].position == turn:
            if last not in self._results:
                return True
            last -= 1
        return False

    def finish(
        self, *, id: str, format: str, locator: str, ending: Ending, ending_reason: str, **more: Any
    ) -> Episode:
        """The episode. `more` are further fields of schemas.episode.Episode.

        `tools` are those offered before `offer` named others, `policy_id` is the policy's name without temperature and
        prompt version (see connectors/episodes/policies.py).
        """
        self._settle()
        more |= {key: None for key in _LINKS if more.get(key) == id}
        offers = self._offers(more.get("tools"))
        offered = offers[0] if offers else more.get("tools")
        more["tools"] = _actions(offered)
        times = [m.created_at for m in self.messages if m.created_at is not None]
        if times:
            more.setdefault("started_at", min(times))
            more.setdefault("ended_at", max(times))
        more.setdefault("prompt_version", self._prompt_version())
        costs = [message.cost_usd for message in self.messages if message.cost_usd is not None]
        if more.get("cost_usd") is None and costs:
            more["cost_usd"] = round(fsum(costs), 12)
        deciders = self._policies(more)
        return Episode(
            episode_id=id,
            format=format,
            locator=locator,
            ending=ending,
            ending_reason=ending_reason,
            messages=self.messages,
            steps=self._finished(offers, deciders, offered),
            **more,
        )

    def _offers(self, tools: list[str] | None) -> list[list[str] | None]:
        """The tools offered at each step; `tools` are those before any were named."""
        return [tools if step.tools is None else step.tools for step in self._steps]

    def _policies(self, more: dict[str, Any]) -> list[str | None]:
        """Completes the episode's policy_id; returns that of each step whose model is not that of the first decision."""
        name, model = more.get("policy_id"), more.get("model")
        if name is None or model is None or not name.startswith(model):
            return [None] * len(self._steps)
        rest = more.get("temperature"), more.get("prompt_version")
        more["policy_id"] = policy_name(name, *rest)
        models = [self.messages[step.position].model for step in self._steps]
        first = next((model for model in models if model is not None), None)
        return [None if model in (None, first) else policy_name(model, *rest) for model in models]

    def _finished(
        self, offers: list[list[str] | None], deciders: list[str | None], tools: list[str] | None
    ) -> list[Step]:
        """The steps. A list of tools that is the episode's is not said again."""
        sets = {id(names): None if names is None else set(names) for names in offers}
        own = {id(names): None if names == tools else _actions(names) for names in offers}
        return [
            self._step(index, step, sets[id(names)], own[id(names)], decider)
            for index, (step, names, decider) in enumerate(zip(self._steps, offers, deciders, strict=True))
        ]

    def _prompt_version(self) -> str | None:
        """That of the system prompt, when the conversation begins with one."""
        first = self.messages[0] if self.messages else None
        if first is None or first.role not in ("system", "developer") or not first.content:
            return None
        if is_summary(first.content):
            return None
        return prompt_version(first.content)

    def _step(
        self,
        index: int,
        step: _Open,
        offered: set[str] | None,
        tools: list[str] | None,
        decider: str | None,
    ) -> Step:
        is_tool = step.kind == "tool"
        result = self._results.get(index, _MISSING)
        answered = result is not _MISSING
        state = result.status if answered else self._states.get(index, result.status)
        text, status, repair = step.arguments
        action, proposed = step.action, step.proposed
        valid = not is_tool or offered is None or action in offered or step.valid
        tool = meant(action, offered) if not valid and offered and proposed is None else None
        # A slip was taken for the tool only where the call went well, which in a group is the future of later calls.
        if tool is not None and (tool.kind != "name_near" or (state == "ok" and step.group is None)):
            action, proposed, valid = tool.name, action, True
            repair = f"{repair}+{tool.kind}" if repair else tool.kind
        return Step(
            step=index,
            position=step.position,
            kind=step.kind,
            action=tool_action(action) if is_tool else action,
            locator=step.locator,
            arguments=text,
            arguments_status=status,
            action_valid=valid,
            tool_call_id=step.call_id,
            result=result.text,
            result_status=state if is_tool else None,
            result_position=result.position if answered else None,
            error_class="other" if state == "error" and not answered else result.error_class,
            latency_s=result.latency_s,
            parallel_group=step.group,
            proposed_action=proposed,
            propensity=step.propensity,
            propensity_kind="missing" if step.propensity is None else "logged",
            logged_reward=step.reward if result.reward is None else result.reward,
            result_locator=result.locator if answered else None,
            repair=repair,
            logged_arguments=step.logged if status == "repaired" else None,
            policy_id=decider,
            tools=tools,
        )


def _actions(tools: list[str] | None) -> list[str] | None:
    return None if tools is None else [tool_action(name) for name in tools]
