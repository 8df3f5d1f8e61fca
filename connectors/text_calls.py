"""Calls that agents write as text: a fenced shell command, `<function=…>` tags, an `<execute>` block.

The text stays the message's content as it is; what is read here are the calls in it. No type is guessed: the values
of tags are text.
"""

from __future__ import annotations

import re

from logforge.connectors.builder import Call, EpisodeBuilder
from logforge.connectors.outcome import classify_result
from logforge.connectors.swe_agent import command_name

_FENCE = re.compile(r"^[ \t]*```([\w+-]*)[ \t]*$", re.MULTILINE)
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|(?=<function=)|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_EXECUTE = re.compile(r"<execute>(.*?)</execute>", re.DOTALL)
_LABEL = re.compile(r"(?:observation|execution result of \[[^\]]*\]):\s*", re.IGNORECASE)


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


def command_call(command: str, where: str) -> list[Call]:
    """The call of a shell command, named after its program; none when there is nothing to run."""
    return [Call(command_name(command), {"command": command}, None, where)] if command.strip() else []


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
    """The calls of `<execute>` blocks."""
    return [Call("execute", {"code": code.strip("\n ")}, None, where) for code in _EXECUTE.findall(text)]


def answer(builder: EpisodeBuilder, text: str | None, where: str, calls: int) -> None:
    """The message after a turn of that many calls: one result for them all. A label before it says nothing of success."""
    body = text or ""
    label = _LABEL.match(body)
    status, _ = classify_result(body[label.end() :] if label else body)
    failed = True if status in ("error", "timeout") else None
    if builder.result(None, text, where, failed=failed, status=status):
        for _ in range(calls - 1):
            builder.also_answers(None)
