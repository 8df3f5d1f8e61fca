"""One OpenHands run, put together from its events: shared by the exported trajectories and the evaluation outputs.

An action event takes a decision, an observation event brings its result and names the action's id as `cause`. Between
a `delegate` action and its observation stand the events of the agent delegated to: a run of its own.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from logforge.connectors.chat import calls_of, tool_names
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    count_or_none,
    first_bool,
    first_text,
    micros,
    object_or_empty,
    place_of,
    text_of,
    text_or_none,
)
from logforge.connectors.records import at
from logforge.schemas import Ending, ResultStatus

NO_DECISION = frozenset(
    {"recall", "change_agent_state", "null", "pause", "resume", "stop", "start", "init", "condensation"}
    | {"condensation_request", "loop_recovery", "agent_state_changed", "condense", "success"}
)
"""Kinds of events that neither decide nor answer anything. They are kept in the metadata."""
_STOPPED = re.compile(
    r"maximum (?:iteration|budget)|reached.{0,40}(?:iteration|budget)|stuck in a loop", re.I
)
_STILL_RUNS = re.compile(r"timed out|no new output|has no new", re.I)
_ENDS: dict[str, tuple[Ending, str]] = {
    "finish": ("terminal", "the agent finished"),
    "reject": ("terminal", "the agent rejected the task"),
}
_STATES: dict[str, tuple[Ending, str]] = {
    "finished": ("terminal", "agent state: finished"),
    "rejected": ("terminal", "agent state: rejected"),
}
_UNFINISHED = frozenset({"error", "stopped", "paused", "rate_limited", "running", "loading", "init"})


class _Made(NamedTuple):
    """An action event: the id of its call (None: it was no call of the agent) and when it was taken."""

    call_id: str | None
    time: int | None


class Run:
    """Takes one agent's events in order."""

    def __init__(self, parent: Run | None = None, task: str | None = None) -> None:
        self.builder = EpisodeBuilder()
        self.parent = parent
        self.task = task
        self.children: list[Run] = []
        self.active: Run | None = None
        self.model: str | None = None
        self.others: list[Any] = []
        self.locator = ""
        self.records = 0
        self._made: dict[Any, _Made] = {}
        self._turns: dict[str, set[str | None]] = {}
        self._ends: tuple[Ending, str] | None = None

    def add(self, event: dict[str, Any], where: str) -> None:
        """Take one event, or hand it to the agent that was delegated to."""
        if self.active is not None:
            if self.active.active is not None or event.get("observation") != "delegate":
                self.active.add(event, where)
                return
            self._leave()
        self.locator = self.locator or where
        self.records += 1
        name = event.get("action") if isinstance(event.get("action"), str) else event.get("observation")
        if name in NO_DECISION:
            self._note(event)
        elif isinstance(event.get("action"), str):
            self._action(event, where)
        else:
            self._observation(event, where)

    def close(self) -> None:
        """No event follows. Runs without a message are given up; their events count as their parent's."""
        if self.active is not None:
            self._leave()

    def _leave(self) -> None:
        child, self.active = self.active, None
        if child is None:
            return
        child.close()
        if child.builder.messages:
            self.children.append(child)
        else:
            self.records += child.records
            self.others += child.others
            self.builder.rejects += child.builder.rejects

    def _note(self, event: dict[str, Any]) -> None:
        self.others.append({key: value for key, value in event.items() if key != "tool_call_metadata"})
        extras = event.get("extras")
        if event.get("observation") == "agent_state_changed" and isinstance(extras, dict):
            state = extras.get("agent_state")
            if not isinstance(state, str):
                return
            if state in _UNFINISHED:
                self._ends = ("truncated", f"agent state: {state}")
            elif state in _STATES:
                self._ends = _STATES[state]

    def _action(self, event: dict[str, Any], where: str) -> None:
        name, source, args = str(event["action"]), event.get("source"), object_or_empty(event.get("args"))
        time = micros(event.get("timestamp"))
        if name == "system":
            self.builder.message(
                "system",
                args.get("content"),
                place_of(args, "content", place_of(event, "args", where)),
            )
            self.builder.offer(tool_names(args.get("tools")))
        elif name == "message":
            self._say(event, args, where, time)
        elif source in ("user", "environment"):
            key = next((k for k in ("command", "code", "path") if isinstance(args.get(k), str)), None)
            text, place = (name, "/action") if key is None else (args[key], f"/args/{key}")
            self.builder.message("user", text, where + place, created_at=time)
            self._remember(event, None, time)
        else:
            self._decide(event, args, where, time)
            self._ends = _ENDS.get(name)
            if name == "delegate":
                self.active = Run(self, _delegated(args))

    def _say(self, event: dict[str, Any], args: dict[str, Any], where: str, time: int | None) -> None:
        content, place = (
            text_of(args.get("content")),
            place_of(args, "content", place_of(event, "args", where)),
        )
        self._remember(event, None, time)
        self._ends = None
        if event.get("source") == "agent" or (event.get("source") is None and self._is_turn_of_agent()):
            self.builder.turn(content, [], place, created_at=time)
            waits = args.get("wait_for_response") is True
            self._ends = (
                ("truncated", "the agent waits for the user")
                if waits
                else ("terminal", "end of conversation")
            )
        else:
            self.builder.message("user", content, place, created_at=time)

    def _is_turn_of_agent(self) -> bool:
        """In old records, which name no source: the user opens and answers, all else is the agent's."""
        last = self.builder.messages[-1].role if self.builder.messages else ""
        return last not in ("", "system", "assistant")

    def _decide(self, event: dict[str, Any], args: dict[str, Any], where: str, time: int | None) -> None:
        """Add the turn that this action belongs to, once: the calls of one model response are several actions."""
        made = object_or_empty(event.get("tool_call_metadata"))
        own_id = text_or_none(made.get("tool_call_id"))
        key = own_id if own_id is not None else text_or_none(event.get("id"))
        self._remember(event, key, time)
        response = object_or_empty(made.get("model_response"))
        response_id = text_or_none(response.get("id"))
        if response_id is not None and own_id in self._turns.get(response_id, ()):
            return
        self.model = self.model or text_or_none(response.get("model"))
        message = _message(response)
        place = at(where, "/tool_call_metadata/model_response/choices/0/message")
        before = len(self.builder.rejects)
        calls = calls_of(message, place, self.builder.rejects)
        if own_id is None or own_id not in {call.call_id for call in calls}:
            del self.builder.rejects[before:]
            self._bare(made, event, args, where, key, time)
            return
        if response_id is not None:
            self._turns.setdefault(response_id, set()).update(call.call_id for call in calls)
        usage = object_or_empty(response.get("usage"))
        self.builder.turn(
            message.get("content"),
            calls,
            place_of(message, "content", place),
            thought=first_text(message, "reasoning_content"),
            created_at=time,
            model=text_or_none(response.get("model")),
            tokens_in=count_or_none(usage.get("prompt_tokens")),
            tokens_out=count_or_none(usage.get("completion_tokens")),
        )

    def _bare(
        self,
        made: dict[str, Any],
        event: dict[str, Any],
        args: dict[str, Any],
        where: str,
        key: str | None,
        time: int | None,
    ) -> None:
        """An action without the model's own call: its kind is the call's name, its arguments are the call's."""
        name = text_or_none(made.get("function_name")) or str(event["action"])
        thought = text_or_none(args.get("thought")) if name != "think" else None
        arguments = {k: v for k, v in args.items() if k != "thought" or thought is None}
        call = Call(name, arguments, key, where)
        self.builder.turn(None, [call], where, thought=thought, created_at=time)

    def _remember(self, event: dict[str, Any], call_id: str | None, time: int | None) -> None:
        if isinstance(event.get("id"), int | str):
            self._made[event["id"]] = _Made(call_id, time)

    def _observation(self, event: dict[str, Any], where: str) -> None:
        content, time = text_of(event.get("content")), micros(event.get("timestamp"))
        is_error = event["observation"] == "error"
        if is_error and _STOPPED.search(content or ""):
            self._ends = ("truncated", (content or "")[:80])
        cause, made = event.get("cause"), object_or_empty(event.get("tool_call_metadata"))
        action = self._made.get(cause) if isinstance(cause, int | str) else None
        call_id = text_or_none(made.get("tool_call_id")) or (action.call_id if action else None)
        linked = call_id is not None or (cause is not None and action is None)
        if not linked and (action is not None or "id" in event or is_error):
            # Nothing it could answer: the agent reads it as news from its surroundings.
            self.builder.message("user", content, place_of(event, "content", where), created_at=time)
            return
        failed, status = _verdict(event, is_error)
        began = action.time if action else None
        self.builder.result(
            call_id if call_id is not None else text_or_none(cause),
            content,
            place_of(event, "content", where),
            failed=failed,
            status=status,
            latency_s=None if began is None or time is None else max(0, time - began) / 1e6,
            created_at=time,
        )

    def ending(self, error: str | None = None) -> tuple[Ending, str]:
        """Whether the run came to its end, by the harness's error, the last action, or the agent's state."""
        return ending_of(self.builder, self._ends, error)


