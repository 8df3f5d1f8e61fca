"""One run of OpenHands' Software Agent SDK (1.x), put together from its events, which name their `kind`.

A message is a MessageEvent, a call an ActionEvent (those of one `llm_response_id` are one turn), its answer an ObservationEvent, an
AgentErrorEvent or a UserRejectObservation with the same `tool_call_id`. The other kinds are kept in the metadata.
"""

from __future__ import annotations

from typing import Any

from logforge.connectors.agents.openhands_run import ending_of
from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    first_text,
    micros,
    place_of,
    text_of,
    text_or_none,
)
from logforge.connectors.records import at, canonical
from logforge.schemas import Ending, ResultStatus

_ANSWERS = frozenset({"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"})
_STOPS = {"PauseEvent": "the user paused it", "InterruptEvent": "the user interrupted it"}
_OPEN = frozenset({"idle", "running"})
"""States of a run that say nothing of its end."""


def is_sdk_event(event: Any) -> bool:
    """True for an event of the SDK."""
    kind = event.get("kind") if isinstance(event, dict) else None
    return isinstance(kind, str) and "source" in event


_ACTION = frozenset(
    {
        "id",
        "timestamp",
        "source",
        "kind",
        "thought",
        "reasoning_content",
        "thinking_blocks",
        "action",
        "summary",
    }
    | {"tool_name", "tool_call_id", "tool_call", "llm_response_id", "security_risk", "critic_result"}
    | {"responses_reasoning_item"}
)
"""The keys of an action."""
_ANSWER = frozenset(
    {"id", "timestamp", "source", "kind", "observation", "error", "rejection_reason", "rejection_source"}
    | {"tool_name", "tool_call_id", "action_id"}
)
"""The keys of what an action gave."""


