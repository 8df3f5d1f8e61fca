"""Talks written as the logs of vendors' APIs and frameworks: Anthropic, OpenAI's streams, Google's ADK."""

from __future__ import annotations

import json
import random
from typing import Any

from support.renderers import Said, Shape, Talk, Turn, lines, openai_messages, shuffled_together

# --- Anthropic ----------------------------------------------------------------------------------------------------------


def anthropic_requests(talks: list[Talk], chance: random.Random) -> bytes:
    """A request for each turn, with all that was said before but the thinking; the talks are held at the same time."""
    return lines(shuffled_together([anthropic_exchanges(talk, chance) for talk in talks], chance))


def anthropic_exchanges(talk: Talk, chance: random.Random) -> list[dict[str, Any]]:
    system = [entry.text for entry in talk.entries if isinstance(entry, Said) and entry.role == "system"]
    rows: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said):
            text = chance.choice([entry.text, [{"type": "text", "text": entry.text}]])
            messages += [{"role": "user", "content": text}] if entry.role == "user" else []
            continue
        content = anthropic_blocks(entry)
        request = {"model": "m", "max_tokens": 9, "messages": list(messages)}
        request |= (
            {"system": chance.choice([system[0], [{"type": "text", "text": system[0]}]])} if system else {}
        )
        response = {
            "id": f"msg_{talk.name}_{number}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": "tool_use" if entry.acts else "end_turn",
        }
        rows.append({"request": request, "response": response})
        said = [block for block in content if block["type"] != "thinking"]
        messages.append({"role": "assistant", "content": said})
        if entry.answered:
            results = [
                {"type": "tool_result", "tool_use_id": act.call_id, "content": act.answer}
                for act in (entry.acts[index] for index in entry.answered)
            ]
            messages.append({"role": "user", "content": results})
    return rows


