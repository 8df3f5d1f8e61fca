"""Server-sent events: the body of a response that was streamed."""

from __future__ import annotations

from typing import Any

from logforge.connectors.records.json import NotJson, loads

_FIELDS = ("data:", "event:", "id:", "retry:", ":")
_DONE = "[DONE]"


def stream_events(text: str) -> list[Any] | None:
    """The data of each event, in order: JSON values, and texts where they are no JSON; None for a text that is no stream."""
    lines = text.lstrip("\ufeff\r\n ").splitlines()
    if not lines or not lines[0].startswith(_FIELDS):
        return None
    found: list[Any] = []
    data: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            if (told := "\n".join(data)).strip() != _DONE:
                found.append(_value(told))
            data = []
    return found


def _value(text: str) -> Any:
    try:
        return loads(text)
    except NotJson:
        return text
