"""Talks written as editors and their assistants keep them; see renderers.py."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from support.renderers import Said, Shape, Talk, lines, openai_messages
from support.written_files import database


def message_list(talks: list[Talk], chance: random.Random) -> bytes:
    """What a script sent, dumped."""
    return json.dumps(openai_messages(talks[0]), indent=chance.choice((None, 1))).encode()


def cline_task(talks: list[Talk], chance: random.Random) -> bytes:
    """Anthropic messages with the program's times; thoughts in either kind of block."""
    found: list[dict[str, Any]] = []

    def add(role: str, blocks: list[dict[str, Any]]) -> None:
        found.append({"role": role, "content": blocks, "ts": 1_767_607_200_000 + len(found)})

    for entry in talks[0].entries:
        if isinstance(entry, Said):
            add("user", [{"type": "text", "text": entry.text}])
            continue
        blocks: list[dict[str, Any]] = []
        if entry.thought is not None:
            kind = chance.choice((("thinking", "thinking"), ("reasoning", "text")))
            blocks.append({"type": kind[0], kind[1]: entry.thought})
        blocks += [{"type": "text", "text": entry.text}] if entry.text is not None else []
        for act in entry.acts:
            blocks.append({"type": "tool_use", "id": act.call_id, "name": act.name, "input": act.arguments})
        add("assistant", blocks)
        results = [entry.acts[index] for index in entry.answered]
        if results:
            add(
                "user",
                [
                    {"type": "tool_result", "tool_use_id": act.call_id, "content": act.answer}
                    for act in results
                ],
            )
    return json.dumps(found, indent=chance.choice((None, 1))).encode()


def cursor_state(talks: list[Talk], chance: random.Random) -> bytes:
    """A database of conversations and their bubbles; calls of one response share its id."""
    rows: list[tuple[str, Any]] = []
    for number, talk in enumerate(talks):
        name, bubbles = f"00000000-0000-4000-8000-{number:012}", list(cursor_bubbles(talk))
        headers = [{"bubbleId": f"b{i}", "type": bubble["type"]} for i, bubble in enumerate(bubbles)]
        inline = chance.random() < 0.3
        held = {"conversation": bubbles} if inline else {"fullConversationHeadersOnly": headers}
        rows.append((f"composerData:{name}", {"composerId": name, "status": "completed", **held}))
        rows += [] if inline else [(f"bubbleId:{name}:b{i}", bubble) for i, bubble in enumerate(bubbles)]
    chance.shuffle(rows)
    return database([["cursorDiskKV", {"key": key, "value": value}] for key, value in rows])


def cursor_bubbles(talk: Talk) -> Iterator[dict[str, Any]]:
    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said):
            yield {"type": 1, "text": entry.text}
            continue
        if entry.thought is not None:
            yield {"type": 2, "text": "", "thinking": {"text": entry.thought}}
        if entry.text is not None:
            yield {"type": 2, "text": entry.text}
        for act in entry.acts:
            tool = {
                "name": act.name,
                "toolCallId": act.call_id,
                "modelCallId": f"m{number}",
                "rawArgs": json.dumps(act.arguments),
            }
            told = (
                {"status": "loading"} if act.answer is None else {"status": "completed", "result": act.answer}
            )
            yield {"type": 2, "text": "", "toolFormerData": {**tool, **told}}


def opencode_messages(talk: Talk) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for number, entry in enumerate(talk.entries):
        time = {"created": 1_767_607_200_000 + number}
        if isinstance(entry, Said):
            yield {"role": "user", "time": time}, [{"type": "text", "text": entry.text}]
            continue
        parts: list[dict[str, Any]] = [{"type": "step-start"}]
        parts += [{"type": "reasoning", "text": entry.thought}] if entry.thought is not None else []
        parts += [{"type": "text", "text": entry.text}] if entry.text is not None else []
        for act in entry.acts:
            told = (
                {"status": "running"} if act.answer is None else {"status": "completed", "output": act.answer}
            )
            state = {"input": act.arguments, **told}
            parts.append({"type": "tool", "callID": act.call_id, "tool": act.name, "state": state})
        yield (
            {"role": "assistant", "time": time, "modelID": "m"},
            [*parts, {"type": "step-finish", "reason": "stop"}],
        )


def opencode_export(talks: list[Talk], chance: random.Random) -> bytes:
    info = {"id": f"ses_{chance.randrange(10**20):020}", "title": "t"}
    messages = [{"info": told, "parts": parts} for told, parts in opencode_messages(talks[0])]
    return json.dumps({"info": info, "messages": messages}, indent=chance.choice((None, 2))).encode()


