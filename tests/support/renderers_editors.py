"""Talks written as editors and their assistants keep them; see renderers.py."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from support.renderers import Said, Shape, Talk, openai_messages
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


SHAPES = {
    "message list": Shape("message_list", ".json", message_list, one_talk=True),
    "cursor state": Shape("cursor", ".vscdb", cursor_state, system=False, flags_failure=True, ordered=True),
    "cline task": Shape("cline", ".json", cline_task, one_talk=True, system=False),
}
