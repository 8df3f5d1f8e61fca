"""The answers in VS Code's chat sessions: rounds of the model, where the agent noted them, else the parts that were shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.editors.vscode_journal import Key, State
from logforge.connectors.episodes import (
    Absent,
    Call,
    EpisodeBuilder,
    bad_part,
    first_text,
    object_or_empty,
    text_or_none,
)
from logforge.schemas import ResultStatus

_SHOWN = frozenset(
    "undoStop codeblockUri progressTask progressTaskSerialized progressMessage mcpServersStarting prepareToolInvocation "
    "command confirmation elicitation elicitation2 elicitationSerialized warning extensions pullRequest references usedContext "
    "codeCitation multiDiffData changesSummary questionCarousel treeData move clearToPreviousToolInvocation".split()
)
"""Parts that the editor shows, and that the model did not write."""
_EDITS = ("textEditGroup", "textEdit", "notebookEditGroup", "notebookEdit")
"""What the editor made of the model's words, or what a tool did."""
_REFUSED = (0, 5)
"""A user's word on a call: denied, skipped."""


@dataclass
class _Result:
    """What came of a call."""

    text: str | None
    path: tuple[Key, ...]
    failed: bool | None = None
    status: ResultStatus | None = None


@dataclass
class Answer:
    """Adds what was answered to one request."""

    builder: EpisodeBuilder
    state: State
    path: tuple[Key, ...]
    more: dict[str, Any]
    _text: list[str] = field(default_factory=list)
    _at: tuple[Key, ...] | None = None
    _thought: list[str] = field(default_factory=list)
    _edits: bool = False

    def add(self, request: dict[str, Any]) -> None:
        """All of it, in order."""
        meta = object_or_empty(object_or_empty(request.get("result")).get("metadata"))
        rounds, parts = meta.get("toolCallRounds"), request.get("response")
        known = isinstance(rounds, list) and bool(rounds)
        if parts is not None and not isinstance(parts, list):
            self.builder.unknown(self.state.where(*self.path, "response"), parts, decides=not known)
            return
        if known and isinstance(rounds, list):
            ends = self._rounds(rounds, object_or_empty(meta.get("toolCallResults")))
            self._rest(parts or [], ends)
        else:
            for index, part in enumerate(parts or []):
                self._part(part, (*self.path, "response", index), decides=True)
            self._flush([])

    # --- rounds ---

    def _rounds(self, rounds: list[Any], results: dict[str, Any]) -> bool:
        """The model's rounds. True: the last one calls nothing, so that nothing is left to be told."""
        ends = False
        for index, held in enumerate(rounds):
            path = (*self.path, "result", "metadata", "toolCallRounds", index)
            listed = held.get("toolCalls") if isinstance(held, dict) else None
            said = held.get("response") if isinstance(held, dict) else None
            if not isinstance(held, dict) or not isinstance(listed, list | None):
                self.builder.unknown(self.state.where(*path), held, decides=True)
                continue
            if not isinstance(said, str | None):
                self.builder.unknown(self.state.where(*path, "response"), said, decides=True)
                continue
            calls, lost = [], False
            for number, call in enumerate(listed or []):
                place = self.state.where(*path, "toolCalls", number)
                name = text_or_none(call.get("name")) if isinstance(call, dict) else None
                if name is None:
                    self.builder.rejects.append(
                        bad_part(place, "tool call without a name", "nameless_call", call)
                    )
                    lost = True
                else:
                    calls.append(Call(name, call.get("arguments"), text_or_none(call.get("id")), place))
            more = {**self.more, "thought": _thought(object_or_empty(held.get("thinking")).get("text"))}
            place = self.state.where(*path, "response") if said else self.state.where(*path)
            if lost and not calls:
                self.builder.message("assistant", said or None, place, **more)
            elif calls or said or more["thought"]:
                self.builder.turn(said or None, calls, place, **more)
            for asked in calls:
                if asked.call_id is not None and asked.call_id in results:
                    self._given(asked.call_id, results[asked.call_id])
            ends = not listed
        return ends

    def _given(self, call_id: str, result: Any) -> None:
        path = (*self.path, "result", "metadata", "toolCallResults", call_id)
        text, place = _result_text(result)
        if text is None:
            self.builder.unknown(self.state.where(*path), result, decides=False)
        else:
            self.builder.result(call_id, text, self.state.where(*path, *place))

    def _rest(self, parts: list[Any], ends: bool) -> None:
        """The words behind the last tool, which no round has; parts that nobody knows."""
        last = max(
            (i for i, part in enumerate(parts) if _kind(part) == "toolInvocationSerialized"), default=-1
        )
        for index, part in enumerate(parts):
            path = (*self.path, "response", index)
            if index > last and last >= 0 and not ends:
                self._part(part, path, decides=False)
            elif not _is_known(part):
                self.builder.unknown(self.state.where(*path), part, decides=False)
        self._edits = False
        self._flush([])

    # --- parts ---

    def _part(self, part: Any, path: tuple[Key, ...], *, decides: bool) -> None:
        kind = _kind(part)
        if kind == "toolInvocationSerialized":
            self._tool(part, path)
        elif kind == "thinking":
            thought = _thought(part.get("value"))
            self._thought += [thought] if thought else []
        elif kind in _EDITS:
            self._edits = True
        elif kind not in _SHOWN:
            text, inner = _words(part)
            if text is None:
                self.builder.unknown(self.state.where(*path), part, decides=decides)
            elif text:
                self._at = self._at or (*path, *inner)
                self._text.append(text)

    def _tool(self, part: dict[str, Any], path: tuple[Key, ...]) -> None:
        place, name = self.state.where(*path), text_or_none(part.get("toolId"))
        call_id = text_or_none(part.get("toolCallId"))
        if name is None:
            self.builder.unknown(place, part, decides=True)
            return
        self._edits = False
        self._flush([Call(name, _arguments(part), call_id, place)])
        result = _outcome(part)
        if result is not None:
            where = self.state.where(*path, *result.path)
            self.builder.result(call_id, result.text, where, failed=result.failed, status=result.status)

    def _flush(self, calls: list[Call]) -> None:
        """What was said until now, with the call that follows."""
        text, thought = "".join(self._text) or None, "\n\n".join(self._thought) or None
        place = self.state.where(*self._at) if self._at else (calls[0].locator if calls else None)
        place = place or self.state.where(*self.path)
        edited, self._edits = self._edits, False
        self._text, self._thought, self._at = [], [], None
        more = {**self.more, "thought": thought}
        if edited and not calls:
            # An edit that no call tells of lies in the words, and only the editor knows how it read them.
            self.builder.unparsed(text or "", place, **more)
        elif calls or (text and text.strip()):
            self.builder.turn(text, calls, place, **more)
        elif text or thought:
            self.builder.message("assistant", text, place, **more)


