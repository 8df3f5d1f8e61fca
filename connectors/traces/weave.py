"""Calls of W&B Weave, exported as JSON (`CallDict`): lines or an array of {op_name, trace_id, id, parent_id, inputs, output, …}.

A record is a call. What a call is, `attributes.weave.kind` or the name of its op says; else its messages, where no other call lies in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Text,
    bad_part,
    cost_or_none,
    count_or_none,
    first_text,
    object_or_empty,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at
from logforge.connectors.traces.attributes import number_of, time_of
from logforge.connectors.traces.envelopes import Where, below
from logforge.connectors.traces.episodes import Traces
from logforge.connectors.traces.messages import Said, read_messages, undecided
from logforge.connectors.traces.mlflow import TYPES
from logforge.connectors.traces.spans import Kind, Span, ToolRun, skip_reason
from logforge.schemas import Duplicate, Reading, Reject

_KINDS: dict[str, Kind] = {"llm": "model", "tool": "tool", "agent": "agent"}
_MODEL_OPS = re.compile(
    r"(?:openai\.(?:chat\.completions|responses)\.(?:create|parse)|(?:openai\.)?beta\.chat\.completions\.parse"
    r"|anthropic\.(?:Async)?Messages\.(?:create|stream)|litellm\.a?completion|(?:groq|mistralai|cerebras)\.[\w.]*(?:create|complete|chat))"
)
_OP = re.compile(r"weave:///.*/op/([^:/]+)(?::.*)?")
_REF = "weave:///"
"""A text that begins so stands for an object that the export does not hold."""


class Weave:
    """Exported calls of Weave."""

    name = "weave"
    version = 1
    record = "one call"
    fills = ("tools", "thoughts", "tokens", "cost", "latency", "times")

    def sniff(self, head: Head) -> float:
        """Calls with an op, a trace and Weave's own names of times or of the project."""
        if head.container not in ("object", "array") or not {"op_name", "trace_id", "inputs"} <= head.top:
            return 0.0
        return 0.95 if {"started_at", "project_id"} & head.top else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per agent's call, thread or trace, after what is skipped or set aside."""
        traces = Traces(self.name)
        seen: set[tuple[str, str]] = set()
        for locator, row in traces.watched(source.records()):
            if isinstance(row, Reject):
                yield row
                continue
            try:
                read = _call(row, locator)
            except RecursionError:
                read = Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")
            if isinstance(read, Reject):
                yield read
            elif read.id is not None and (read.trace, read.id) in seen:
                yield Duplicate()
            else:
                seen.add((read.trace, read.id or read.locator))
                traces.add(read)
        holders = {(span.trace, span.parent) for span in traces.spans}
        for span in traces.spans:
            if span.kind == "other" and span.replies and (span.trace, span.id) not in holders:
                span.kind = "model"
        yield from traces.episodes()


def _call(row: Any, locator: str) -> Span | Reject:
    if not isinstance(row, dict) or not isinstance(row.get("op_name"), str):
        return reject(locator, "no call: it names no op", "", row)

    def where(pointer: str) -> str:
        return at(locator, pointer) if pointer else locator

    op = _OP.fullmatch(row["op_name"])
    name = op[1] if op else row["op_name"]
    told = object_or_empty(object_or_empty(row.get("attributes")).get("weave"))
    kind = text_or_none(told.get("kind")) or "other"
    meant: Kind = _KINDS.get(kind) or ("model" if _MODEL_OPS.fullmatch(name) else "other")
    trace = first_text(row, "trace_id") or locator
    reason = skip_reason(kind.lower(), TYPES)
    span = Span(
        trace, text_or_none(row.get("id")), text_or_none(row.get("parent_id")), meant, locator, reason
    )
    span.name = name
    span.start, span.end = time_of(row, ("started_at",)), time_of(row, ("ended_at",))
    span.session, span.user = text_or_none(row.get("thread_id")), text_or_none(row.get("wb_user_id"))
    summary = object_or_empty(object_or_empty(row.get("summary")).get("weave"))
    error = text_or_none(row.get("exception"))
    span.failed = True if error else {"error": True, "success": False}.get(str(summary.get("status")))
    span.error, span.error_at = error, where("/exception")
    asked = object_or_empty(row.get("inputs"))
    if meant in ("model", "agent") or (meant == "other" and _talks(asked, row.get("output"))):
        span.agent = name if meant == "agent" else None
        _fill_model(span, row, asked, where)
    elif meant == "tool":
        span.run = _tool_run(span, name, asked, row.get("output"), where)
    listed = summary.get("feedback")
    for index, said in enumerate(listed if isinstance(listed, list) else ()):
        place = where(f"/summary/weave/feedback/{index}")
        span.rejects.append(
            bad_part(place, "feedback of a kind that is not read", "unknown_annotation", said)
        )
    return span


