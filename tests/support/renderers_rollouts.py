"""Talks written as trainers and their environments keep rollouts; see renderers.py."""

from __future__ import annotations

import json
import random
from typing import Any

from support.renderers import Shape, Talk, Turn, as_columns, lines, openai_messages


def first_turn(talk: Talk) -> int:
    """How many messages stand before the policy's first."""
    return next(i for i, entry in enumerate(talk.entries) if isinstance(entry, Turn))


def verifiers(talks: list[Talk], chance: random.Random) -> bytes:
    """What the policy was given, and what came of it; calls as JSON texts or as they are."""
    rows = []
    for number, talk in enumerate(talks):
        messages, as_text = openai_messages(talk), chance.random() < 0.5
        for message in messages:
            if as_text and "tool_calls" in message:
                message["tool_calls"] = [json.dumps(call) for call in message["tool_calls"]]
        start = first_turn(talk)
        rows.append(
            {
                "example_id": number,
                "prompt": messages[:start],
                "completion": messages[start:],
                "reward": None,
                "metrics": {},
                "is_truncated": False,
            }
        )
    return lines(rows)


def choices(talk: Talk) -> list[dict[str, Any]]:
    """Messages, and choices where the policy spoke."""
    return [
        message
        if message["role"] != "assistant"
        else {"finish_reason": "stop", "index": 0, "logprobs": None, "message": message}
        for message in openai_messages(talk)
    ]


def art_groups(talks: list[Talk], chance: random.Random) -> bytes:
    """A line with all talks as one group, or one for each."""
    found = [
        {"messages_and_choices": choices(talk), "reward": None, "metrics": {}, "logs": []} for talk in talks
    ]
    return lines(
        [{"trajectories": found}] if chance.random() < 0.5 else [{"trajectories": [one]} for one in found]
    )


def art_rows(talks: list[Talk], chance: random.Random) -> bytes:
    """A row a trajectory; calls are JSON text."""
    rows = []
    for talk in talks:
        messages = []
        for message in openai_messages(talk):
            calls = message.get("tool_calls")
            messages.append(
                {
                    "role": message["role"],
                    "content": message["content"],
                    "tool_calls": json.dumps(calls) if calls else None,
                    "tool_call_id": message.get("tool_call_id"),
                    "trainable": message["role"] == "assistant",
                }
            )
        rows.append({"group_index": 0, "messages": messages, "reward": None, "metrics": None})
    return lines(rows)


SHAPES = {
    "verifiers": Shape("verifiers", ".jsonl", verifiers),
    "art groups": Shape("art", ".jsonl", art_groups),
    "art parquet": Shape("art", ".parquet", as_columns(art_rows, "parquet"), thoughts=False),
}
