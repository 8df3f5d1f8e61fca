"""Episodes as conversations: messages in the shape of chat templates, whose calls have ids of their own and objects as arguments.

The log's own call ids repeat within an episode and may be missing; here a call is `call_STEP`. A result that answers several
calls is said once for each. Arguments that are no object stand under `arguments`, text that could not be read under
`invalid_arguments`. Developers speak as the system: templates know no other name for it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NamedTuple

from logforge.connectors.episodes import bare_name
from logforge.schemas import Episode, Message, Step

Chat = dict[str, Any]
_ROLES = {"developer": "system"}


class Turn(NamedTuple):
    """One message of the agent with the decisions it took."""

    position: int
    steps: list[Step]

    @property
    def flaw(self) -> str | None:
        """Why nobody should learn to take this turn; None when nothing is wrong with its calls."""
        calls = [step for step in self.steps if step.kind == "tool"]
        if any(step.arguments_status == "invalid" for step in calls):
            return "invalid arguments"
        return "tool not on offer" if any(not step.action_valid for step in calls) else None


def turns_of(episode: Episode) -> list[Turn]:
    """The turns that took decisions, in order."""
    found: dict[int, list[Step]] = defaultdict(list)
    for step in episode.steps:
        found[step.position].append(step)
    return [Turn(position, steps) for position, steps in sorted(found.items())]


def chat_of(episode: Episode, stop: int | None = None) -> list[Chat]:
    """The messages before position `stop`; all of them without it."""
    calls, answers = defaultdict(list), defaultdict(list)
    for step in episode.steps:
        if step.kind == "tool":
            calls[step.position].append(step)
        if step.result_position is not None:
            answers[step.result_position].append(step)
    messages: list[Chat] = []
    for message in episode.messages[:stop]:
        if message.role == "tool":
            messages += [_answer(message, step) for step in answers[message.position]]
        else:
            messages.append(_said(message, calls[message.position]))
    return messages


def answer_of(episode: Episode, turn: Turn, last: int | None = None) -> Chat:
    """The agent's message of a turn, with its calls up to step `last` (all without it)."""
    calls = [step for step in turn.steps if step.kind == "tool" and (last is None or step.step <= last)]
    return _said(episode.messages[turn.position], calls)


def prompt_flaw(prompt: list[Chat]) -> str | None:
    """Why a template could not have the agent go on from here; None when it could."""
    if not prompt:
        return "no prompt"
    last = prompt[-1]
    if last["role"] == "system":
        return "the prompt is the system's alone"
    if last["role"] == "assistant" and (last.get("tool_calls") or not last["content"]):
        return "a call before it is unanswered"
    return None


def arguments_of(step: Step) -> dict[str, Any]:
    """A call's arguments as an object."""
    if step.arguments_status == "invalid":
        return {"invalid_arguments": step.arguments}
    value = json.loads(step.arguments)
    return value if isinstance(value, dict) else {"arguments": value}


def _said(message: Message, calls: list[Step]) -> Chat:
    found: Chat = {"role": _ROLES.get(message.role, message.role), "content": message.content or ""}
    if message.thought:
        found["reasoning_content"] = message.thought
    if calls:
        found["tool_calls"] = [_call(step) for step in calls]
    return found


def _call(step: Step) -> Chat:
    function = {"name": bare_name(step.action), "arguments": arguments_of(step)}
    return {"id": f"call_{step.step}", "type": "function", "function": function}


def _answer(message: Message, step: Step) -> Chat:
    return {
        "role": "tool",
        "tool_call_id": f"call_{step.step}",
        "name": bare_name(step.action),
        "content": message.content or "",
    }