def anthropic_blocks(turn: Turn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if turn.thought is not None:
        blocks.append({"type": "thinking", "thinking": turn.thought, "signature": "s"})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    for act in turn.acts:
        blocks.append({"type": "tool_use", "id": act.call_id, "name": act.name, "input": act.arguments})
    return blocks


def anthropic_session(talks: list[Talk], chance: random.Random) -> bytes:
    """Sessions of managed agents, one after the other, as an SDK records them."""
    rows: list[Any] = []
    for talk in talks:
        system = [entry.text for entry in talk.entries if isinstance(entry, Said) and entry.role == "system"]
        agent = {"model": {"id": "m"}, "system": system[0] if system else None}
        rows.append(["client.beta.sessions.create", {"id": f"sesn_{talk.name}", "agent": agent}])
        for number, event in enumerate(session_events(talk)):
            told = {"id": f"evt_{number}", **event, "processed_at": f"2026-01-02T10:00:00.{number:06}Z"}
            rows.append(["client.beta.sessions.events.stream", told])
    return lines(rows)


def session_events(talk: Talk) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            events += [{"type": "user.message", "content": texts(entry.text)}] if entry.role == "user" else []
            continue
        if entry.thought is not None:
            events.append({"type": "agent.thinking", "content": texts(entry.thought)})
        if entry.text is not None:
            events.append({"type": "agent.message", "content": texts(entry.text)})
        for act in entry.acts:
            events.append(
                {"type": "agent.tool_use", "id": act.call_id, "name": act.name, "input": act.arguments}
            )
        events.append({"type": "span.model_request_end", "model_usage": {}})
        for act in (entry.acts[index] for index in entry.answered):
            told = {"tool_use_id": act.call_id, "content": texts(act.answer)}
            events.append({"type": "agent.tool_result", **told})
    return events


def texts(text: str | None) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


# --- OpenAI's streams ---------------------------------------------------------------------------------------------------


def openai_stream(talks: list[Talk], chance: random.Random) -> bytes:
    """The messages of others, and the chunks of each response; the talks are held at the same time."""
    return lines(shuffled_together([stream_lines(talk, chance) for talk in talks], chance))


def stream_lines(talk: Talk, chance: random.Random) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, message in enumerate(openai_messages(talk)):
        if message["role"] != "assistant":
            rows.append({"session_id": talk.name, **message})
            continue
        same = {"session_id": talk.name, "id": f"chatcmpl-{number}", "object": "chat.completion.chunk"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for key in ("reasoning_content", "content"):
            deltas += [{key: piece} for piece in pieces(message.get(key) or "", chance)]
        for index, call in enumerate(message.get("tool_calls", ())):
            begun = {"name": call["function"]["name"], "arguments": ""}
            deltas.append({"tool_calls": [{"index": index, "id": call["id"], "function": begun}]})
            for piece in pieces(call["function"]["arguments"], chance):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        rows += [{**same, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        rows.append({**same, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return rows


def pieces(text: str, chance: random.Random) -> list[str]:
    cut = chance.randint(0, len(text))
    return [piece for piece in (text[:cut], text[cut:]) if piece]


# --- Google's ADK -------------------------------------------------------------------------------------------------------


def adk_sessions(talks: list[Talk], chance: random.Random) -> bytes:
    """Sessions, with keys in snake or camel case."""
    rows = []
    for talk in talks:
        snake = chance.random() < 0.5
        named = "invocation_id" if snake else "invocationId"
        events = [{named: "e-1", **event} for event in adk_events(talk, snake)]
        rows.append({"id": talk.name, "app_name": "a", "user_id": "u", "events": events})
    return lines(rows)


def adk_events(talk: Talk, snake: bool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []

    def add(author: str, role: str, parts: list[dict[str, Any]]) -> None:
        time = 1_767_348_000.0 + len(events)
        events.append({"author": author, "timestamp": time, "content": {"role": role, "parts": parts}})

    for entry in talk.entries:
        if isinstance(entry, Said):
            add("user", "user", [{"text": entry.text}])
            continue
        parts: list[dict[str, Any]] = []
        parts += [{"text": entry.thought, "thought": True}] if entry.thought is not None else []
        parts += [{"text": entry.text}] if entry.text is not None else []
        for act in entry.acts:
            call = {"id": act.call_id, "name": act.name, "args": act.arguments}
            parts.append({"function_call" if snake else "functionCall": call})
        add("helper", "model", parts)
        for act in (entry.acts[index] for index in entry.answered):
            told = {"id": act.call_id, "name": act.name, "response": {"output": act.answer}}
            add("helper", "user", [{"function_response" if snake else "functionResponse": told}])
    return events


def adk_evalset(talks: list[Talk], chance: random.Random) -> bytes:
    """One set; a case for each talk, an invocation for each time the user speaks."""
    cases = []
    for talk in talks:
        turns: list[dict[str, Any]] = []
        for entry in talk.entries:
            if isinstance(entry, Said):
                asked = {"role": "user", "parts": [{"text": entry.text}]}
                turns.append({"invocation_id": str(len(turns)), "user_content": asked})
                turns[-1]["intermediate_data"] = {"invocation_events": []}
                continue
            events = adk_events(Talk(talk.name, (entry,), None), True)
            if entry.acts:
                turns[-1]["intermediate_data"]["invocation_events"] += events
            else:
                turns[-1]["final_response"] = events[0]["content"]
        cases.append({"eval_id": talk.name, "conversation": turns})
    return json.dumps({"eval_set_id": "s", "eval_cases": cases}).encode()


GOOGLE: dict[str, Any] = {"system": False, "flags_failure": True}
SHAPES = {
    "anthropic requests": Shape(
        "anthropic_api", ".jsonl", anthropic_requests, ends_with_agent=True, flags_failure=True
    ),
    "anthropic session": Shape("anthropic_managed", ".jsonl", anthropic_session, ids_repeat=False),
    "openai stream": Shape("openai_stream", ".jsonl", openai_stream),
    "adk session": Shape("adk_session", ".jsonl", adk_sessions, **GOOGLE),
    "adk evalset": Shape("adk_evalset", ".json", adk_evalset, **GOOGLE),
}
