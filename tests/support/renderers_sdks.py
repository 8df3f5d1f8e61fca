"""Talks written as the SDKs of agents keep them."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from support.renderers import Act, Said, Shape, Talk, Turn, ends_open, has_last_word, lines, shuffled_together
from support.written_files import database

# --- the Vercel AI SDK --------------------------------------------------------------------------------------------------


def text_part(text: str | None) -> dict[str, Any]:
    return {"type": "text", "text": text}


def vercel_ui(talks: list[Talk], chance: random.Random) -> bytes:
    """UI messages of version 5; the agent's turns in a row are steps of one message, or messages of their own."""
    return lines([{"id": t.name, "success": t.success, "messages": ui_messages(t, chance, 5)} for t in talks])


def vercel_v4(talks: list[Talk], chance: random.Random) -> bytes:
    """UI messages of version 4, as a list of one chat."""
    return json.dumps(ui_messages(talks[0], chance, 4)).encode()


def ui_messages(talk: Talk, chance: random.Random, version: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            said = {"id": "u", "role": entry.role, "parts": [text_part(entry.text)]}
            found.append(said if version == 5 else said | {"content": entry.text})
            continue
        parts: list[dict[str, Any]] = [{"type": "step-start"}]
        if entry.thought is not None:
            key = "text" if version == 5 else "reasoning"
            parts.append({"type": "reasoning", key: entry.thought})
        parts += [text_part(entry.text)] if entry.text is not None else []
        parts += [ui_call(act) if version == 5 else old_call(act) for act in entry.acts]
        if found[-1]["role"] == "assistant" and chance.random() < 0.5:
            found[-1]["parts"] += parts
        else:
            found.append({"id": "a", "role": "assistant", "parts": parts})
        if version == 4:
            found[-1]["content"] = entry.text or ""
    return found


def ui_call(act: Act) -> dict[str, Any]:
    state = "input-available" if act.answer is None else "output-available"
    call = {"type": f"tool-{act.name}", "toolCallId": act.call_id, "state": state, "input": act.arguments}
    return call if act.answer is None else call | {"output": act.answer}


def old_call(act: Act) -> dict[str, Any]:
    call = {"toolCallId": act.call_id, "toolName": act.name, "args": act.arguments}
    call |= {"state": "call"} if act.answer is None else {"state": "result", "result": act.answer}
    return {"type": "tool-invocation", "toolInvocation": call}


def vercel_model(talks: list[Talk], chance: random.Random) -> bytes:
    """Model messages, a line for each talk."""
    rows = [{"id": t.name, "success": t.success, "messages": model_messages(t)} for t in talks]
    return lines(rows)


def model_messages(talk: Talk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            content: Any = entry.text if entry.role == "system" else [text_part(entry.text)]
            found.append({"role": entry.role, "content": content, "providerOptions": {"openai": {}}})
            continue
        blocks = [] if entry.thought is None else [{"type": "reasoning", "text": entry.thought}]
        blocks += [] if entry.text is None else [text_part(entry.text)]
        for act in entry.acts:
            named = {"toolCallId": act.call_id, "toolName": act.name}
            blocks.append({"type": "tool-call", **named, "input": act.arguments})
        found.append({"role": "assistant", "content": blocks})
        if entry.answered:
            found.append({"role": "tool", "content": [model_result(entry, i) for i in entry.answered]})
    return found


def model_result(turn: Turn, index: int) -> dict[str, Any]:
    act = turn.acts[index]
    output = {"type": "text", "value": act.answer}
    return {"type": "tool-result", "toolCallId": act.call_id, "toolName": act.name, "output": output}


# --- Bedrock's Converse API -----------------------------------------------------------------------------------------------


def bedrock(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        system = [entry.text for entry in talk.entries if isinstance(entry, Said) and entry.role == "system"]
        row = {"id": talk.name, "success": talk.success, "messages": bedrock_messages(talk)}
        rows.append(row | ({"system": [{"text": system[0]}]} if system else {}))
    return lines(rows)


def bedrock_messages(talk: Talk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            said = {"role": "user", "content": [{"text": entry.text}]}
            found += [said] if entry.role == "user" else []
            continue
        blocks: list[dict[str, Any]] = []
        if entry.thought is not None:
            blocks.append({"reasoningContent": {"reasoningText": {"text": entry.thought}}})
        blocks += [] if entry.text is None else [{"text": entry.text}]
        for act in entry.acts:
            use = {"toolUseId": act.call_id, "name": act.name, "input": act.arguments}
            blocks.append({"toolUse": use})
        found.append({"role": "assistant", "content": blocks})
        results = [bedrock_result(entry.acts[index]) for index in entry.answered]
        found += [{"role": "user", "content": results}] if results else []
    return found


def bedrock_result(act: Act) -> dict[str, Any]:
    told = {"toolUseId": act.call_id, "content": [{"text": act.answer}], "status": "success"}
    return {"toolResult": told}


# --- OpenAI's Responses API -----------------------------------------------------------------------------------------------


def item_rows(talks: list[Talk], chance: random.Random) -> bytes:
    key = chance.choice(["input", "items", "messages"])
    rows = []
    for talk in talks:
        listed = [item for entry in talk.entries for item in items_of(entry)]
        rows.append({"id": talk.name, "success": talk.success, key: [NEVER, *listed]})
    return lines(rows)


NEVER = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "AAAA"}
"""An item that says nothing: without one, talk alone looks like Chat Completions."""


def items_of(entry: Said | Turn) -> list[dict[str, Any]]:
    if isinstance(entry, Said):
        return [{"role": entry.role, "content": entry.text}]
    results = [entry.acts[index] for index in entry.answered]
    told = [{"type": "function_call_output", "call_id": a.call_id, "output": a.answer} for a in results]
    return given_items(entry) + told


def given_items(turn: Turn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if turn.thought is not None:
        summary = {"type": "summary_text", "text": turn.thought}
        found.append({"type": "reasoning", "id": "rs", "summary": [summary]})
    if turn.text is not None:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        found.append({"type": "message", "role": "assistant", "content": content})
    for act in turn.acts:
        call = {"type": "function_call", "call_id": act.call_id, "name": act.name}
        found.append(call | {"arguments": json.dumps(act.arguments)})
    return found


def response_rows(talks: list[Talk], chance: random.Random) -> bytes:
    """A request for each turn: all that was said before, or only what is new, and the id of the response before it."""
    return lines(shuffled_together([response_exchanges(talk, chance) for talk in talks], chance))


def response_exchanges(talk: Talk, chance: random.Random) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said):
            new += items_of(entry)
            continue
        linked = bool(rows) and chance.random() < 0.5
        request = {"model": "m", "input": new if linked else said + new}
        request |= {"previous_response_id": rows[-1]["response"]["id"]} if linked else {}
        given = given_items(entry)
        response = {"id": f"resp_{talk.name}_{number}", "object": "response", "output": given}
        rows.append({"request": request, "response": response})
        said += new + [item for item in given if item["type"] != "reasoning"]
        new = items_of(entry)[len(given) :]
    return rows


def agents_sessions(talks: list[Talk], chance: random.Random) -> bytes:
    """The Agents SDK's store; the sessions are written at the same time."""
    queues = [
        [[talk.name, json.dumps(item)] for entry in talk.entries for item in items_of(entry)]
        for talk in talks
    ]
    told = [{"session_id": talk.name, "created_at": "2025-05-01 10:00:00"} for talk in talks]
    rows = [
        {"id": number, "session_id": name, "message_data": item, "created_at": "2025-05-01 10:00:00"}
        for number, (name, item) in enumerate(shuffled_together(queues, chance), 1)
    ]
    pieces = [["agent_sessions", row] for row in told] + [["agent_messages", row] for row in rows]
    return database(pieces)


# --- LangChain ------------------------------------------------------------------------------------------------------------


def langchain(talks: list[Talk], chance: random.Random) -> bytes:
    """Messages as their fields, as `messages_to_dict` gives them, or as constructors."""
    wrap = chance.choice([lambda fields: fields, langchain_dict, langchain_constructor])
    rows = []
    for talk in talks:
        messages = [wrap(fields) for entry in talk.entries for fields in langchain_fields(entry, chance)]
        rows.append({"id": talk.name, "success": talk.success, "messages": messages})
    return lines(rows)


def langchain_dict(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": fields["type"], "data": fields}


def langchain_constructor(fields: dict[str, Any]) -> dict[str, Any]:
    name = {"ai": "AIMessage", "human": "HumanMessage", "tool": "ToolMessage", "system": "SystemMessage"}
    known = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name[fields["type"]]]}
    return known | {"kwargs": fields}


def langchain_fields(entry: Said | Turn, chance: random.Random) -> list[dict[str, Any]]:
    common: dict[str, Any] = {"additional_kwargs": {}, "response_metadata": {}}
    if isinstance(entry, Said):
        return [{"type": {"user": "human"}.get(entry.role, entry.role), "content": entry.text, **common}]
    calls = [{"name": act.name, "args": act.arguments, "id": act.call_id} for act in entry.acts]
    content: Any = entry.text or ""
    if chance.random() < 0.5:
        content = [] if entry.text is None else [{"type": "text", "text": entry.text}]
        for act in entry.acts:
            content.append({"type": "tool_use", "id": act.call_id, "name": act.name, "input": act.arguments})
    told = {"type": "ai", "content": content, **common, "tool_calls": calls}
    if entry.thought is not None:
        told["additional_kwargs"] = {"reasoning_content": entry.thought}
    answers = [entry.acts[index] for index in entry.answered]
    return [
        told,
        *(
            {"type": "tool", "content": a.answer, "tool_call_id": a.call_id, "status": "success"}
            for a in answers
        ),
    ]


def langgraph(talks: list[Talk], chance: random.Random) -> bytes:
    """A checkpoint for each message, with all messages so far, packed or as JSON."""
    packed = chance.random() < 0.5 and fits_64_bits(talks)
    pieces: list[Any] = []
    for talk in talks:
        messages = [fields for entry in talk.entries for fields in langchain_fields(entry, chance)]
        for number in range(len(messages) + 1):
            listed = messages[:number]
            value = {"v": 4, "channel_values": {"messages": [packed_message(m, packed) for m in listed]}}
            row = {"thread_id": talk.name, "checkpoint_ns": "", "checkpoint_id": f"{talk.name}-{number:04}"}
            row |= {"parent_checkpoint_id": f"{talk.name}-{number - 1:04}" if number else None}
            row |= {"type": "msgpack" if packed else "json"}
            data = msgspec.msgpack.encode(value) if packed else json.dumps(value).encode()
            pieces.append(["checkpoints", row | {"checkpoint": data, "metadata": "{}"}])
    return database(pieces)


def fits_64_bits(talks: list[Talk]) -> bool:
    """MessagePack has no longer numbers."""
    try:
        msgspec.msgpack.encode(
            [[act.arguments for act in e.acts] for t in talks for e in t.entries if isinstance(e, Turn)]
        )
    except OverflowError:
        return False
    return True


def packed_message(fields: dict[str, Any], packed: bool) -> Any:
    if not packed:
        return langchain_constructor(fields)
    named = ["langchain_core.messages", "Message", fields, "model_validate_json"]
    return msgspec.msgpack.Ext(5, msgspec.msgpack.encode(named))


# --- Pydantic AI ----------------------------------------------------------------------------------------------------------


def pydantic_ai(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        messages = [message for entry in talk.entries for message in pydantic_messages(entry)]
        rows.append({"id": talk.name, "success": talk.success, "messages": messages})
    return lines(rows)


def pydantic_messages(entry: Said | Turn) -> list[dict[str, Any]]:
    if isinstance(entry, Said):
        kind = "system-prompt" if entry.role == "system" else "user-prompt"
        return [{"kind": "request", "parts": [{"part_kind": kind, "content": entry.text}]}]
    thoughts = [] if entry.thought is None else [{"part_kind": "thinking", "content": entry.thought}]
    texts = [] if entry.text is None else [{"part_kind": "text", "content": entry.text}]
    calls = [
        {"part_kind": "tool-call", "tool_name": act.name, "args": act.arguments, "tool_call_id": act.call_id}
        for act in entry.acts
    ]
    answers = [entry.acts[index] for index in entry.answered]
    returns = [
        {"part_kind": "tool-return", "tool_name": a.name, "content": a.answer, "tool_call_id": a.call_id}
        for a in answers
    ]
    found = [{"kind": "response", "parts": thoughts + texts + calls}]
    return found + ([{"kind": "request", "parts": returns}] if returns else [])


# --- Gemini's contents ----------------------------------------------------------------------------------------------------


def gemini(talks: list[Talk], chance: random.Random) -> bytes:
    snake = chance.random() < 0.5
    rows = []
    for talk in talks:
        contents = [content for entry in talk.entries for content in gemini_contents(entry, snake)]
        row = {"id": talk.name, "success": talk.success, "contents": contents}
        system = [entry.text for entry in talk.entries if isinstance(entry, Said) and entry.role == "system"]
        key = "system_instruction" if snake else "systemInstruction"
        rows.append(row | ({key: {"parts": [{"text": system[0]}]}} if system else {}))
    return lines(rows)


def gemini_contents(entry: Said | Turn, snake: bool) -> list[dict[str, Any]]:
    if isinstance(entry, Said):
        return [{"role": "user", "parts": [{"text": entry.text}]}] if entry.role == "user" else []
    parts: list[dict[str, Any]] = []
    parts += [{"text": entry.thought, "thought": True}] if entry.thought is not None else []
    parts += [{"text": entry.text}] if entry.text is not None else []
    for act in entry.acts:
        call = {"id": act.call_id, "name": act.name, "args": act.arguments}
        parts.append({"function_call" if snake else "functionCall": call})
    told = []
    for act in (entry.acts[index] for index in entry.answered):
        answer = {"id": act.call_id, "name": act.name, "response": {"output": act.answer}}
        told.append({"function_response" if snake else "functionResponse": answer})
    found = [{"role": "model", "parts": parts}]
    return found + ([{"role": "user", "parts": told}] if told else [])


def gemini_requests(talks: list[Talk], chance: random.Random) -> bytes:
    return lines(shuffled_together([gemini_exchanges(talk) for talk in talks], chance))


def gemini_exchanges(talk: Talk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for number, entry in enumerate(talk.entries):
        contents = gemini_contents(entry, False)
        if isinstance(entry, Turn):
            response = {"candidates": [{"content": contents[0]}], "responseId": f"{talk.name}-{number:012}"}
            rows.append({"request": {"contents": list(said)}, "response": response})
            spoken = [part for part in contents[0]["parts"] if not part.get("thought")]
            contents[0] = {"role": "model", "parts": spoken}
        said += contents
    return rows


# --- smolagents -----------------------------------------------------------------------------------------------------------


def smolagents(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        steps = [smolagents_step(entry, number) for number, entry in enumerate(talk.entries)]
        rows.append({"id": talk.name, "success": talk.success, "steps": steps})
    return lines(rows)


def smolagents_step(entry: Said | Turn, number: int) -> dict[str, Any]:
    if isinstance(entry, Said):
        return {"system_prompt": entry.text} if entry.role == "system" else {"task": entry.text}
    calls = [{"id": a.call_id, "function": {"name": a.name, "arguments": a.arguments}} for a in entry.acts]
    step = {"step_number": number, "model_output": entry.text, "tool_calls": calls, "error": None}
    return step | {"observations": entry.acts[0].answer, "is_final_answer": False}


SMOLAGENTS: dict[str, Any] = {"thoughts": False, "parallel": False, "speech": False}


# --- AutoGen --------------------------------------------------------------------------------------------------------------


def autogen(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        messages = [message for entry in talk.entries for message in autogen_messages(entry)]
        rows.append({"id": talk.name, "success": talk.success, "messages": messages})
    return lines(rows)


def autogen_messages(entry: Said | Turn) -> list[dict[str, Any]]:
    if isinstance(entry, Said):
        return [{"type": "TextMessage", "source": "user", "content": entry.text}]
    found: list[dict[str, Any]] = []
    if entry.thought is not None:
        found.append({"type": "ThoughtEvent", "source": "helper", "content": entry.thought})
    if not entry.acts:
        return [*found, {"type": "TextMessage", "source": "helper", "content": entry.text}]
    calls = [{"id": a.call_id, "name": a.name, "arguments": json.dumps(a.arguments)} for a in entry.acts]
    found.append({"type": "ToolCallRequestEvent", "source": "helper", "content": calls})
    answers = [entry.acts[index] for index in entry.answered]
    told = [{"content": a.answer, "name": a.name, "call_id": a.call_id, "is_error": False} for a in answers]
    return found + ([{"type": "ToolCallExecutionEvent", "source": "helper", "content": told}] if told else [])


AUTOGEN: dict[str, Any] = {"system": False, "text_with_calls": False, "flags_failure": True}


# --- goose ----------------------------------------------------------------------------------------------------------------


def goose_export(talks: list[Talk], chance: random.Random) -> bytes:
    messages = [message for entry in talks[0].entries for message in goose_messages(entry)]
    return json.dumps({"id": talks[0].name, "working_dir": "/", "conversation": messages}).encode()


def goose_store(talks: list[Talk], chance: random.Random) -> bytes:
    """The sessions are written at the same time."""
    queues = [[(t.name, m) for entry in t.entries for m in goose_messages(entry)] for t in talks]
    pieces: list[Any] = [["sessions", {"id": talk.name, "working_dir": "/"}] for talk in talks]
    for number, (name, message) in enumerate(shuffled_together(queues, chance), 1):
        row = {"id": number, "session_id": name, "role": message["role"]}
        content = json.dumps(message["content"])
        pieces.append(
            ["messages", row | {"content_json": content, "created_timestamp": 1_750_000_000 + number}]
        )
    return database(pieces)


def goose_messages(entry: Said | Turn) -> list[dict[str, Any]]:
    if isinstance(entry, Said):
        return [{"role": entry.role, "created": 1_750_000_000, "content": [text_part(entry.text)]}]
    blocks: list[dict[str, Any]] = []
    if entry.thought is not None:
        blocks.append({"type": "thinking", "thinking": entry.thought, "signature": ""})
    blocks += [] if entry.text is None else [text_part(entry.text)]
    for act in entry.acts:
        call = {"status": "success", "value": {"name": act.name, "arguments": act.arguments}}
        blocks.append({"type": "toolRequest", "id": act.call_id, "toolCall": call})
    found = [{"role": "assistant", "created": 1_750_000_000, "content": blocks}]
    told = []
    for act in (entry.acts[index] for index in entry.answered):
        result = {"status": "success", "value": {"content": [text_part(act.answer)], "isError": False}}
        told.append({"type": "toolResponse", "id": act.call_id, "toolResult": result})
    return found + ([{"role": "user", "created": 1_750_000_000, "content": told}] if told else [])


def judged_ending(talk: Talk) -> bool:
    """A known outcome ends a talk, unless a call is still open."""
    return not ends_open(talk) and (talk.success is not None or has_last_word(talk))


JUDGED: dict[str, Any] = {"judged": True, "ending": judged_ending}
SHAPES = {
    "autogen": Shape("autogen", ".jsonl", autogen, **AUTOGEN, **JUDGED),
    "bedrock converse": Shape("bedrock_converse", ".jsonl", bedrock, flags_failure=True, **JUDGED),
    "gemini contents": Shape("gemini_contents", ".jsonl", gemini, flags_failure=True, **JUDGED),
    "gemini requests": Shape(
        "gemini_contents",
        ".jsonl",
        gemini_requests,
        flags_failure=True,
        system=False,
        ends_with_agent=True,
    ),
    "goose export": Shape("goose", ".json", goose_export, one_talk=True),
    "goose store": Shape("goose", ".db", goose_store),
    "langchain": Shape("langchain", ".jsonl", langchain, **JUDGED),
    "langgraph": Shape("langgraph_checkpoints", ".db", langgraph),
    "openai agents": Shape("openai_agents", ".db", agents_sessions),
    "openai items": Shape("openai_items", ".jsonl", item_rows, **JUDGED),
    "openai responses": Shape("openai_responses", ".jsonl", response_rows, ends_with_agent=True),
    "pydantic ai": Shape("pydantic_ai", ".jsonl", pydantic_ai, **JUDGED),
    "smolagents": Shape("smolagents", ".jsonl", smolagents, **SMOLAGENTS, **JUDGED),
    "vercel ui": Shape("vercel_ai", ".jsonl", vercel_ui, flags_failure=True, ordered=True, **JUDGED),
    "vercel version 4": Shape("vercel_ai", ".json", vercel_v4, ordered=True, one_talk=True),
    "vercel model messages": Shape("vercel_ai", ".jsonl", vercel_model, flags_failure=True, **JUDGED),
}
