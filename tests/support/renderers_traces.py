"""Talks written as traces: OpenTelemetry spans, Langfuse observations with their scores, LangSmith runs.

A span or a run repeats all that was said before it, without the thoughts: models are not sent those again.
"""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

from support.renderers import Said, Shape, Talk, Turn, lines, openai_messages

Request = tuple[list[dict[str, Any]], dict[str, Any]]
"""What a model was sent, and what it answered."""


def requests_of(talk: Talk) -> list[Request]:
    messages = openai_messages(talk)
    sent = [{key: value for key, value in m.items() if key != "reasoning_content"} for m in messages]
    return [(sent[:index], m) for index, m in enumerate(messages) if m["role"] == "assistant"]


def otlp(talks: list[Talk], chance: random.Random) -> bytes:
    """A span for each response, which repeats all that came before it; spans are written in any order."""
    rows = []
    for talk in talks:
        trace = uuid.uuid5(uuid.NAMESPACE_URL, talk.name).hex
        said: list[dict[str, Any]] = []
        for number, entry in enumerate(talk.entries):
            if isinstance(entry, Said):
                said.append({"role": entry.role, "parts": [{"type": "text", "content": entry.text}]})
                continue
            reply = {"role": "assistant", "parts": otlp_parts(entry), "finish_reason": "stop"}
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.input.messages": json.dumps(said),
                "gen_ai.output.messages": json.dumps([reply]),
            }
            begin = 1_772_000_000_000_000_000 + number * 10**9
            ids = {"traceId": trace, "spanId": f"{number:016x}", "parentSpanId": "", "name": "chat m"}
            times = {"startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 10**8)}
            rows.append(ids | times | {"attributes": attributes})
            said.append({k: reply[k] for k in ("role", "parts")})
            for index in entry.answered:
                act = entry.acts[index]
                part = {"type": "tool_call_response", "id": act.call_id, "response": act.answer}
                said.append({"role": "tool", "parts": [part]})
    chance.shuffle(rows)
    return lines(rows)


def otlp_parts(turn: Turn) -> list[dict[str, Any]]:
    parts = [{"type": "reasoning", "content": turn.thought}] if turn.thought is not None else []
    parts += [{"type": "text", "content": turn.text}] if turn.text is not None else []
    return parts + [
        {"type": "tool_call", "id": act.call_id, "name": act.name, "arguments": act.arguments}
        for act in turn.acts
    ]


# --- Langfuse -----------------------------------------------------------------------------------------------------------


def langfuse(talks: list[Talk], chance: random.Random) -> bytes:
    """Rows of observations and scores, in any order. A run lies inside an agent's, or its calls are all there is."""
    rows: list[dict[str, Any]] = []
    for talk in talks:
        same = {"trace_id": f"trace-{talk.name}", "trace_name": talk.name, "level": "DEFAULT"}
        agent = chance.random() < 0.5
        requests = requests_of(talk)
        above = f"{talk.name}-agent" if agent else ""
        if agent:
            whole = langfuse_row(same, above, "", "AGENT", 0, len(requests))
            rows.append(whole | {"name": "helper", "input": "", "output": "ignored"})
        for number, (asked, answer) in enumerate(requests):
            row = langfuse_row(same, f"{talk.name}-{number}", above, "GENERATION", number, number + 0.5)
            wrapped = chance.choice([asked, {"messages": asked}])
            replied = chance.choice([answer, {"choices": [{"message": answer}]}])
            rows.append(row | {"name": "llm", "input": json.dumps(wrapped), "output": json.dumps(replied)})
        if talk.success is not None:
            rows.append(langfuse_score(f"trace-{talk.name}", talk.success))
    chance.shuffle(rows)
    return lines(rows)


def langfuse_row(
    same: dict[str, Any], own: str, parent: str, kind: str, begin: float, end: float
) -> dict[str, Any]:
    times = {
        key: f"2026-05-28 20:26:{40 + seconds:09.6f}"
        for key, seconds in (("start_time", begin), ("end_time", end))
    }
    return {**same, **times, "id": own, "parent_observation_id": parent, "type": kind, "usage_details": {}}


def langfuse_score(trace: str, success: bool) -> dict[str, Any]:
    about = {"id": f"score-{trace}", "trace_id": trace, "observation_id": None, "name": "resolved"}
    return {**about, "value": int(success), "data_type": "BOOLEAN", "string_value": str(success)}


# --- LangSmith ----------------------------------------------------------------------------------------------------------


def langsmith_batches(talks: list[Talk], chance: random.Random) -> bytes:
    """What the SDK sends: a run's beginning, and later its end; other runs begin in between."""
    posts, patches = [], []
    for run in langsmith_all(talks, openai_run):
        ended = {key: run.pop(key) for key in ("outputs", "end_time")}
        posts.append(run)
        patches.append({key: run[key] for key in ("id", "trace_id", "dotted_order")} | ended)
    cut = chance.randint(1, len(posts) - 1)
    batches = [{"post": posts[:cut], "patch": patches[:cut]}, {"post": posts[cut:], "patch": patches[cut:]}]
    chance.shuffle(batches)
    return lines(batches)


def langsmith_runs(talks: list[Talk], chance: random.Random) -> bytes:
    """Runs as they are exported, in any order, with LangChain's messages."""
    rows = langsmith_all(talks, langchain_run)
    chance.shuffle(rows)
    return lines(rows)


def langsmith_all(talks: list[Talk], render: Any) -> list[dict[str, Any]]:
    """A chain, and in it a run for each response."""
    rows = []
    for talk in talks:
        trace = str(uuid.uuid5(uuid.NAMESPACE_URL, talk.name))
        chain = langsmith_run(trace, trace, 0, "chain", None)
        rows.append(chain | {"inputs": {"question": talk.name}, "outputs": {"answer": "ignored"}})
        for number, (asked, answer) in enumerate(requests_of(talk), 1):
            own = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{talk.name}-{number}"))
            rows.append(langsmith_run(trace, own, number, "llm", trace) | render(asked, answer))
    return rows


def langsmith_run(trace: str, own: str, number: int, kind: str, parent: str | None) -> dict[str, Any]:
    times = {
        "start_time": f"2026-01-02T10:00:{number:02}+00:00",
        "end_time": f"2026-01-02T10:00:{number:02}.5+00:00",
    }
    order = f"20260102T1000{number:02}000000Z{own}"
    return {
        "id": own,
        "trace_id": trace,
        "dotted_order": order,
        "run_type": kind,
        "name": "r",
        "parent_run_id": parent,
        **times,
    }


def openai_run(asked: list[dict[str, Any]], answer: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": answer, "finish_reason": "stop"}
    return {"inputs": {"messages": asked, "model": "m"}, "outputs": {"choices": [choice]}}


def langchain_run(asked: list[dict[str, Any]], answer: dict[str, Any]) -> dict[str, Any]:
    generation = {"text": "", "message": langchain_message(answer)}
    return {
        "inputs": {"messages": [[langchain_message(message) for message in asked]]},
        "outputs": {"generations": [[generation]]},
    }


def langchain_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message as LangChain serializes it: by its class, with the vendor's own keys below `additional_kwargs`."""
    names = {
        "system": "SystemMessage",
        "user": "HumanMessage",
        "assistant": "AIMessage",
        "tool": "ToolMessage",
    }
    inner: dict[str, Any] = {"content": message["content"] or ""}
    kept = {key: message[key] for key in ("tool_calls", "reasoning_content") if key in message}
    if "tool_calls" in kept:
        inner["tool_calls"] = [
            {"id": call["id"], "name": call["function"]["name"], "args": arguments_of(call)}
            for call in kept.pop("tool_calls")
        ]
    if "tool_call_id" in message:
        inner["tool_call_id"] = message["tool_call_id"]
    inner["additional_kwargs"] = kept
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", names[message["role"]]],
        "kwargs": inner,
    }


def arguments_of(call: dict[str, Any]) -> Any:
    return json.loads(call["function"]["arguments"])


# --- MLflow -------------------------------------------------------------------------------------------------------------


def mlflow(talks: list[Talk], chance: random.Random) -> bytes:
    """A trace for each talk, in the words of MLflow 2 or 3; its spans lie in any order."""
    return lines([mlflow_trace(talk, chance, newer=chance.random() < 0.5) for talk in talks])


def mlflow_trace(talk: Talk, chance: random.Random, *, newer: bool) -> dict[str, Any]:
    trace = uuid.uuid5(uuid.NAMESPACE_URL, talk.name).hex
    spans = []
    for number, (asked, answer) in enumerate(requests_of(talk)):
        told = chance.choice(
            [{"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}, answer]
        )
        attributes = {
            "mlflow.spanType": json.dumps(chance.choice(["LLM", "CHAT_MODEL"])),
            "mlflow.spanInputs": json.dumps({"messages": asked, "model": "m"}),
            "mlflow.spanOutputs": json.dumps(told),
        }
        spans.append(mlflow_span(trace, number, attributes, newer=newer))
    chance.shuffle(spans)
    assessments = []
    if talk.success is not None:
        about = {"assessment_name": "resolved", "source": {"source_type": "CODE"}}
        assessments.append(about | {"feedback": {"value": talk.success}})
    names = ("trace_id", "trace_metadata") if newer else ("request_id", "request_metadata")
    info = dict(zip(names, (f"tr-{trace}" if newer else trace, {}), strict=True)) | {
        "assessments": assessments
    }
    return {"info": info, "data": {"spans": spans}}


def mlflow_span(trace: str, number: int, attributes: dict[str, str], *, newer: bool) -> dict[str, Any]:
    begin = 1_772_000_000_000_000_000 + number * 10**9
    ids = {"trace_id": trace, "span_id": f"{number:016x}"}
    same = {"name": "llm", "attributes": attributes, "events": []}
    if newer:
        times = {"start_time_unix_nano": begin, "end_time_unix_nano": begin + 10**8}
        return {
            **ids,
            **times,
            **same,
            "parent_span_id": None,
            "status": {"code": "STATUS_CODE_OK", "message": ""},
        }
    times = {"start_time": begin, "end_time": begin + 10**8}
    return {**same, **times, "context": ids, "parent_id": None, "status_code": "OK", "status_message": ""}


SHAPES = {
    "otlp": Shape("otlp", ".jsonl", otlp, ends_with_agent=True),
    "langfuse": Shape("langfuse", ".jsonl", langfuse, ends_with_agent=True, judged=True),
    "mlflow": Shape("mlflow", ".jsonl", mlflow, ends_with_agent=True, judged=True),
    "langsmith batches": Shape("langsmith_runs", ".jsonl", langsmith_batches, ends_with_agent=True),
    "langsmith runs": Shape("langsmith_runs", ".jsonl", langsmith_runs, ends_with_agent=True, silence=""),
}
