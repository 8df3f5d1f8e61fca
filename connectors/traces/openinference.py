"""What OpenInference's attributes say of a span: flattened messages, tools, and annotations as rewards."""

from __future__ import annotations

from typing import Any, Literal

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Answer,
    Call,
    Text,
    Unknown,
    Verdict,
    bad_part,
    cost_or_none,
    text_of,
    text_or_none,
)
from logforge.connectors.traces.attributes import Attributes, Found, Row, number_of, rows_of
from logforge.connectors.traces.messages import Said, inside, plain, read_message, read_messages
from logforge.connectors.traces.spans import Kind, Span, ToolRun, skip_reason
from logforge.schemas import Reject

_KINDS: dict[str, Kind] = {"LLM": "model", "AGENT": "agent", "TOOL": "tool", "CHAIN": "group"}
KINDS = frozenset("llm agent tool chain embedding retriever reranker guardrail evaluator prompt".split())
"""Kinds whose spans are skipped under their own name when they belong to no run."""
_SCOPES: tuple[tuple[str, Literal["span", "trace", "session"]], ...] = (
    ("", "span"),
    ("trace.", "trace"),
    ("session.", "session"),
)


def speaks(attributes: Attributes) -> bool:
    """True when a span is written in these conventions."""
    return "openinference.span.kind" in attributes


def fill(span: Span, name: str, attributes: Attributes) -> None:
    """Read a span's attributes into it."""
    kind = (attributes.text("openinference.span.kind") or "").upper()
    span.kind, span.reason = _KINDS.get(kind, "other"), skip_reason(kind.lower(), KINDS)
    span.session = attributes.text("session.id")
    span.user = attributes.text("user.id")
    span.verdicts += _verdicts(attributes)
    for key in ("llm.provider", "llm.system", "metadata", "tag.tags"):
        if (value := attributes.get(key)) is not None and not isinstance(value, dict):
            span.about[key] = value
    if span.kind == "agent":
        span.agent = attributes.text("agent.name", "graph.node.id")
        _read_values(span, attributes)
    elif span.kind == "model":
        _fill_model(span, attributes)
    elif span.kind == "tool":
        span.run = _tool_run(name, attributes)


def _fill_model(span: Span, attributes: Attributes) -> None:
    span.model = attributes.text("llm.response.model_name", "llm.model_name", "llm.request.model_name")
    parameters, _ = inside(attributes.get("llm.invocation_parameters"), lambda _: "")
    if isinstance(parameters, dict):
        span.temperature = number_of(parameters.get("temperature"))
    span.prompt_version = attributes.text("llm.prompt_template.version")
    span.tokens_in = attributes.count("llm.token_count.prompt")
    span.tokens_out = attributes.count("llm.token_count.completion")
    span.cost = cost_or_none(attributes.number("llm.cost.total"))
    span.finish = attributes.text("llm.finish_reason")
    span.heard = _messages(attributes, "llm.input_messages", "user", span.rejects)
    span.replies = _messages(attributes, "llm.output_messages", "assistant", span.rejects)
    if not span.heard and not span.replies:
        _read_values(span, attributes)
    span.tools = _tools(attributes, parameters)


def _read_values(span: Span, attributes: Attributes) -> None:
    """The span's plain input and output, where no messages are given."""
    for key, role, into in (("input.value", "user", span.heard), ("output.value", "assistant", span.replies)):
        if (found := attributes.find(key)) is not None:
            into += read_messages(found.value, found.where, role, span.rejects)


def _messages(attributes: Attributes, prefix: str, role: str, rejects: list[Reject]) -> list[Said]:
    found = [_message(row, attributes.locator, role, rejects) for row in attributes.rows(prefix)]
    return [said for said in found if said is not None]


def _message(row: Row, locator: str, role: str, rejects: list[Reject]) -> Said | None:
    if not any(key.startswith("message.") for key in row):
        whole = row.get("")
        return read_message(whole.value, whole.where, role, rejects) if whole else None
    where = row[""].locator if "" in row else locator
    shell = {"role": row["message.role"].value if "message.role" in row else role}
    said = read_message(shell, lambda _: where, role, rejects)
    if said is None:
        return None
    said.answers = []
    _add_texts(said, row)
    for call in rows_of(row, "message.tool_calls"):
        _add_call(said, call, where, rejects)
    if not said.calls and (legacy := row.get("message.function_call_name")):
        arguments = row.get("message.function_call_arguments_json")
        if isinstance(legacy.value, str) and legacy.value:
            said.calls.append(Call(legacy.value, arguments.value if arguments else None, None, where))
    if said.role == "tool":
        call_id = text_or_none(row["message.tool_call_id"].value) if "message.tool_call_id" in row else None
        said.answers, said.texts = [Answer(call_id, said.text, False, said.place)], []
    if "message.finish_reason" in row:
        said.finish = text_or_none(row["message.finish_reason"].value)
    return said


