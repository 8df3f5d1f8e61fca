"""What the Vercel AI SDK's attributes (`ai.…`) say of a span: a call of a model, a tool's run, or the invocation around them."""

from __future__ import annotations

from typing import Any

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import Text, text_of
from logforge.connectors.traces.attributes import Attributes
from logforge.connectors.traces.messages import Said, inside, read_messages
from logforge.connectors.traces.spans import Kind, Span, ToolRun

_MODEL_CALLS = (".doGenerate", ".doStream")
_OPERATIONS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")


def speaks(attributes: Attributes) -> bool:
    """True when a span is written by the AI SDK."""
    return "ai.operationId" in attributes


def fill(span: Span, attributes: Attributes) -> None:
    """Read a span's attributes into it."""
    operation = attributes.text("ai.operationId") or ""
    span.kind, span.reason = _kind(operation), "other_span"
    span.session = attributes.text("ai.telemetry.metadata.sessionId", "session.id")
    span.user = attributes.text("ai.telemetry.metadata.userId", "user.id")
    if (function := attributes.text("ai.telemetry.functionId")) is not None:
        span.about["ai.telemetry.functionId"] = function
    if span.kind == "agent":
        span.agent = function or operation
    elif span.kind == "model":
        _fill_model(span, attributes)
    elif span.kind == "tool":
        span.run = _tool_run(attributes)


def _kind(operation: str) -> Kind:
    if operation.endswith(_MODEL_CALLS):
        return "model"
    if operation == "ai.toolCall":
        return "tool"
    return "agent" if operation in _OPERATIONS else "other"


def _fill_model(span: Span, attributes: Attributes) -> None:
    span.model = attributes.text("ai.response.model", "gen_ai.response.model", "ai.model.id")
    span.temperature = attributes.number("ai.settings.temperature", "gen_ai.request.temperature")
    span.tokens_in = attributes.count(
        "ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.input_tokens"
    )
    span.tokens_out = attributes.count(
        "ai.usage.outputTokens", "ai.usage.completionTokens", "gen_ai.usage.output_tokens"
    )
    span.finish = attributes.text("ai.response.finishReason")
    if (prompt := attributes.find("ai.prompt.messages", "ai.prompt")) is not None:
        span.heard = read_messages(prompt.value, prompt.where, "user", span.rejects)
    reply = _reply(span, attributes)
    span.replies = [] if reply is None else [reply]
    span.tools = _tools(attributes.get("ai.prompt.tools"))


def _reply(span: Span, attributes: Attributes) -> Said | None:
    said = Said("assistant", span.locator, finish=span.finish)
    for key, into in (
        ("ai.response.reasoning", said.thoughts),
        ("ai.response.text", said.texts),
        ("ai.response.object", said.texts),
    ):
        found = attributes.find(key)
        if found is not None and (text := text_of(found.value)):
            into.append(Text(text, found.locator))
    if (calls := attributes.find("ai.response.toolCalls")) is not None:
        listed, where = inside(calls.value, calls.where)
        shell = {"role": "assistant", "tool_calls": listed}
        made = read_messages(shell, lambda p: where(p.removeprefix("/tool_calls")), "assistant", span.rejects)
        said.calls += [call for one in made for call in one.calls]
    return said if said.texts or said.thoughts or said.calls else None


def _tools(listed: Any) -> list[str] | None:
    """Names of the tools offered: definitions, each JSON text of its own."""
    tools, _ = inside(listed, lambda _: "")
    if not isinstance(tools, list):
        return None
    return tool_names([inside(tool, lambda _: "")[0] for tool in tools])


def _tool_run(attributes: Attributes) -> ToolRun | None:
    name = attributes.text("ai.toolCall.name")
    if name is None:
        return None
    run = ToolRun(name, attributes.text("ai.toolCall.id"), attributes.get("ai.toolCall.args"))
    if (result := attributes.find("ai.toolCall.result")) is not None:
        run.result = Text(text_of(result.value) or "", result.locator)
    return run