def _kind(part: Any) -> str | None:
    """What a part is; None for a text without a kind."""
    kind = part.get("kind") if isinstance(part, dict) else None
    return kind if kind is None or isinstance(kind, str) else ""


def _is_known(part: Any) -> bool:
    kind = _kind(part)
    return (
        kind in _SHOWN
        or kind in _EDITS
        or kind in ("thinking", "toolInvocationSerialized")
        or _words(part)[0] is not None
    )


def _words(part: Any) -> tuple[str | None, tuple[Key, ...]]:
    """The text of a part and where it stands in it; None when it is no text."""
    if not isinstance(part, dict):
        return None, ()
    kind, content = part.get("kind"), part.get("content")
    if kind is None and isinstance(part.get("value"), str):
        return part["value"], ("value",)
    if kind in ("markdownContent", "markdownVuln") and isinstance(content, dict):
        return text_or_none(content.get("value")) or ("" if content.get("value") == "" else None), (
            "content",
            "value",
        )
    if kind == "inlineReference":
        held = object_or_empty(part.get("inlineReference"))
        uri = object_or_empty(held.get("uri")) or held
        name = first_text(part, "name") or first_text(held, "name")
        path = first_text(uri, "path", "fsPath")
        return name or (path.rpartition("/")[2] if path else None), ()
    return None, ()