def _talks(asked: dict[str, Any], output: Any) -> bool:
    """Messages went in, and an answer of a model's API came out."""
    answer = object_or_empty(output)
    return isinstance(asked.get("messages"), list) and (
        isinstance(answer.get("choices"), list) or answer.get("role") == "assistant"
    )


def _fill_model(span: Span, row: dict[str, Any], asked: dict[str, Any], where: Where) -> None:
    output = row.get("output")
    answer = object_or_empty(output)
    span.model = first_text(answer, "model") or first_text(asked, "model")
    span.temperature = number_of(asked.get("temperature"))
    summary = object_or_empty(row.get("summary"))
    used = object_or_empty(summary.get("usage"))
    usage = object_or_empty(answer.get("usage")) or object_or_empty(_sole(used))
    span.tokens_in = count_or_none(usage.get("prompt_tokens", usage.get("input_tokens")))
    span.tokens_out = count_or_none(usage.get("completion_tokens", usage.get("output_tokens")))
    span.cost = _cost(object_or_empty(_sole(object_or_empty(summary.get("weave")).get("costs"))))
    span.tools = tool_names(asked.get("tools"))
    span.finish = first_text(answer, "stop_reason", "finish_reason")
    for key in ("system", "instructions"):
        if text := text_of(asked.get(key)):
            span.heard.append(Said("system", where(f"/inputs/{key}"), [Text(text, where(f"/inputs/{key}"))]))
    sent = {key: value for key, value in asked.items() if key != "self"}
    for key, value in sent.items():
        if key in ("messages", "input", "contents") and _is_ref(value):
            reason = "an object that the export only names"
            span.rejects.append(bad_part(where(f"/inputs/{key}"), reason, "unknown_part", value))
            sent = {}
            break
    span.heard += read_messages(sent, below(where, "/inputs"), "user", span.rejects) if sent else []
    if _is_ref(output):
        span.replies = [undecided(where("/output"), output)]
    elif output is not None:
        span.replies = read_messages(output, below(where, "/output"), "assistant", span.rejects)
    span.finish = span.finish or next((said.finish for said in span.replies if said.finish), None)


def _sole(held: Any) -> Any:
    """The value under the one model that a call used."""
    return next(iter(held.values())) if isinstance(held, dict) and len(held) == 1 else None


def _cost(told: dict[str, Any]) -> float | None:
    parts = [
        cost_or_none(told.get(key)) for key in ("prompt_tokens_total_cost", "completion_tokens_total_cost")
    ]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _is_ref(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_REF)


def _tool_run(span: Span, name: str, asked: dict[str, Any], output: Any, where: Where) -> ToolRun:
    run = ToolRun(name, None, {key: value for key, value in asked.items() if key != "self"})
    if _is_ref(output):
        reason = "a result that the export only names"
        span.rejects.append(bad_part(where("/output"), reason, "unknown_part", output))
    elif output is not None:
        run.result = Text(text_of(output) or "", where("/output"))
    return run
