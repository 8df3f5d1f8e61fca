"""A draft as the text of a mapping: one line a field, with a comment where it is unsure."""

from __future__ import annotations

import json
import re
from typing import Any

from logforge.inspecting.drafts import Draft
from logforge.inspecting.talks import Block
from logforge.inspecting.units import Line

UNSURE = "# unsure: "
_BARE = re.compile(r"\$[^\s#:,{}\"']*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*")
_TAKEN = frozenset({"true", "false", "yes", "no", "null", "on", "off", "y", "n"})


def mapping_text(draft: Draft, name: str, source: str) -> str:
    """The mapping's text. It begins with what it was made from."""
    head = [
        f"# Made by `logforge inspect` from {_one_line(source)}. Check the lines marked `unsure`, then: logforge ingest FILE --mapping THIS"
    ]
    head += [f"{UNSURE}{_one_line(doubt)}" for doubt in draft.doubts]
    return "\n".join([*head, f"name: {_scalar(name)}", *_lines(draft.blocks, 0)]) + "\n"


def doubts_of(draft: Draft) -> list[str]:
    """The lines that are unsure, by their place in the mapping."""
    found: list[str] = list(draft.doubts)

    def look(block: Any, where: str) -> None:
        if isinstance(block, Line):
            if block.unsure:
                found.append(f"{where}: {block.unsure}")
        elif isinstance(block, list):
            for number, item in enumerate(block):
                look(item, f"{where}.{number}")
        else:
            for key, item in block.items():
                look(item, f"{where}.{key}" if where else key)

    look(draft.blocks, "")
    return list(dict.fromkeys(found))


def _lines(block: Block, depth: int) -> list[str]:
    lines: list[str] = []
    indent = "  " * depth
    for key, item in block.items():
        if isinstance(item, Line):
            lines += _line(f"{indent}{key}:", item, depth)
        elif isinstance(item, list):
            lines.append(f"{indent}{key}:")
            for inner in item:
                first, *rest = _lines(inner, depth + 2)
                lines += [f"{indent}  - {first.strip()}", *rest]
        else:
            lines += [f"{indent}{key}:", *_lines(item, depth + 1)]
    return lines


def _line(begin: str, line: Line, depth: int) -> list[str]:
    mark = f"  {UNSURE}{_one_line(line.unsure)}" if line.unsure else ""
    if not isinstance(line.value, dict):
        return [f"{begin} {_value(line.value)}{mark}"]
    indent = "  " * (depth + 1)
    table = ", ".join(f"{_scalar(str(key))}: {_value(value)}" for key, value in line.value["values"].items())
    made = [f"{begin}{mark}", f"{indent}path: {_value(line.value['path'])}", f"{indent}values: {{{table}}}"]
    return [*made, f"{indent}default: {_value(line.value['default'])}"] if "default" in line.value else made


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(json.dumps(item, ensure_ascii=False) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value.startswith("$") and _BARE.fullmatch(value):
        return str(value)
    return _scalar(value)


def _scalar(text: str) -> str:
    """Text as YAML reads it back as text."""
    return (
        text
        if _WORD.fullmatch(text) and text.lower() not in _TAKEN and text == text.strip()
        else json.dumps(text)
    )


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
