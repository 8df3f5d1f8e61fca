"""Shapes that are known and not read: a file of one is refused in words that say what it is."""

from __future__ import annotations

import re

from logforge.connectors.records import Head

_PAIR = ("request", "response")
RULE = "unsupported_shape"
"""The rule under which such a file or record is quarantined."""

VOICE = "a voice simulation of tau2-bench (`ticks` of audio on both sides): it has no turns, and is not read"
"""Why a simulation with `ticks` is refused."""


_ONE_EVENT = (
    "one event of an OpenHands run, which is no run by itself: join the folder's events into one list "
    "(`jq -s . events/event-*.json > run.json`), then ingest that file"
)
_RESPONSES = (
    "requests to OpenAI's Responses API without their responses (`output`): what the model answered to the last one is not known, "
    "and they are not read"
)


def unsupported(head: Head) -> str | None:
    """What a file is whose shape is known and not read; None for any other."""
    if (
        head.container in ("object", "array")
        and {"ticks", "task_id"} <= head.top
        and "messages" not in head.top
    ):
        return VOICE
    if {"kind", "id", "source", "timestamp"} <= head.top and re.match(r"event-\d+-", head.name):
        return _ONE_EVENT
    asked, given = (head.keys.get(key, set()) | head.keys.get(f"{key}.body", set()) for key in _PAIR)
    if "input" in asked and "messages" not in asked and ("output" in given or not given):
        return _RESPONSES
    return None
