"""MLflow traces: `info` with `data.spans`, as `Trace.to_json()`, `search_traces` and the artifact `traces.json` write them.

MLflow 3 names ids and times as OpenTelemetry does, MLflow 2 in words of its own; the attributes are the same: JSON text of the
span's type, its inputs and its outputs. A record is a span.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Text,
    Verdict,
    bad_part,
    cost_or_none,
    count_or_none,
    first_text,
    object_or_empty,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, loads
from logforge.connectors.traces.attributes import escape, number_of, time_of
from logforge.connectors.traces.envelopes import Where, below, is_foreign
from logforge.connectors.traces.episodes import Traces
from logforge.connectors.traces.messages import Said, inside, read_messages, undecided
from logforge.connectors.traces.spans import Kind, Span, ToolRun, skip_reason
from logforge.schemas import Duplicate, Reading, Reject, Skip

_KINDS: dict[str, Kind] = {
    "LLM": "model",
    "CHAT_MODEL": "model",
    "AGENT": "agent",
    "TOOL": "tool",
    "CHAIN": "group",
    "WORKFLOW": "group",
    "TASK": "group",
    "UNKNOWN": "group",
}
TYPES = frozenset(
    "llm chat_model agent tool chain retriever parser embedding reranker memory unknown workflow task guardrail "
    "evaluator".split()
)
"""Types of spans that are skipped under their own name when they belong to no run."""
_SPEAKS = (b'"mlflow.spanType"', b'"mlflow.spanInputs"', b'\\"mlflow.spanType\\"', b'\\"mlflow.spanInputs\\"')
_TRACE = ("trace_id", "request_id")
_ATTRIBUTES = frozenset(
    {
        "mlflow.traceRequestId",
        "mlflow.spanType",
        "mlflow.spanInputs",
        "mlflow.spanOutputs",
        "mlflow.chat.tools",
    }
    | {
        "mlflow.chat.messages",
        "mlflow.chat.tokenUsage",
        "mlflow.llm.cost",
        "mlflow.llm.model",
        "invocation_params",
    }
    | {"mlflow.spanFunctionName", "mlflow.message.format", "mlflow.linkedPrompts", "metadata", "options"}
)


class MLflow:
    """Traces of MLflow 2 and 3."""

    name = "mlflow"
    version = 1
    record = "one span; a trace without any counts as one"
    fills = ("outcome", "score", "tools", "thoughts", "tokens", "cost", "latency", "times")

    def sniff(self, head: Head) -> float:
        """Spans with MLflow's attributes, in `data` or at the top."""
        if head.container not in ("object", "array") or not any(word in head.data for word in _SPEAKS):
            return 0.0
        return 0.95 if "spans" in head.top | head.keys.get("data", set()) or "trace" in head.top else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per agent invocation, session or trace, after what is skipped or set aside."""
        traces = Traces(self.name)
        seen: set[tuple[str, str]] = set()
        for locator, row in traces.watched(source.records()):
            if isinstance(row, Reject):
                yield row
                continue
            try:
                readings = _take(row, locator, traces, seen)
            except RecursionError:
                readings = [Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")]
            yield from readings
        yield from traces.episodes()


def _take(row: Any, locator: str, traces: Traces, seen: set[tuple[str, str]]) -> list[Reading]:
    """The spans of a trace (read as a whole first, so that a trace is taken or set aside, never half)."""
    trace, where = _trace(row, lambda pointer: at(locator, pointer) if pointer else locator)
    info, data = object_or_empty(trace.get("info")), object_or_empty(trace.get("data"))
    listed, key = (data["spans"], "/data/spans") if "spans" in data else (trace.get("spans"), "/spans")
    if not isinstance(listed, list):
        return [reject(locator, "no list of spans", "", row)]
    if not listed:
        return [Skip(reason="empty_batch")]
    info = info or {name: value for name, value in trace.items() if name != "spans"}
    found: list[Span] = []
    readings: list[Reading] = []
    for index, span in enumerate(listed):
        read = _span(span, info, below(where, f"{key}/{index}"))
        if isinstance(read, Reject):
            readings.append(read)
        elif read.id is not None and (read.trace, read.id) in seen:
            readings.append(Duplicate())
        else:
            seen.add((read.trace, read.id or read.locator))
            found.append(read)
    _judge(found, info, where, "/info" if "info" in trace else "")
    _about(found, info)
    for read in found:
        traces.add(read)
    return readings


def _trace(row: Any, where: Where) -> tuple[dict[str, Any], Where]:
    """The trace of a record; a row of `search_traces` has it as JSON text in a column."""
    if isinstance(row, dict) and "spans" not in row and "data" not in row and "trace" in row:
        inner, below = inside(row["trace"], lambda pointer: where("/trace" + pointer))
        return object_or_empty(inner), below
    return object_or_empty(row), where


def _span(row: Any, info: dict[str, Any], where: Where) -> Span | Reject:
    if not isinstance(row, dict) or not isinstance(row.get("attributes"), dict):
        return reject(where(""), "no span: it has no attributes", "", row)
    context = object_or_empty(row.get("context"))
    trace = first_text(info, *_TRACE) or first_text({**context, **row}, "trace_id") or where("")
    own = first_text({**context, **row}, "span_id")
    given = {
        key: _value_of(raw, below(where, f"/attributes/{escape(key)}"))
        for key, raw in row["attributes"].items()
    }
    kind = text_or_none(_plain(given, "mlflow.spanType")) or "UNKNOWN"
    parent = first_text(row, "parent_span_id", "parent_id")
    reason = skip_reason(kind.lower(), TYPES)
    span = Span(trace.removeprefix("tr-"), own, parent, _KINDS.get(kind.upper(), "other"), where(""), reason)
    span.name = text_or_none(row.get("name"))
    span.start = time_of(row, ("start_time_unix_nano", "start_time"))
    span.end = time_of(row, ("end_time_unix_nano", "end_time"))
    _status(span, row, where)
    asked, told = given.get("mlflow.spanInputs"), given.get("mlflow.spanOutputs")
    if span.kind in ("model", "agent"):
        span.agent = span.name if span.kind == "agent" else None
        _fill_model(span, given, asked, told)
    elif span.kind == "tool" and span.name is not None:
        span.run = _tool_run(span.name, asked, told)
        if asked is None or told is None:
            span.rejects += [
                bad_part(value.where(""), "an attribute that is not understood", "unknown_part", value.value)
                for key, value in given.items()
                if key not in _ATTRIBUTES and isinstance(value.value, dict | list)
            ]
    elif span.kind == "tool":
        span.kind, span.reason = "other", "nameless_tool_span"
    return span


class _Value(NamedTuple):
    """An attribute: JSON text, or a value that was parsed already, with the locators inside it."""

    value: Any
    where: Where


def _value_of(raw: Any, where: Where) -> _Value:
    try:
        return _Value(loads(raw), below(where, "#")) if isinstance(raw, str) else _Value(raw, where)
    except NotJson:
        return _Value(raw, where)


def _plain(given: dict[str, _Value], key: str) -> Any:
    return given[key].value if key in given else None


def _status(span: Span, row: dict[str, Any], where: Where) -> None:
    status = object_or_empty(row.get("status"))
    code = (
        (first_text(status, "code") or first_text(row, "status_code") or "")
        .upper()
        .removeprefix("STATUS_CODE_")
    )
    span.failed = {"ERROR": True, "OK": False}.get(code)
    if span.failed:
        key, holder = ("/status/message", status) if status else ("/status_message", row)
        span.error, span.error_at = first_text(holder, "message", "status_message"), where(key)
        for index, event in enumerate(row["events"] if isinstance(row.get("events"), list) else ()):
            told = object_or_empty(object_or_empty(event).get("attributes"))
            if not span.error and (said := first_text(told, "exception.message")):
                span.error, span.error_at = said, where(f"/events/{index}/attributes/exception.message")


def _fill_model(span: Span, given: dict[str, _Value], asked: _Value | None, told: _Value | None) -> None:
    sent, answer = (
        object_or_empty(asked.value if asked else None),
        object_or_empty(told.value if told else None),
    )
    settings = object_or_empty(_plain(given, "invocation_params"))
    span.model = (
        text_or_none(_plain(given, "mlflow.llm.model"))
        or first_text(answer, "model")
        or first_text(sent, "model", "modelId", "model_name")
        or first_text(settings, "model", "model_name")
    )
    span.temperature = number_of(sent.get("temperature", settings.get("temperature")))
    usage = object_or_empty(_plain(given, "mlflow.chat.tokenUsage")) or object_or_empty(answer.get("usage"))
    span.tokens_in = count_or_none(usage.get("input_tokens", usage.get("prompt_tokens")))
    span.tokens_out = count_or_none(usage.get("output_tokens", usage.get("completion_tokens")))
    cost = _plain(given, "mlflow.llm.cost")
    span.cost = cost_or_none(
        object_or_empty(cost).get("total_cost", None if isinstance(cost, dict) else cost)
    )
    defined = _plain(given, "mlflow.chat.tools")
    span.tools = tool_names(defined if defined is not None else sent.get("tools"))
    span.finish = first_text(answer, "stop_reason", "finish_reason")
    span.heard = _system(sent, asked) + _messages(asked, "user", span)
    span.replies = _messages(told, "assistant", span)
    if (whole := given.get("mlflow.chat.messages")) is not None and not _is_read(span):
        said = read_messages(whole.value, whole.where, "user", span.rejects)
        ends = bool(said) and said[-1].role == "assistant"
        span.heard, span.replies = (said[:-1], said[-1:]) if ends else (said, span.replies)
    _note_unread(span, given)
    span.finish = span.finish or next((said.finish for said in span.replies if said.finish), None)


def _system(sent: dict[str, Any], asked: _Value | None) -> list[Said]:
    """Instructions that stand beside the messages."""
    for key in ("system", "instructions"):
        if asked is not None and (text := text_of(sent.get(key))):
            return [Said("system", asked.where(f"/{key}"), [Text(text, asked.where(f"/{key}"))])]
    return []


def _messages(value: _Value | None, role: str, span: Span) -> list[Said]:
    return [] if value is None else read_messages(value.value, value.where, role, span.rejects)


def _is_read(span: Span) -> bool:
    """The span's own inputs and outputs are messages that are understood."""
    both = [*span.heard, *span.replies]
    return any(said.role == "assistant" for said in span.replies) and not any(said.unknown for said in both)


