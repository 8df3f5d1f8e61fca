"""Items of OpenAI's Responses API: messages, reasoning, calls and their outputs, one after the other.

Items of one response follow each other. A text or a thought behind a call begins the next response (see Transcript).
Chat Completions messages may stand among them, as they do where a program moved from one API to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logforge.connectors.chat import calls_of
from logforge.connectors.episodes import (
    Answered,
    Call,
    EpisodeBuilder,
    Text,
    Transcript,
    Unknown,
    micros,
    part_text,
    text_of,
    text_or_none,
)
from logforge.connectors.records import at, canonical
from logforge.connectors.sdks.pieces import Pieces, leftover, told_text

_ITEM_KEYS = frozenset(
    {
        "id",
        "type",
        "role",
        "content",
        "status",
        "phase",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
    }
    | {
        "refusal",
        "reasoning_content",
        "reasoning",
        "created_at",
        "timestamp",
        "created_by",
        "annotations",
        "audio",
    }
    | {"usage", "metadata", "session_id", "conversation_id", "thread_id"}
)
_HOSTED = {
    "web_search_call": ("web_search", ("action", "query"), ()),
    "file_search_call": ("file_search", ("queries",), ("results",)),
    "code_interpreter_call": ("code_interpreter", ("code", "container_id"), ("outputs",)),
    "image_generation_call": ("image_generation", ("revised_prompt",), ()),
}
"""Tools that the API runs within the response: their names, where their arguments are, and where their results are."""
_OWN = {
    "computer_call": ("computer", ("action", "actions")),
    "local_shell_call": ("local_shell", ("action",)),
    "shell_call": ("shell", ("action",)),
    "apply_patch_call": ("apply_patch", ("operation",)),
}
"""Tools of the API that the program runs: their results are items of their own."""
_SILENT = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_output")
"""What is neither said nor decided; a call that was asked about is an item of its own."""


class Items:
    """Takes items in order; `build` hands everything to an EpisodeBuilder."""

    def __init__(self) -> None:
        self.script = Transcript()
        self.unknown: list[tuple[Unknown, bool]] = []

    def puzzle(self, item: Any, where: str, *, decides: bool = True) -> None:
        """Note what is not understood."""
        self.unknown.append((Unknown(where, item), decides))

    def build(self, builder: EpisodeBuilder) -> None:
        """Hand everything over."""
        self.script.build(builder)
        for (where, part), decides in self.unknown:
            builder.unknown(where, part, decides=decides)

    def add(self, item: Any, where: str) -> None:
        """Take an item; a text is what the user says."""
        if isinstance(item, str):
            self.script.say("user", item, where, None)
            return
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(item, dict) and (kind == "message" or (kind is None and "role" in item)):
            self._message(item, where)
        elif not isinstance(item, dict) or not isinstance(kind, str):
            self.puzzle(item, where)
        elif kind == "reasoning":
            self._reasoning(item, where)
        elif kind.endswith("_call_output") or kind == "tool_search_output":
            self._output(item, where)
        elif kind in _HOSTED:
            self._hosted(item, kind, where)
        elif kind == "mcp_call":
            self._mcp(item, where)
        elif kind in ("function_call", "custom_tool_call") or kind in _OWN:
            self._call(item, kind, where)
        elif kind not in _SILENT:
            self.puzzle(item, where)

    def _message(self, item: dict[str, Any], where: str) -> None:
        role, time = item.get("role"), micros(item.get("created_at") or item.get("timestamp"))
        if role == "tool":
            answer = Answered(
                text_or_none(item.get("tool_call_id")),
                text_of(item.get("content")),
                at(where, "/content"),
                time,
            )
            self.script.answer(answer)
            return
        if role not in ("system", "developer", "user", "assistant"):
            self.puzzle(item, where)
            return
        pieces = _words(item.get("content"), at(where, "/content"))
        calls = calls_of(item, where, self.script.rejects) if role == "assistant" else []
        pieces.calls = calls
        leftover(pieces, item, _ITEM_KEYS, where)
        self.unknown += [(aside, role == "assistant" or not pieces.texts) for aside in pieces.unknown]
        if role != "assistant":
            if pieces.texts:
                self.script.say(role, pieces.text, pieces.texts[0].locator, time)
            return
        said_elsewhere = item.get("refusal")
        if isinstance(said_elsewhere, str) and said_elsewhere and not pieces.texts:
            pieces.say(said_elsewhere, at(where, "/refusal"))
        if pieces.texts:
            self.script.text(pieces.texts, where, time)
        for call in calls:
            self.script.call(call, where, time)

    def _reasoning(self, item: dict[str, Any], where: str) -> None:
        """The reasoning itself where it is there, else its summary; encrypted reasoning tells nothing."""
        for key in ("content", "summary"):
            parts = item.get(key)
            found = [
                Text(part["text"], at(where, f"/{key}/{index}/text"))
                for index, part in enumerate(parts if isinstance(parts, list) else ())
                if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"]
            ]
            if found:
                self.script.thought(found, where, None)
                return

    def _call(self, item: dict[str, Any], kind: str, where: str) -> None:
        name, arguments = item.get("name"), item.get("arguments")
        if kind == "custom_tool_call":
            arguments = {"input": item.get("input")}
        elif kind in _OWN:
            name, keys = _OWN[kind]
            arguments = next((item[key] for key in keys if item.get(key) is not None), None)
        call_id = text_or_none(item.get("call_id")) or text_or_none(item.get("id"))
        whole = kind != "function_call" or "arguments" in item
        if isinstance(name, str) and name and call_id is not None and whole:
            self.script.call(Call(name, arguments, call_id, where), where, None)
        else:
            self.puzzle(item, where)

    def _output(self, item: dict[str, Any], where: str) -> None:
        call_id = text_or_none(item.get("call_id")) or text_or_none(item.get("id"))
        if "output" not in item:
            self.puzzle(item, where)
            return
        output = item["output"]
        text = text_of(output) if isinstance(output, list) else told_text(output)
        self.script.answer(Answered(call_id, text, at(where, "/output"), None))

    def _hosted(self, item: dict[str, Any], kind: str, where: str) -> None:
        name, asked, told = _HOSTED[kind]
        arguments = {key: item[key] for key in asked if item.get(key) is not None}
        call_id = text_or_none(item.get("id"))
        self.script.call(Call(name, arguments, call_id, where, offered=True), where, None, alone=True)
        key = next((key for key in told if item.get(key) is not None), None)
        if key is not None:
            failed = True if item.get("status") == "failed" else None
            self.script.answer(Answered(call_id, canonical(item[key]), at(where, f"/{key}"), None, failed))

    def _mcp(self, item: dict[str, Any], where: str) -> None:
        name, call_id = item.get("name"), text_or_none(item.get("id"))
        if not isinstance(name, str) or not name:
            self.puzzle(item, where)
            return
        call = Call(name, item.get("arguments"), call_id, where, offered=True)
        self.script.call(call, where, None, alone=True)
        for key, failed in (("error", True), ("output", None)):
            if item.get(key) is not None:
                text = told_text(item[key])
                self.script.answer(Answered(call_id, text, at(where, f"/{key}"), None, failed))
                return


def _words(content: Any, where: str) -> Pieces:
    """The texts of a message."""
    pieces = Pieces()
    if isinstance(content, list):
        for index, part in enumerate(content):
            if (text := part_text(part)) is None:
                pieces.puzzle(part, at(where, f"/{index}"))
            else:
                pieces.say(text, at(where, f"/{index}"))
    elif content is not None and not pieces.say(content, where):
        pieces.puzzle({"content": content}, where)
    return pieces


_NAMED: tuple[Callable[[dict[str, Any]], Any], ...] = (
    lambda item: item.get("type", "message"),
    lambda item: item.get("role"),
    lambda item: text_of(item.get("content")),
    lambda item: item.get("call_id"),
    lambda item: item.get("name"),
    lambda item: item.get("arguments", item.get("input", item.get("action"))),
    lambda item: item.get("output"),
)


def item_name(item: Any) -> str | None:
    """A text that is equal for equal items: one that is sent again may have lost its id and its status. Reasoning may be left
    out then, and has none."""
    if not isinstance(item, dict):
        item = {"role": "user", "content": item}
    return None if item.get("type") == "reasoning" else canonical([part(item) for part in _NAMED])
