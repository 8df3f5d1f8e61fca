"""Talks written as editors and their assistants keep them; see renderers.py."""

from __future__ import annotations

import json
import random
from typing import Any

from support.renderers import Said, Shape, Talk, openai_messages


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


SHAPES = {
    "message list": Shape("message_list", ".json", message_list, one_talk=True),
    "cline task": Shape("cline", ".json", cline_task, one_talk=True, system=False),
}
