"""Calls that Cline and Roo Code have models write as tags: `<read_file><path>a.txt</path></read_file>`.

The results stand in the next message, behind a header that names the tool: `[read_file for 'a.txt'] Result:`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TOOLS = frozenset(
    {"access_mcp_resource", "apply_diff", "apply_patch", "ask_followup_question", "attempt_completion"}
    | {"browser_action", "codebase_search", "condense", "edit_file", "execute_command", "fetch_instructions"}
    | {"generate_image", "insert_content", "list_code_definition_names", "list_code_usages", "list_files"}
    | {"load_mcp_documentation", "new_rule", "new_task", "plan_mode_respond", "read_file", "replace_in_file"}
    | {"report_bug", "run_slash_command", "search_and_replace", "search_files", "search_replace"}
    | {"switch_mode", "update_todo_list", "use_mcp_tool", "web_fetch", "web_search", "write_to_file"}
)
"""The tools of Cline and Roo Code. Other tags in a text are words."""

_OPEN = re.compile(rf"^[ \t]*<({'|'.join(sorted(TOOLS))})>", re.MULTILINE)
_PARAMETER = re.compile(r"<([a-z][a-z0-9_]*)>")
_WHOLE = frozenset({"content", "diff"})
"""Parameters that hold files: what looks like their end may be a line of the file, so the last one counts."""
_HEADER = re.compile(r"\A\[(\w+)(?: .*?)?\] Result:[ \t]*\n*", re.DOTALL)
_HEADER_LONGEST = 20_000


class TagCall(NamedTuple):
    """A call written as tags; `arguments` is None where its end is missing."""

    name: str
    arguments: dict[str, str] | None


def tag_call(text: str) -> TagCall | None:
    """The call in a text: the first tag of a tool that begins a line. The program runs one call of a response."""
    opened = _OPEN.search(text)
    if opened is None:
        return None
    name = opened.group(1)
    end = (
        text.rfind(f"</{name}>")
        if name in ("write_to_file", "replace_in_file")
        else text.find(f"</{name}>", opened.end())
    )
    if end < opened.end():
        return TagCall(name, None)
    return TagCall(name, _parameters(text[opened.end() : end]))


def _parameters(body: str) -> dict[str, str]:
    found: dict[str, str] = {}
    place = 0
    while opened := _PARAMETER.search(body, place):
        name = opened.group(1)
        closing = f"</{name}>"
        end = body.rfind(closing) if name in _WHOLE else body.find(closing, opened.end())
        if end < opened.end():
            place = opened.end()
            continue
        value = body[opened.end() : end]
        found[name] = value.removeprefix("\n").removesuffix("\n") if name in _WHOLE else value.strip()
        place = end + len(closing)
    return found


class Headed(NamedTuple):
    """A text that begins with the header of a tool's result."""

    name: str
    body: str


def headed(text: str) -> Headed | None:
    """The tool whose result a text is, and what follows the header."""
    found = _HEADER.match(text[:_HEADER_LONGEST]) if text.startswith("[") else None
    return Headed(found.group(1), text[found.end() :]) if found else None