class SdkRun:
    """Takes a run's events in order. Offers what `openhands_run.Run` offers."""

    def __init__(self) -> None:
        self.builder = EpisodeBuilder()
        self.children: list[Any] = []
        self.model: str | None = None
        self.task: str | None = None
        self.others: list[Any] = []
        self.locator = ""
        self.records = 0
        self._events: list[tuple[dict[str, Any], str]] = []
        self._ends: tuple[Ending, str] | None = None

    def add(self, event: dict[str, Any], where: str) -> None:
        """Take one event."""
        self.locator = self.locator or where
        self.records += 1
        self._events.append((event, where))

    def close(self) -> None:
        """No event follows: put them together, the calls of a response where the first of them stands."""
        responses: dict[str, list[tuple[dict[str, Any], str]]] = {}
        for event, where in self._events:
            if event.get("kind") == "ActionEvent":
                own = text_or_none(event.get("llm_response_id")) or where
                responses.setdefault(own, []).append((event, where))
        for event, where in self._events:
            kind = event.get("kind")
            if kind == "ActionEvent":
                self._decide(responses.pop(text_or_none(event.get("llm_response_id")) or where, []))
            elif kind == "MessageEvent":
                self._say(event, where)
            elif kind in _ANSWERS:
                self._answer(event, where)
            elif kind == "SystemPromptEvent":
                prompt = event.get("system_prompt")
                text = text_of([prompt] if isinstance(prompt, dict) else prompt)
                self.builder.message("system", text, place_of(event, "system_prompt", where))
                self.builder.offer(tool_names(event.get("tools")) or None)
            else:
                self._note(event)

    def _decide(self, actions: list[tuple[dict[str, Any], str]]) -> None:
        """The turn of one response; empty for actions that were added with the first of theirs."""
        calls = [call for event, where in actions if (call := self._call(event, where)) is not None]
        if not calls:
            return
        event, where = actions[0]
        for other, spot in actions:
            if other.get("thought") is None:
                self.builder.silent(other, _ACTION, spot, decides=False)
        text = next((text for event, _ in actions if (text := text_of(event.get("thought")))), None)
        self.builder.turn(
            text,
            calls,
            place_of(event, "thought", where) if text else where,
            thought=_thought(event),
            created_at=micros(event.get("timestamp")),
        )
        finishes = any(call.name == "finish" for call in calls)
        self._ends = ("terminal", "the agent finished") if finishes else None

    def _call(self, event: dict[str, Any], where: str) -> Call | None:
        """The call as the model made it; the action lacks what the program did not understand."""
        made = event.get("tool_call")
        made = made if isinstance(made, dict) else {}
        name = first_text(event, "tool_name") or first_text(made, "name")
        if name is None:
            self.builder.rejects.append(bad_part(where, "tool call without a name", "nameless_call", event))
            return None
        action = event.get("action")
        taken = {k: v for k, v in action.items() if k != "kind"} if isinstance(action, dict) else None
        place = at(where, "/tool_call" if made else "")
        return Call(name, made.get("arguments", taken), first_text(event, "tool_call_id"), place)

    def _say(self, event: dict[str, Any], where: str) -> None:
        said = event.get("llm_message")
        said = said if isinstance(said, dict) else {}
        text, place = text_of(said.get("content")), place_of(event, "llm_message", where)
        time = micros(event.get("timestamp"))
        if event.get("source") == "agent":
            self.builder.turn(text, [], place, thought=_thought(said), created_at=time)
            self._ends = ("terminal", "end of conversation")
        else:
            self.builder.message("user", text, place, created_at=time)
            self._ends = None

    def _answer(self, event: dict[str, Any], where: str) -> None:
        kind, observation = event["kind"], event.get("observation")
        seen = observation if isinstance(observation, dict) else {}
        failed: bool | None = True if kind != "ObservationEvent" else None
        status: ResultStatus | None = "refused" if kind == "UserRejectObservation" else None
        code = seen.get("exit_code")
        if seen.get("is_error") is True or (isinstance(code, int) and code != 0):
            failed = True
        elif code == 0 or seen.get("is_error") is False:
            failed = False
        text = _observed(seen) if seen else first_text(event, "error", "rejection_reason")
        if text is None:
            self.builder.silent(event, _ANSWER, where, decides=False)
        key = next((key for key in ("observation", "error", "rejection_reason") if key in event), "")
        self.builder.result(
            first_text(event, "tool_call_id"),
            text,
            place_of(event, key, where),
            failed=failed,
            status="timeout" if seen.get("timeout") is True else status,
            created_at=micros(event.get("timestamp")),
        )

    def _note(self, event: dict[str, Any]) -> None:
        """What happened around the run; the last state tells how it ended."""
        self.others.append(event)
        kind, value = str(event.get("kind")), event.get("value")
        state = value.get("execution_status") if isinstance(value, dict) else value
        if kind in _STOPS:
            self._ends = ("truncated", _STOPS[kind])
        elif kind == "ConversationErrorEvent":
            self._ends = ("truncated", f"error: {first_text(event, 'code', 'detail') or 'unknown'}")
        elif kind != "ConversationStateUpdateEvent" or not isinstance(state, str) or state in _OPEN:
            return
        elif event.get("key") in ("execution_status", "agent_status", "full_state"):
            self._ends = ("terminal" if state == "finished" else "truncated", f"execution status: {state}")

    def ending(self, error: str | None = None) -> tuple[Ending, str]:
        """Whether the run came to its end, by the harness's error, the last state, or the last decision."""
        return ending_of(self.builder, self._ends, error)


def _thought(part: dict[str, Any]) -> str | None:
    """What the model thought: not the `thought` of an action, which is what it said."""
    blocks = part.get("thinking_blocks")
    texts = (
        [block.get("thinking") for block in blocks if isinstance(block, dict)]
        if isinstance(blocks, list)
        else []
    )
    joined = "\n".join(text for text in texts if isinstance(text, str) and text)
    return first_text(part, "reasoning_content") or joined or None


def _observed(seen: dict[str, Any]) -> str | None:
    """What a tool showed: its content, in older versions its output, else all that it gave."""
    if "content" in seen:
        return text_of(seen["content"])
    if isinstance(seen.get("output"), str):
        return str(seen["output"])
    return canonical({key: value for key, value in seen.items() if key != "kind"})
