"""Calls that agents write as text: a fenced shell command, `<function=…>` tags, an `<execute>` block.

The text stays the message's content as it is; what is read here are the calls in it. No type is guessed: the values
of tags are text. One decision has one name, whichever way it was written: what is typed into a shell is `bash`, but for
the agent's own commands; code for the Python interpreter is `python`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.outcome import classify_result

INTERFACE = frozenset(
    {"open", "goto", "scroll_up", "scroll_down", "create", "edit", "insert", "str_replace_editor"}
    | {"search_dir", "search_file", "find_file", "decompile", "disassemble", "submit", "exit_forfeit"}
)
"""SWE-agent's own commands, which it types into the shell as it does programs."""

_FENCE = re.compile(r"^[ \t]*```([\w+-]*)[ \t]*$", re.MULTILINE)
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|(?=<function=)|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_EXECUTE = re.compile(r"<execute>(.*?)</execute>", re.DOTALL)
_LABEL = re.compile(r"(?:observation|execution result of \[[^\]]*\]):\s*", re.IGNORECASE)

_COMMANDS = re.compile(r"^COMMANDS:\n(.*?)(?=^RESPONSE FORMAT:|^Please note |\Z)", re.MULTILINE | re.DOTALL)
_LISTED = re.compile(r"^([a-z]\w*)(?::[ \t]*$|[ \t]+[<\[]|[ \t]+- )", re.MULTILINE)
_COMMENT = re.compile(r"(?:\s*#[^\n]*\n)+")
_WORD = re.compile(r"\s*([A-Za-z_]\w*)(?=[\s;&|<>()]|\Z)")


def fenced(text: str, *languages: str) -> list[str]:
    """The fenced blocks of these languages ("" is a fence that names none), without their last line break."""
    blocks: list[str] = []
    start: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if start is None:
            start = fence
        elif not fence.group(1):
            if start.group(1) in languages:
                blocks.append(text[start.end() + 1 : fence.start()].removesuffix("\n"))
            start = None
    return blocks


def interface(builder: EpisodeBuilder) -> frozenset[str]:
    """The agent's own commands: SWE-agent's, and those that the prompt lists under `COMMANDS:`."""
    first = builder.messages[0].content if builder.messages else None
    block = _COMMANDS.search(first or "")
    return INTERFACE | frozenset(_LISTED.findall(block.group(1)) if block else ())


def command_call(command: str, where: str, own: Collection[str] = ()) -> list[Call]:
    """The call of what was typed into a shell: one of the agent's own commands, else `bash`; none when it is blank."""
    return [Call(command_name(command, own), {"command": command}, None, where)] if command.strip() else []


def command_name(command: str, own: Collection[str] = ()) -> str:
    """The command's first word, leading comments aside, where it is one of the agent's own commands; else `bash`."""
    body = _COMMENT.sub("", command, count=1) if command.lstrip().startswith("#") else command
    word = _WORD.match(body)
    return word.group(1) if word is not None and word.group(1) in own else "bash"


def function_calls(text: str, where: str) -> list[Call]:
    """The calls of `<function=name><parameter=key>value</parameter></function>`. One line break around a value is layout."""
    return [
        Call(
            match.group(1),
            {
                parameter.group(1): parameter.group(2).removeprefix("\n").removesuffix("\n")
                for parameter in _PARAMETER.finditer(match.group(2))
            },
            None,
            where,
        )
        for match in _FUNCTION.finditer(text)
    ]


def execute_calls(text: str, where: str) -> list[Call]:
    """The calls of `<execute>` blocks: code for the Python interpreter."""
    return [Call("python", {"code": code.strip("\n ")}, None, where) for code in _EXECUTE.findall(text)]


def answer(builder: EpisodeBuilder, text: str | None, where: str, calls: int) -> None:
    """The message after a turn of that many calls: one result for them all. A label before it says nothing of success."""
    body = text or ""
    label = _LABEL.match(body)
    status, _ = classify_result(body[label.end() :] if label else body)
    failed = True if status in ("error", "timeout") else None
    if builder.result(None, text, where, failed=failed, status=status):
        for _ in range(calls - 1):
            builder.also_answers(None)
