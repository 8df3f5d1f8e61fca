"""Talks written as chat apps export them, and as traffic that was captured."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

from support.renderers import Said, Shape, Talk, Turn, shuffled_together
from support.renderers_traces import requests_of


def chatgpt(talks: list[Talk], chance: random.Random) -> bytes:
    """A tree of nodes for each talk, written in any order; some answers were given twice."""
    return json.dumps([chatgpt_tree(talk, chance) for talk in talks]).encode()


def chatgpt_tree(talk: Talk, chance: random.Random) -> dict[str, Any]:
    own = str(uuid.uuid5(uuid.NAMESPACE_URL, talk.name))
    nodes: dict[str, dict[str, Any]] = {
        "root": {"id": "root", "message": None, "parent": None, "children": []}
    }
    at = "root"

    def add(key: str, role: str, content: dict[str, Any], **more: Any) -> str:
        author = {"role": role, "name": more.pop("tool", None), "metadata": {}}
        message = {
            "id": key,
            "author": author,
            "content": content,
            "recipient": "all",
            "metadata": {},
            **more,
        }
        nodes[key] = {"id": key, "message": message, "parent": at, "children": []}
        nodes[at]["children"].append(key)
        return key

    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said):
            at = add(f"{number}", entry.role, chatgpt_text(entry.text))
            continue
        if entry.thought is not None:
            thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "", "content": entry.thought}]}
            at = add(f"{number}-thought", "assistant", thoughts)
        if entry.text is not None:
            at = add(f"{number}-text", "assistant", chatgpt_text(entry.text), end_turn=not entry.acts)
        for act in entry.acts:
            given = {"content_type": "code", "language": "json", "text": json.dumps(act.arguments)}
            at = add(act.call_id, "assistant", given, recipient=act.name, end_turn=False)
        for index in entry.answered:
            act = entry.acts[index]
            at = add(f"{act.call_id}-result", "tool", chatgpt_text(act.answer or ""), tool=act.name)
    keys = list(nodes)
    chance.shuffle(keys)
    return {
        "title": talk.name,
        "mapping": {key: nodes[key] for key in keys},
        "current_node": at,
        "conversation_id": own,
    }


def chatgpt_text(text: str) -> dict[str, Any]:
    return {"content_type": "text", "parts": [text]}


def claude_ai(talks: list[Talk], chance: random.Random) -> bytes:
    """An assistant's message holds all that it did up to the user's next word: thoughts, texts, calls and their results."""
    rows = []
    for talk in talks:
        messages: list[dict[str, Any]] = []
        for entry in talk.entries:
            sender = "human" if isinstance(entry, Said) else "assistant"
            if sender == "human" or not messages or messages[-1]["sender"] == "human":
                messages.append(
                    {"uuid": f"{talk.name}/{len(messages)}", "sender": sender, "content": [], "text": ""}
                )
            messages[-1]["content"] += claude_blocks(entry)
        for message in messages:
            message["text"] = "".join(block.get("text", "") for block in message["content"])
        own = str(uuid.uuid5(uuid.NAMESPACE_URL, talk.name))
        rows.append({"uuid": own, "name": talk.name, "chat_messages": with_parents(messages, chance)})
    return json.dumps(rows).encode()


def with_parents(messages: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Newer exports name parents; older ones have the messages in their order."""
    if chance.random() < 0.5:
        return messages
    parents = ["00000000-0000-4000-8000-000000000000", *(message["uuid"] for message in messages)]
    return [
        message | {"parent_message_uuid": parent} for message, parent in zip(messages, parents, strict=False)
    ]


def claude_blocks(entry: Said | Turn) -> list[dict[str, Any]]:
    if isinstance(entry, Said):
        return [{"type": "text", "text": entry.text}]
    found: list[dict[str, Any]] = []
    if entry.thought is not None:
        found.append({"type": "thinking", "thinking": entry.thought, "summaries": []})
    if entry.text is not None:
        found.append({"type": "text", "text": entry.text, "citations": []})
    found += [
        {"type": "tool_use", "id": act.call_id, "name": act.name, "input": act.arguments}
        for act in entry.acts
    ]
    for index in entry.answered:
        act = entry.acts[index]
        told = [{"type": "text", "text": act.answer}]
        found.append({"type": "tool_result", "tool_use_id": act.call_id, "content": told, "is_error": False})
    return found


def har(talks: list[Talk], chance: random.Random) -> bytes:
    """The requests of several talks at the same time, each with its response, at once or as a stream; and other traffic."""
    queues = [[har_entry(asked, answer, chance) for asked, answer in requests_of(talk)] for talk in talks]
    entries = shuffled_together(queues, chance)
    for number, entry in enumerate(entries):
        entry["startedDateTime"] = f"2026-01-02T10:{number // 60:02}:{number % 60:02}.000Z"
    return json.dumps({"log": {"version": "1.2", "creator": {"name": "test"}, "entries": entries}}).encode()


def har_entry(asked: list[dict[str, Any]], answer: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    body = json.dumps({"model": "m", "messages": asked})
    whole = json.dumps({"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]})
    text = chance.choice([whole, har_stream(answer)])
    url = "https://llm.example/v1/chat/completions?key=secret"
    request = {"method": "POST", "url": url, "headers": [], "postData": {"text": body}}
    return {"time": 10.0, "request": request, "response": {"status": 200, "content": {"text": text}}}


def har_stream(answer: dict[str, Any]) -> str:
    """An answer in pieces: each text in two, each call's arguments too."""
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for key in ("reasoning_content", "content"):
        text = answer.get(key) or ""
        deltas += [{key: piece} for piece in (text[:3], text[3:]) if piece]
    for index, call in enumerate(answer.get("tool_calls", [])):
        given = call["function"]["arguments"]
        begun = call | {
            "index": index,
            "function": {"name": call["function"]["name"], "arguments": given[:2]},
        }
        deltas.append({"tool_calls": [begun]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": given[2:]}}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return (
        "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices) + "data: [DONE]\n\n"
    )


SHAPES = {
    "chatgpt": Shape("chatgpt", ".json", chatgpt, parallel=False, ids_repeat=False),
    "har": Shape("har", ".har", har, ends_with_agent=True),
    "claude.ai": Shape("claude_ai", ".json", claude_ai, system=False, flags_failure=True),
}
