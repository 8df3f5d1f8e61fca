"""What is wrong with a connector's readings, whatever file they are of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from logforge.connectors.records import json as jsontext
from logforge.schemas import Duplicate, Episode, Reading, Reject, Skip, Step


def counted(readings: Iterable[Reading]) -> int:
    """How many records some readings account for."""
    return sum(item.records for item in readings if not isinstance(item, Reject) or item.level == "record")


def episodes_in(readings: Iterable[Any]) -> list[Episode]:
    """The episodes among some readings."""
    return [item for item in readings if isinstance(item, Episode)]


def unsound(readings: Iterable[Any]) -> Iterator[str]:
    """What is wrong with some readings, whatever file they are of."""
    readings = list(readings)
    kept = {episode.episode_id for episode in episodes_in(readings)}
    for item in readings:
        if isinstance(item, Episode):
            yield from (f"{item.locator}: {what}" for what in _unsound_episode(item))
        elif not isinstance(item, Reject | Skip | Duplicate):
            yield f"yields a {type(item).__name__}, which is no reading"
        elif item.records < 1:
            yield f"{type(item).__name__} of {item.records} records"
        elif isinstance(item, Reject):
            if not item.reason or not item.rule:
                yield f"{item.locator}: a reject without a reason or rule"
            if item.level == "part" and item.episode_id is not None and item.episode_id not in kept:
                yield f"{item.locator}: part of an episode that is not there"


def _unsound_episode(episode: Episode) -> Iterator[str]:
    try:
        msgspec.convert(msgspec.to_builtins(episode), Episode, strict=True)
        json.loads(episode.metadata)
    except (ValueError, TypeError) as error:
        yield f"wrong type: {error}"
        return
    if len(episode.episode_id) != 32 or not set(episode.episode_id) <= set("0123456789abcdef"):
        yield f"episode id {episode.episode_id!r} is not 32 hex digits (use builder.episode_id or content_id)"
    if not episode.messages:
        yield "an episode without messages"
    if [m.position for m in episode.messages] != list(range(len(episode.messages))):
        yield "positions of messages are not 0, 1, 2, …"
    if [s.step for s in episode.steps] != list(range(len(episode.steps))):
        yield "steps are not numbered 0, 1, 2, …"
    if [s.position for s in episode.steps] != sorted(s.position for s in episode.steps):
        yield "steps are not in the order of their messages"
    for step in episode.steps:
        yield from (f"step {step.step}: {what}" for what in _unsound_step(step, episode))
    tools = {m.position for m in episode.messages if m.role == "tool"}
    answers = {s.result_position for s in episode.steps if s.result_position is not None}
    if tools != answers:
        yield f"tool messages at {sorted(tools)}, results of steps at {sorted(answers)}"


def _unsound_step(step: Step, episode: Episode) -> Iterator[str]:
    messages = episode.messages
    if not 0 <= step.position < len(messages) or messages[step.position].role != "assistant":
        yield f"its position {step.position} is no assistant message"
    if (step.result_status is None) != (step.kind != "tool"):
        yield f"result status {step.result_status!r} of a {step.kind} step"
    if (step.result_position is None) != (step.result is None):
        yield "a result and its position go together"
    if step.kind != "tool" and step.action != step.kind:
        yield f"action {step.action!r} of a {step.kind} step"
    if step.arguments_status != "invalid" and not _is_canonical(step.arguments):
        yield f"arguments are no canonical JSON: {step.arguments[:80]!r}"
    if step.result_position is not None:
        if not step.position < step.result_position < len(messages):
            yield f"its result lies at {step.result_position}, the call at {step.position}"
        elif (answer := messages[step.result_position]).role != "tool" or answer.content != step.result:
            yield "its result is not the text of the tool message at its position"


def _is_canonical(text: str) -> bool:
    try:
        return jsontext.canonical(jsontext.loads(text)) == text
    except (jsontext.NotJson, RecursionError):
        return False


def mispaired(episode: Episode) -> Iterator[str]:
    """The results of an episode that a nearer call of their id was waiting for."""
    for step in episode.steps:
        if step.tool_call_id is None or step.result_position is None:
            continue
        for other in episode.steps:
            waiting = other.result_position is None or other.result_position > step.result_position
            nearer = step.position < other.position < step.result_position
            if other.tool_call_id == step.tool_call_id and waiting and nearer:
                yield f"{episode.locator}: step {step.step} has the result at {step.result_position}, step {other.step} waited for it"
