"""What OpenTelemetry's GenAI attributes say of a span: messages as parts, as older events, or flattened prompts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Answer,
    Call,
    Text,
    Verdict,
    bad_part,
    cost_or_none,
    text_of,
    text_or_none,
)
from logforge.connectors.records import canonical
from logforge.connectors.traces.attributes import Attributes, Found, Row, rows_of
from logforge.connectors.traces.envelopes import Where
from logforge.connectors.traces.messages import Said, inside, read_message, read_messages, undecided
from logforge.connectors.traces.spans import Kind, Span, ToolRun, skip_reason
from logforge.schemas import Reject

_MODEL = frozenset({"chat", "generate_content", "text_completion"})
_KINDS: dict[str, Kind] = {"invoke_agent": "agent", "execute_tool": "tool", "invoke_workflow": "group"}
OPERATIONS = frozenset({*_KINDS, "embeddings", "retrieval", "create_agent", "plan"})
"""Operations whose spans are skipped under their own name when they belong to no run."""
_ABOUT = re.compile(r"(?:gen_ai|event|index|role|finish_reason)(?:[._]|\Z)")
"""Attributes of a message's event that are no message."""
_HISTORY = ("system", "user", "assistant", "tool")
EVALUATION = "gen_ai.evaluation.result"


class Event(NamedTuple):
    """A span event."""

    name: str
    attributes: Attributes
    body: Found | None


def speaks(attributes: Attributes, events: list[Event]) -> bool:
    """True when a span is written in these conventions."""
    return any(key.startswith("gen_ai.") for key in attributes) or any(
        event.name.startswith("gen_ai.") for event in events
    )


def fill(span: Span, name: str, attributes: Attributes, events: list[Event]) -> None:
    """Read a span's attributes and events into it."""
    span.kind, span.reason = _kind(name, attributes, events)
    span.agent = attributes.text("gen_ai.agent.name", "gen_ai.agent.id")
    span.conversation = attributes.text("gen_ai.conversation.id")
    span.session = attributes.text("session.id")
    span.user = attributes.text("user.id", "enduser.id")
    span.verdicts += verdicts(events)
    for key in ("gen_ai.agent.id", "gen_ai.agent.version", "gen_ai.provider.name", "gen_ai.system"):
        if (value := attributes.text(key)) is not None:
            span.about[key] = value
    if span.kind == "tool":
        span.run = _tool_run(span, name, attributes, events)
    elif span.kind in ("model", "agent"):
        _fill_model(span, attributes, events)


def hear(span: Span, events: list[Event]) -> None:
    """Read the messages of a model span from its events alone, where it has none, and their verdicts."""
    if not span.heard and not span.replies:
        _hear(span, [], events)
        span.finish = span.finish or (span.replies[0].finish if span.replies else None)
    span.verdicts += verdicts(events)


def _hear(span: Span, told: list[Attributes], events: list[Event]) -> None:
    details = [e.attributes for e in events if e.name == "gen_ai.client.inference.operation.details"]
    for attributes in [*told, *details]:
        if not span.heard and not span.replies:
            _read_parts(span, attributes)
    if not span.heard and not span.replies:
        _read_events(span, events)


def _kind(name: str, attributes: Attributes, events: list[Event]) -> tuple[Kind, str]:
    operation = attributes.text("gen_ai.operation.name") or ""
    if operation in _MODEL:
        return "model", ""
    if operation in _KINDS:
        return _KINDS[operation], skip_reason(operation, OPERATIONS)
    if operation:
        return "other", skip_reason(operation, OPERATIONS)
    began = name.split(" ")[0]
    if began in _KINDS:
        return _KINDS[began], skip_reason(began, OPERATIONS)
    if "gen_ai.tool.call.id" in attributes or "gen_ai.tool.call.arguments" in attributes:
        return "tool", ""
    messages = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion")
    told = any(event.name == "gen_ai.choice" or event.name.endswith(".message") for event in events)
    if told or any(key.startswith(messages) for key in attributes) or began in _MODEL:
        return "model", ""
    return "other", "other_span"