def ending_of(
    builder: EpisodeBuilder, said: tuple[Ending, str] | None, error: str | None
) -> tuple[Ending, str]:
    """How a run ended: by the harness's error, by what its log said last, else it just stops."""
    if error is not None:
        return "truncated", f"error: {error[:80]}"
    if said is not None:
        return said
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    return "truncated", "the log stops before the agent finishes"


def _verdict(event: dict[str, Any], is_error: bool) -> tuple[bool | None, ResultStatus | None]:
    """What the log itself says of the result: its flag, else the exit code; a command that still runs timed out."""
    if event["observation"] == "user_rejected":
        return True, "refused"
    extras = object_or_empty(event.get("extras"))
    process = extras["metadata"] if isinstance(extras.get("metadata"), dict) else extras
    code, success = process.get("exit_code"), first_bool(event, "success")
    if code == -1 and _STILL_RUNS.search(f"{process.get('suffix')} {event.get('content')}"):
        return True, "timeout"
    if success is None and isinstance(code, int):
        success = code == 0
    return (True, None) if is_error else (None if success is None else not success, None)


def _delegated(args: dict[str, Any]) -> str | None:
    return first_text(object_or_empty(args.get("inputs")), "task")


def _message(response: dict[str, Any]) -> dict[str, Any]:
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return object_or_empty(object_or_empty(first).get("message"))
