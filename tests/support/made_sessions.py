"""Sessions of Claude Code, line by line."""

from __future__ import annotations


def line(session, number, kind, content, side=None, **message):
    """A line that keeps its uuid in whatever file it is."""
    role = {"role": kind, "content": content, **message}
    return {
        "type": kind,
        "sessionId": session,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if side is None and number else side,
        "isSidechain": side is not None,
        "message": role,
        "timestamp": f"2026-02-03T10:00:{number:02}.000Z",
    }


def turn(session, number):
    """The agent calls a tool, gets the result."""
    call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"echo {number}"}}
    answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": str(number)}
    return [
        line(session, 10 * number, "assistant", [call], id=f"m{number}"),
        line(session, 10 * number + 1, "user", [answer]),
    ]


def session(name, *numbers, end=None):
    """A question, some turns, and an answer."""
    rows = [line(name, 0, "user", "go"), *(row for number in numbers for row in turn(name, number))]
    return rows + ([line(name, end, "assistant", [{"type": "text", "text": f"done {end}"}])] if end else [])