def _fill_model(span: Span, attributes: Attributes, events: list[Event]) -> None:
    span.model = attributes.text("gen_ai.response.model", "gen_ai.request.model")
    span.temperature = attributes.number("gen_ai.request.temperature")
    span.prompt_version = attributes.text("gen_ai.prompt.version", "gen_ai.prompt.name")
    span.tokens_in = attributes.count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    span.tokens_out = attributes.count("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    costs = ("gen_ai.usage.cost", "gen_ai.usage.total_cost", "gen_ai.cost.total_cost")
    span.cost = cost_or_none(attributes.number(*costs))
    _hear(span, [attributes], events)
    details = [e.attributes for e in events if e.name == "gen_ai.client.inference.operation.details"]
    if not span.heard and not span.replies:
        span.heard = _indexed(attributes, "gen_ai.prompt", "user", span.rejects)
        span.replies = _indexed(attributes, "gen_ai.completion", "assistant", span.rejects)
    definitions = next(
        (f for told in [attributes, *details] if (f := told.find("gen_ai.tool.definitions"))), None
    )
    span.tools = tool_names(definitions.value) if definitions else _request_tools(attributes)
    reasons = attributes.get("gen_ai.response.finish_reasons")
    reasons = reasons if isinstance(reasons, list) else inside(reasons, lambda _: "")[0]
    listed = reasons[0] if isinstance(reasons, list) and reasons else reasons
    span.finish = text_or_none(listed) or (span.replies[0].finish if span.replies else None)


def _read_parts(span: Span, attributes: Attributes) -> None:
    """The current form: `gen_ai.input.messages` and the like, as JSON text or structured."""
    system = attributes.find("gen_ai.system_instructions")
    if system is not None:
        span.heard += read_messages(system.value, system.where, "system", span.rejects)
    for key, role, into in (
        ("gen_ai.input.messages", "user", span.heard),
        ("gen_ai.output.messages", "assistant", span.replies),
    ):
        if (found := attributes.find(key)) is not None:
            into += read_messages(found.value, found.where, role, span.rejects, named=True)


def _read_events(span: Span, events: list[Event]) -> None:
    """The older form: one event per message, in order."""
    for event in events:
        role = event.name.removeprefix("gen_ai.").removesuffix(".message")
        if event.name == "gen_ai.choice":
            span.replies += _event_message(event, "assistant", span.rejects)
        elif event.name == f"gen_ai.{role}.message" and role in _HISTORY:
            span.heard += _event_message(event, role, span.rejects)
        elif event.name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            key = event.name.replace("content.", "")
            found, into = event.attributes.find(key), span.heard if key.endswith("prompt") else span.replies
            said = "user" if key.endswith("prompt") else "assistant"
            into += read_messages(found.value, found.where, said, span.rejects) if found else []


def _event_message(event: Event, role: str, rejects: list[Reject]) -> list[Said]:
    whole = event.body or event.attributes.find("gen_ai.event.content")
    if whole is not None:
        value, where = inside(whole.value, whole.where)
        if isinstance(value, dict):
            shell = value if "message" in value else {"role": role, **value}
            said = read_message(shell, where, role, rejects)
            return [said] if said else []
        return read_messages(value, where, role, rejects)
    keys = ("content", "tool_calls", "message", "finish_reason", "id", "tool_call_id")
    fields = {key: event.attributes.get(key) for key in keys if key in event.attributes}
    if not fields:  # content capture was off: the event says only that there was a message
        odd = {key: event.attributes.get(key) for key in event.attributes if not _ABOUT.match(key)}
        return [undecided(event.attributes.locator, odd)] if odd else []
    if "message" not in fields or event.name != "gen_ai.choice":
        fields["role"] = role

    def where_in(pointer: str) -> str:
        key, slash, rest = pointer.removeprefix("/").partition("/")
        key, mark, text = key.partition("#")
        found = event.attributes.find(key)
        return found.where(mark + text + slash + rest) if found else event.attributes.locator

    said = read_message(fields, where_in, role, rejects)
    return [said] if said else []


def _indexed(attributes: Attributes, prefix: str, role: str, rejects: list[Reject]) -> list[Said]:
    """The form of older instrumentations: `gen_ai.prompt.0.role`, `gen_ai.completion.0.tool_calls.0.name`."""
    rows = attributes.rows(prefix)
    if rows:
        found = [_indexed_message(row, attributes.locator, role, rejects) for row in rows]
        return [said for said in found if said is not None]
    whole = attributes.find(prefix)
    return read_messages(whole.value, whole.where, role, rejects) if whole else []


def _indexed_message(row: Row, locator: str, role: str, rejects: list[Reject]) -> Said | None:
    named = row["role"].value if "role" in row else role
    shell = read_message({"role": named}, lambda _: locator, role, rejects)
    if shell is None or shell.unknown:
        return shell
    said, named = Said(shell.role, locator), shell.role
    content = row.get("content")
    if content is not None and content.value not in (None, ""):
        found = read_message({"role": named, "content": content.value}, _skip(content.where), role, rejects)
        if found is not None:
            said = Said(found.role, locator, found.texts, found.thoughts, found.calls, found.answers)
    if named == "tool":
        call_id = text_or_none(row["tool_call_id"].value) if "tool_call_id" in row else None
        where = content.locator if content else locator
        text = said.text if said.texts else (said.answers[0].text if said.answers else None)
        said.texts, said.answers = [], [Answer(call_id, text, False, where)]
    for call in rows_of(row, "tool_calls"):
        _indexed_call(said, call, locator, rejects)
    said.finish = text_or_none(row["finish_reason"].value) if "finish_reason" in row else None
    return said


def _skip(where: Where) -> Where:
    """Locators of a value that was wrapped under `content` only to be read."""
    return lambda pointer: where(pointer.removeprefix("/content"))


def _indexed_call(said: Said, call: Row, locator: str, rejects: list[Reject]) -> None:
    name = next((f.value for k in ("name", "function.name") if (f := call.get(k))), None)
    if not isinstance(name, str) or not name:
        rejects.append(bad_part(locator, "tool call without a name", "nameless_call", name))
        return
    arguments = next((f.value for k in ("arguments", "function.arguments") if (f := call.get(k))), None)
    said.calls.append(
        Call(name, arguments, text_or_none(call["id"].value) if "id" in call else None, locator)
    )


def _request_tools(attributes: Attributes) -> list[str] | None:
    for prefix in ("llm.request.functions", "gen_ai.request.tools"):
        names = {
            t for row in attributes.rows(prefix) if "name" in row and (t := text_or_none(row["name"].value))
        }
        if names:
            return sorted(names)
    return None


def _tool_run(span: Span, name: str, attributes: Attributes, events: list[Event]) -> ToolRun | None:
    tool = attributes.text("gen_ai.tool.name") or text_or_none(name.removeprefix("execute_tool").strip())
    if tool is None:
        return None
    run = ToolRun(tool, attributes.text("gen_ai.tool.call.id"), attributes.get("gen_ai.tool.call.arguments"))
    result = attributes.find("gen_ai.tool.call.result")
    if result is not None:
        run.result = Text(_result_text(result.value), result.locator)
    for event in events:
        if event.name == "gen_ai.tool.message" and run.arguments is None:
            run.arguments = event.attributes.get("content")
        elif event.name == "gen_ai.choice" and run.result is None:
            for said in _event_message(event, "tool", span.rejects):
                text, where = (said.text, said.place) if said.texts else _answer_of(said)
                run.result = Text(text or "", where)
    return run


def _answer_of(said: Said) -> tuple[str | None, str]:
    return (said.answers[0].text, said.answers[0].locator) if said.answers else (None, said.locator)


def _result_text(value: Any) -> str:
    return text_of(value) or "" if isinstance(value, str | list) else canonical(value)


def verdicts(events: list[Event]) -> list[Verdict]:
    """The evaluation results among a span's events."""
    return [_verdict(event.attributes) for event in events if event.name == EVALUATION]


def _verdict(said: Attributes) -> Verdict:
    return Verdict(
        name=said.text("gen_ai.evaluation.name"),
        score=said.number("gen_ai.evaluation.score.value", "gen_ai.evaluation.score"),
        label=said.text("gen_ai.evaluation.score.label", "gen_ai.evaluation.label"),
        source=said.text("gen_ai.evaluation.evaluator", "gen_ai.evaluation.method"),
        comment=said.text("gen_ai.evaluation.explanation"),
        locator=said.locator,
    )