def opencode_database(talks: list[Talk], chance: random.Random) -> bytes:
    rows: list[tuple[str, dict[str, Any]]] = []
    for number, talk in enumerate(talks):
        session = f"ses_{number:020}"
        rows.append(("session", {"id": session, "title": "t"}))
        for index, (info, parts) in enumerate(opencode_messages(talk)):
            name = f"msg_{number:03}{index:03}"
            rows.append(("message", {"id": name, "session_id": session, "data": info}))
            for place, part in enumerate(parts):
                rows.append(("part", {"id": f"prt_{name}{place:03}", "message_id": name, "data": part}))
    chance.shuffle(rows)
    return database([list(row) for row in rows])


def copilot_events(talks: list[Talk], chance: random.Random) -> bytes:
    """Events of sessions, one after the other."""
    rows: list[dict[str, Any]] = []

    def add(kind: str, **data: Any) -> None:
        time = f"2026-01-05T10:{len(rows) // 60:02}:{len(rows) % 60:02}Z"
        rows.append({"type": kind, "data": data, "id": f"e{len(rows)}", "timestamp": time})

    for number, talk in enumerate(talks):
        add("session.start", sessionId=f"00000000-0000-4000-8000-{number:012}")
        for entry in talk.entries:
            if isinstance(entry, Said):
                add(f"{entry.role}.message", content=entry.text)
                continue
            asked = [{"toolCallId": a.call_id, "name": a.name, "arguments": a.arguments} for a in entry.acts]
            more = {"reasoningText": entry.thought} if entry.thought is not None else {}
            add("assistant.message", content=entry.text or "", toolRequests=asked, **more)
            for act in (entry.acts[index] for index in entry.answered):
                add(
                    "tool.execution_complete",
                    toolCallId=act.call_id,
                    success=True,
                    result={"content": act.answer},
                )
    return lines(rows)


def vscode_chat(talk: Talk) -> dict[str, Any]:
    """A session whose requests have the rounds of the model."""
    requests: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            rounds: dict[str, Any] = {"toolCallRounds": [], "toolCallResults": {}}
            told = {"result": {"metadata": rounds}, "timestamp": 1_767_607_200_000 + len(requests)}
            requests.append({"message": {"text": entry.text}, "response": [], **told})
            continue
        meta = requests[-1]["result"]["metadata"]
        calls = [
            {"id": act.call_id, "name": act.name, "arguments": json.dumps(act.arguments)}
            for act in entry.acts
        ]
        thought = {} if entry.thought is None else {"thinking": {"text": entry.thought}}
        meta["toolCallRounds"].append({"response": entry.text or "", "toolCalls": calls, **thought})
        for act in (entry.acts[index] for index in entry.answered):
            meta["toolCallResults"][act.call_id] = {"content": [{"value": act.answer}]}
    return {"version": 3, "sessionId": talk.name, "responderUsername": "c", "requests": requests}


def vscode_session(talks: list[Talk], chance: random.Random) -> bytes:
    return json.dumps(vscode_chat(talks[0]), indent=chance.choice((None, 1))).encode()


def vscode_journal(talks: list[Talk], chance: random.Random) -> bytes:
    """The same as VS Code writes it while it happens: a request is added, then its result; now and then it is taken back first."""
    session = vscode_chat(talks[0])
    rows: list[dict[str, Any]] = [{"kind": 0, "v": {**session, "requests": []}}]
    for index, request in enumerate(session["requests"]):
        if chance.random() < 0.3:
            rows.append({"kind": 2, "k": ["requests"], "v": [{"message": {"text": "no"}}]})
        begun = {key: value for key, value in request.items() if key != "result"}
        rows.append({"kind": 2, "k": ["requests"], "i": index, "v": [begun]})
        rows.append({"kind": 1, "k": ["requests", index, "result"], "v": request["result"]})
    return lines(rows)


OPENCODE: dict[str, Any] = {"system": False, "flags_failure": True, "ordered": True}
VSCODE: dict[str, Any] = {"one_talk": True, "system": False, "ordered": True, "ids_repeat": False}
SHAPES = {
    "vscode session": Shape("vscode_chat", ".json", vscode_session, **VSCODE),
    "vscode journal": Shape("vscode_chat", ".jsonl", vscode_journal, **VSCODE),
    "message list": Shape("message_list", ".json", message_list, one_talk=True),
    "cursor state": Shape("cursor", ".vscdb", cursor_state, system=False, flags_failure=True, ordered=True),
    "opencode export": Shape("opencode", ".json", opencode_export, one_talk=True, **OPENCODE),
    "opencode database": Shape("opencode", ".db", opencode_database, **OPENCODE),
    "copilot events": Shape("copilot_cli", ".jsonl", copilot_events, flags_failure=True),
    "cline task": Shape("cline", ".json", cline_task, one_talk=True, system=False),
}