def _add_texts(said: Said, row: Row) -> None:
    content = row.get("message.content")
    if content is not None and isinstance(content.value, dict) and said.role != "tool":
        said.unknown.append(Unknown(content.locator, content.value))
    elif content is not None and content.value not in (None, ""):
        said.texts.append(Text(text_of(content.value) or "", content.locator))
    for part in rows_of(row, "message.contents"):
        kind = part["message_content.type"].value if "message_content.type" in part else "part"
        text = part.get("message_content.text")
        if text is not None and isinstance(text.value, str):
            into = said.thoughts if kind in ("reasoning", "thinking") else said.texts
            into.append(Text(text.value, text.locator))
        elif (first := next(iter(part.values()), None)) is not None:
            said.texts.append(Text(f"[{kind}]", first.locator))


def _add_call(said: Said, call: Row, where: str, rejects: list[Reject]) -> None:
    name = call["tool_call.function.name"].value if "tool_call.function.name" in call else None
    if not isinstance(name, str) or not name:
        rejects.append(bad_part(where, "tool call without a name", "nameless_call", name))
        return
    arguments = call.get("tool_call.function.arguments")
    call_id = text_or_none(call["tool_call.id"].value) if "tool_call.id" in call else None
    place = call[""].locator if "" in call else where
    said.calls.append(Call(name, arguments.value if arguments else None, call_id, place))


def _tools(attributes: Attributes, parameters: Any) -> list[str] | None:
    names: list[str] = []
    for row in attributes.rows("llm.tools"):
        schema = row.get("tool.json_schema")
        value, _ = inside(schema.value, schema.where) if schema else (None, None)
        names += tool_names([value]) or []
        names += [str(row["tool.name"].value)] if "tool.name" in row else []
    if names:
        return sorted(set(names))
    return tool_names(parameters.get("tools")) if isinstance(parameters, dict) else None


def _tool_run(name: str, attributes: Attributes) -> ToolRun | None:
    tool = attributes.text("tool.name") or text_or_none(name)
    if tool is None:
        return None
    given = attributes.find("tool_call.function.arguments", "input.value", "tool.parameters")
    run = ToolRun(tool, attributes.text("tool_call.id", "tool.id"), _arguments(given))
    if (out := attributes.find("output.value")) is not None:
        run.result = Text(plain("tool", out.value, out.locator).text or "", out.locator)
    return run


def _arguments(given: Found | None) -> Any:
    """Arguments are an object; a bare text is what the tool was given, under the name the conventions use."""
    if given is None:
        return None
    value, _ = inside(given.value, given.where)
    return value if isinstance(value, dict) else {"input": value}


def _verdicts(attributes: Attributes) -> list[Verdict]:
    found: list[Verdict] = []
    for prefix, scope in _SCOPES:
        for word in ("annotation", "evaluation"):
            rows = attributes.rows(f"{prefix}{word}s")
            found += [v for row in rows if (v := _verdict(row, word, scope, attributes.locator))]
    return [v for i, v in enumerate(found) if not any(_same(v, earlier) for earlier in found[:i])]


def _same(one: Verdict, other: Verdict) -> bool:
    """Both forms may carry one result."""
    return one._replace(locator="") == other._replace(locator="")


def _verdict(row: Row, word: str, scope: Literal["span", "trace", "session"], locator: str) -> Verdict | None:
    said = {key.removeprefix(f"{word}."): found.value for key, found in row.items()}
    score, label = number_of(said.get("score")), text_or_none(said.get("label"))
    if score is None and label is None and not said.get("explanation"):
        return None
    return Verdict(
        name=text_or_none(said.get("name")),
        score=score,
        label=label,
        source=text_or_none(said.get("annotator_kind")),
        comment=text_or_none(said.get("explanation")),
        locator=next(iter(row.values())).locator if row else locator,
        scope=scope,
    )