def _note_unread(span: Span, given: dict[str, _Value]) -> None:
    """Messages under attributes that nobody reads, where the span's own are not there."""
    for key, value in given.items():
        if key in _ATTRIBUTES or not is_foreign(value.value):
            continue
        if not span.replies:
            span.replies = [undecided(value.where(""), value.value)]
        elif not span.heard:
            span.heard = [undecided(value.where(""), value.value)]


def _tool_run(name: str, asked: _Value | None, told: _Value | None) -> ToolRun:
    given = asked.value if asked else None
    run = ToolRun(name, None, given if given is None or isinstance(given, dict) else {"input": given})
    if told is not None and told.value is not None:
        answer, key = told.value, ""
        if (
            isinstance(answer, dict)
            and answer.get("type") == "tool"
            and isinstance(answer.get("content"), str)
        ):
            run.call_id, answer, key = text_or_none(answer.get("tool_call_id")), answer["content"], "/content"
        run.result = Text(text_of(answer) or "", told.where(key))
    return run


def _judge(spans: list[Span], info: dict[str, Any], where: Where, place: str) -> None:
    """Assessments judge the span that they name, else the trace. What people expected is no verdict."""
    listed = info.get("assessments")
    root = next((span for span in spans if span.parent is None), spans[0] if spans else None)
    for index, row in enumerate(listed if isinstance(listed, list) else ()):
        said = object_or_empty(row)
        feedback = object_or_empty(said.get("feedback"))
        if root is not None and "value" not in feedback and "expectation" not in said:
            part = bad_part(where(f"{place}/assessments/{index}"), "no feedback", "unknown_annotation", row)
            root.rejects.append(part)
        if root is None or "value" not in feedback or said.get("valid") is False:
            continue
        named = text_or_none(said.get("span_id"))
        target = next((span for span in spans if named is not None and span.id == named), root)
        value = feedback["value"]
        target.verdicts.append(
            Verdict(
                name=first_text(said, "assessment_name", "name"),
                score=None if isinstance(value, bool) else number_of(value),
                label=value if isinstance(value, str) else None,
                source=text_or_none(object_or_empty(said.get("source")).get("source_type")),
                comment=text_or_none(said.get("rationale")),
                locator=where(f"{place}/assessments/{index}"),
                scope="span" if named is not None else "trace",
                passed=value if isinstance(value, bool) else None,
            )
        )


def _about(spans: list[Span], info: dict[str, Any]) -> None:
    """Whose trace it is, and what else is noted about it."""
    facts = object_or_empty(info.get("trace_metadata")) or object_or_empty(info.get("request_metadata"))
    tags = object_or_empty(info.get("tags"))
    kept = {
        key: value
        for key, value in tags.items()
        if not key.startswith("mlflow.") or key == "mlflow.traceName"
    }
    for span in spans:
        span.session = text_or_none(facts.get("mlflow.trace.session"))
        span.user = text_or_none(facts.get("mlflow.trace.user"))
    if spans:
        spans[0].about = kept | {key: info[key] for key in ("client_request_id",) if info.get(key)}
