"""Memory of smolagents: the steps of a run, as `memory.get_full_steps()` and `get_succinct_steps()` give them.

A record is one run, or one step where steps stand alone. What a step observed is one text for all its calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import calls_of
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    count_or_none,
    first_text,
    micros,
    names_call,
    object_or_empty,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.connectors.sdks.talks import Placed, Sdk, Told, read_talks
from logforge.schemas import Reading

_LISTS = ("steps", "memory")
_STEP = re.compile(rb'"step_number"\s*:')
_FACTS = re.compile(rb'"(?:is_final_answer|model_output_message|action_output)"\s*:')
_KEYS = frozenset(
    {"step_number", "timing", "model_input_messages", "tool_calls", "error", "model_output_message"}
    | {"model_output", "code_action", "observations", "observations_images", "action_output", "token_usage"}
    | {"is_final_answer", "start_time", "end_time", "duration", "step", "agent_memory"}
)
_FINAL = "final_answer"


class Smolagents:
    """Steps of smolagents."""

    name = "smolagents"
    version = 1
    record = "one run (a line, an array element or the document), or one step where steps stand alone"
    fills = ("outcome", "score", "tokens", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Steps with a number, what the model gave and what came of it; a list of them begins with the task."""
        if head.container not in ("object", "array") or not _STEP.search(head.data):
            return 0.0
        listed = [head.keys.get(key, set()) for key in _LISTS if key in head.top]
        first = listed[0] if listed else head.top
        fits = {"step_number", "observations"} <= first or {"task", "task_images"} <= first
        return 0.95 if fits and _FACTS.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per run."""
        return read_talks([source], Sdk(self.name, _LISTS, _is_step, _add, _add_row))


def _is_step(value: Any) -> bool:
    kinds = ("step_number", "task", "plan", "system_prompt", "output")
    return isinstance(value, dict) and any(kind in value for kind in kinds)


def _add_row(builder: EpisodeBuilder, row: dict[str, Any], locator: str, told: Told) -> None:
    """A run's result beside its steps."""
    if row.get("state") == "max_steps_error":
        told.cut = "the limit of turns"


def _add(builder: EpisodeBuilder, steps: list[Placed], told: Told) -> None:
    _add_system(builder, steps)
    for step, where in steps:
        if not isinstance(step, dict):
            builder.unknown(where, step, decides=True)
        elif "step_number" in step and ("model_output" in step or "model_output_message" in step):
            _add_action(builder, step, where, told)
        elif isinstance(step.get("task"), str):
            told.ended = None
            builder.message("user", step["task"], at(where, "/task"))
        elif isinstance(step.get("plan"), str):
            # What it plans to do is told to itself, and is no action yet.
            builder.message("assistant", step["plan"], at(where, "/plan"))
        elif isinstance(step.get("system_prompt"), str):
            builder.message("system", step["system_prompt"], at(where, "/system_prompt"))
        elif "output" not in step:
            builder.unknown(where, step, decides=True)


def _add_system(builder: EpisodeBuilder, steps: list[Placed]) -> None:
    """The system prompt, from what the model was given first."""
    for step, where in steps:
        given = step.get("model_input_messages") if isinstance(step, dict) else None
        first = object_or_empty(given[0]) if isinstance(given, list) and given else {}
        if first.get("role") == "system" and (text := text_of(first.get("content"))):
            builder.message("system", text, at(where, "/model_input_messages/0/content"))
        if given:
            return


def _add_action(builder: EpisodeBuilder, step: dict[str, Any], where: str, told: Told) -> None:
    answer, usage = (
        object_or_empty(step.get("model_output_message")),
        object_or_empty(step.get("token_usage")),
    )
    key = "/model_output" if step.get("model_output") is not None else "/model_output_message/content"
    said = step.get("model_output") if step.get("model_output") is not None else answer.get("content")
    timing, error = object_or_empty(step.get("timing")), object_or_empty(step.get("error"))
    more: dict[str, Any] = {
        "created_at": micros(timing.get("start_time")),
        "tokens_in": count_or_none(usage.get("input_tokens")),
        "tokens_out": count_or_none(usage.get("output_tokens")),
    }
    calls, message = _calls(builder, step, answer, where), error.get("message")
    for name, value in step.items():
        if name not in _KEYS and names_call(name, value):
            builder.unknown(at(where, f"/{name}"), {name: value}, decides=True)
    text, place = text_of(said), at(where, key) if said is not None else where
    if calls:
        builder.turn(text, calls, place, **more)
    elif text or not error:
        # It was to call something, and what it said could not be read as a call.
        builder.message("assistant", text, place, **more)
        reason = "what the model gave could not be read as a call"
        builder.rejects.append(bad_part(where, reason, "unparsed_call", step))
    _observe(builder, step, calls, where, micros(timing.get("end_time")))
    kind = first_text(error, "type")
    if kind == "AgentMaxStepsError":
        told.cut = "the limit of turns"
    final = step.get("is_final_answer") is True or any(call.name == _FINAL for call in calls)
    told.ended = "the final answer" if final and not isinstance(message, str) else None


def _calls(builder: EpisodeBuilder, step: dict[str, Any], answer: dict[str, Any], where: str) -> list[Call]:
    """What ran, else what the model asked for: a call that failed is only there."""
    listed, place = step.get("tool_calls"), where
    if not listed:
        step, place = answer, at(where, "/model_output_message")
    found = calls_of(step, place, builder.rejects)
    return [
        call._replace(arguments={"code": call.arguments})
        if call.name == "python_interpreter" and isinstance(call.arguments, str)
        else call
        for call in found
    ]


def _observe(
    builder: EpisodeBuilder, step: dict[str, Any], calls: list[Call], where: str, time: int | None
) -> None:
    """What the step observed answers all its calls; an error does where nothing was observed, and is told behind it else."""
    error, seen = object_or_empty(step.get("error")), step.get("observations")
    message = error.get("message")
    rest = isinstance(message, str)
    if calls and isinstance(seen, str):
        _answer(builder, calls, seen, at(where, "/observations"), bool(error), time)
    elif calls and isinstance(message, str):
        _answer(builder, calls, message, at(where, "/error/message"), True, time)
        rest = False
    elif isinstance(seen, str) and seen:
        builder.message("user", seen, at(where, "/observations"), created_at=time)
    if rest:
        builder.message("user", text_or_none(message), at(where, "/error/message"), created_at=time)


def _answer(
    builder: EpisodeBuilder, calls: list[Call], text: str, where: str, failed: bool, time: int | None
) -> None:
    if builder.result(calls[0].call_id, text, where, failed=failed or None, created_at=time):
        for call in calls[1:]:
            builder.also_answers(call.call_id)
