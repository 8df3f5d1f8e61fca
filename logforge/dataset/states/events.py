"""An episode as what happened, one thing after the other: what a live session is told, and what a stored episode replays.

A decision comes before the message that carries it: what the agent says as it decides, it did not know when it decided.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from logforge.schemas import Episode, Step


class Offered(msgspec.Struct, frozen=True, gc=False):
    """From now on these tools are on offer. None: nobody says which."""

    tools: list[str] | None


class Said(msgspec.Struct, frozen=True, gc=False):
    """A message, known from now on. `at` is in microseconds since 1970, UTC; `flags` say what was suspect in it and its calls."""

    role: str
    content: str | None
    thought: str | None = None
    at: int | None = None
    flags: tuple[str, ...] = ()


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A decision. Those of one `group` (and those without a message between them) see nothing of each other but the names
    and arguments of the earlier ones."""

    action: str
    arguments: str = "{}"
    is_tool: bool = True
    group: int | None = None
    call_id: str | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """What became of a call; `decision` counts the decisions from 0. The message that says so comes just before."""

    decision: int
    status: str | None
    error_class: str | None = None
    content: str | None = None
    latency_s: float | None = None


Event = Offered | Said | Decided | Answered


def events_of(episode: Episode) -> Iterator[Event]:
    """What happened in a stored episode, in its order."""
    steps = iter(episode.steps)
    calls = (step for step in episode.steps if step.kind == "tool" and step.result_position is not None)
    answers = iter(sorted(calls, key=_known_at))
    step, answer, tools = next(steps, None), next(answers, None), episode.tools
    yield Offered(tools)
    for message in episode.messages:
        while step is not None and step.position <= message.position:
            if _offered(episode, step) != tools:
                tools = _offered(episode, step)
                yield Offered(tools)
            is_tool = step.kind == "tool"
            yield Decided(step.action, step.arguments, is_tool, step.parallel_group, step.tool_call_id)
            step = next(steps, None)
        flags = tuple(message.flags or ())
        yield Said(message.role, message.content, message.thought, message.created_at, flags)
        while answer is not None and _known_at(answer) <= message.position:
            yield Answered(
                answer.step, answer.result_status, answer.error_class, answer.result, answer.latency_s
            )
            answer = next(answers, None)


def _offered(episode: Episode, step: Step) -> list[str] | None:
    return episode.tools if step.tools is None else step.tools


def _known_at(step: Step) -> int:
    """After which message a result is known: never before the call's own."""
    return max(step.position, step.result_position or 0)
