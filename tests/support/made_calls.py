"""Calls with thoughts."""

from __future__ import annotations

SPEC = "gamma: 0.99\nterms:\n  success: {when: success, value: 1, at: end}\n"


def call(name, thought, number):
    function = {"name": name, "arguments": "{}"}
    made = {"id": f"c{number}", "type": "function", "function": function}
    said = {"role": "assistant", "content": None, "reasoning_content": thought, "tool_calls": [made]}
    return [said, {"role": "tool", "tool_call_id": f"c{number}", "content": f"done {number}"}]