def _thought(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(piece, str) for piece in value):
        value = "".join(value)
    return value if isinstance(value, str) and value else None


def _arguments(part: dict[str, Any]) -> Any:
    """What the log holds of a call's arguments: all of them, a terminal's command alone, or nothing."""
    shown, details = object_or_empty(part.get("toolSpecificData")), object_or_empty(part.get("resultDetails"))
    if shown.get("kind") == "input" and "rawInput" in shown:
        return shown["rawInput"]
    if isinstance(details.get("input"), str) and details["input"].lstrip().startswith("{"):
        return details["input"]
    if shown.get("kind") == "terminal":
        command = first_text(object_or_empty(shown.get("commandLine")), "original") or first_text(
            shown, "command"
        )
        return {"command": command} if command is not None else Absent()
    return Absent()


def _outcome(part: dict[str, Any]) -> _Result | None:
    """What the log holds of a call's result; None when it shows that it ran, and not what the model was told."""
    confirmed = part.get("isConfirmed")
    kind = confirmed.get("type") if isinstance(confirmed, dict) else confirmed
    if kind is False or (isinstance(kind, int) and not isinstance(kind, bool) and kind in _REFUSED):
        return _Result("", ("isConfirmed",), status="refused")
    details, shown = object_or_empty(part.get("resultDetails")), object_or_empty(part.get("toolSpecificData"))
    failed = details["isError"] if isinstance(details.get("isError"), bool) else None
    output = details.get("output")
    if isinstance(output, str):
        return _Result(output, ("resultDetails", "output"), failed)
    if isinstance(output, list):
        texts = [
            (i, o["value"])
            for i, o in enumerate(output)
            if isinstance(o, dict) and isinstance(o.get("value"), str) and o.get("isText") is not False
        ]
        if texts:
            return _Result(
                "\n".join(text for _, text in texts),
                ("resultDetails", "output", texts[0][0], "value"),
                failed,
            )
    told = object_or_empty(shown.get("terminalCommandOutput"))
    if isinstance(told.get("text"), str):
        code = object_or_empty(shown.get("terminalCommandState")).get("exitCode")
        bad = code != 0 if isinstance(code, int) and not isinstance(code, bool) else None
        return _Result(told["text"], ("toolSpecificData", "terminalCommandOutput", "text"), bad)
    return None


def _result_text(result: Any) -> tuple[str | None, tuple[Key, ...]]:
    """The text of a tool's result: strings, and trees of prompt pieces."""
    listed = result.get("content") if isinstance(result, dict) else None
    texts: list[str] = []
    for part in listed if isinstance(listed, list) else ():
        value = part.get("value") if isinstance(part, dict) else None
        text = value if isinstance(value, str) else _leaves(value)
        if text is None:
            return None, ()
        texts.append(text)
    if not isinstance(listed, list):
        return None, ()
    plain = len(listed) == 1 and isinstance(listed[0].get("value"), str)
    return "\n".join(texts), ("content", 0, "value") if plain else ()


def _leaves(value: Any) -> str | None:
    """The text of a tree of prompt pieces."""
    root = value.get("node") if isinstance(value, dict) else None
    if not isinstance(root, dict):
        return None
    found: list[str] = []
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            return None
        if isinstance(node.get("text"), str):
            found += ["\n"] if found and node.get("lineBreakBefore") else []
            found.append(node["text"])
        children = node.get("children")
        waiting += reversed(children) if isinstance(children, list) else []
    return "".join(found)
