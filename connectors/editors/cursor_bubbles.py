"""Cursor's bubbles: what the user said, or a piece of what the agent did (a thought, a text, a call with its result)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes import (
    Answered,
    Call,
    Text,
    Transcript,
    Unknown,
    bad_part,
    count_or_none,
    first_text,
    from_millis,
    object_or_empty,
    text_of,
    text_or_none,
)
from logforge.connectors.records import NotJson, canonical, loads
from logforge.schemas import ResultStatus

_USER, _AGENT = 1, 2
_OPEN = frozenset({"loading", "pending", "generating", "running", "streaming"})
_REFUSED = frozenset({"cancelled", "canceled", "rejected", "aborted", "skipped"})


@dataclass
class Bubbles:
    """Takes a conversation's bubbles in order."""

    transcript: Transcript = field(default_factory=Transcript)
    _waiting: list[Answered] = field(default_factory=list)
    """Results of calls that one response made; they follow the last of these calls."""
    _response: str | None = None

    def add(self, bubble: Any, where: str) -> None:
        """Take one bubble. `where` is the locator of its object."""
        kind = bubble.get("type") if isinstance(bubble, dict) else None
        model = text_or_none(object_or_empty(bubble.get("modelInfo")).get("modelName")) if kind else None
        self.transcript.model = model or self.transcript.model
        if kind == _USER:
            self.settle()
            said, time = _said(bubble, where), from_millis(bubble.get("createdAt"))
            shown = "[image]" if bubble.get("images") else None
            self.transcript.say("user", said.text if said else shown, said.locator if said else where, time)
        elif kind == _AGENT:
            self._agent(bubble, where)
        else:
            # Neither the user's nor the agent's: a call in it may be the agent's all the same.
            calls = isinstance(bubble, dict) and "toolFormerData" in bubble
            self.transcript.unknown.append((Unknown(where, bubble), calls))

    def settle(self) -> None:
        """The response ends here."""
        for answer in self._waiting:
            self.transcript.answer(answer)
        self._waiting, self._response = [], None

    def _agent(self, bubble: dict[str, Any], where: str) -> None:
        time, tool = from_millis(bubble.get("createdAt")), bubble.get("toolFormerData")
        text, thoughts = text_or_none(bubble.get("text")), _thoughts(bubble, where)
        response = text_or_none(tool.get("modelCallId")) if isinstance(tool, dict) else None
        if text or thoughts or response is None or response != self._response:
            self.settle()
        if thoughts:
            self.transcript.thought(thoughts, where, time)
        if text:
            self.transcript.text([Text(text, f"{where}/text")], where, time)
        if isinstance(tool, dict) and tool:
            self._response = response
            self._call(tool, f"{where}/toolFormerData", time)
        elif tool not in (None, {}) or (not text and not thoughts and bubble.get("codeBlocks")):
            # A call of no known shape, or code without a word: what was decided cannot be told.
            self.transcript.unknown.append((Unknown(where, bubble), True))
        self._count(bubble)

    def _call(self, tool: dict[str, Any], where: str, time: int | None) -> None:
        name = text_or_none(tool.get("name"))
        if name is None:
            self.transcript.rejects.append(bad_part(where, "tool call without a name", "nameless_call", tool))
            self.transcript.lose(where, time)
            return
        call_id = text_or_none(tool.get("toolCallId"))
        self.transcript.call(Call(name, _arguments(tool), call_id, where), where, time)
        if (answer := _answer(tool, call_id, where)) is not None:
            self._waiting.append(answer)

    def _count(self, bubble: dict[str, Any]) -> None:
        """Model and tokens of a response stand in its last bubble; 0 says that they were not counted."""
        counts, turns = object_or_empty(bubble.get("tokenCount")), self.transcript.turns
        if turns:
            turns[-1].model = self.transcript.model
            turns[-1].tokens_in = count_or_none(counts.get("inputTokens")) or turns[-1].tokens_in
            turns[-1].tokens_out = count_or_none(counts.get("outputTokens")) or turns[-1].tokens_out


def _said(bubble: dict[str, Any], where: str) -> Text | None:
    """The user's words; those of the editor's tree (Lexical's) where the plain text is missing."""
    text, tree = text_or_none(bubble.get("text")), bubble.get("richText")
    if text is not None or not isinstance(tree, str):
        return Text(text, f"{where}/text") if text is not None else None
    try:
        leaves = list(_leaves(loads(tree), f"{where}/richText#"))
    except NotJson:
        return Text(tree, f"{where}/richText") if tree else None
    told = "".join(text for text, _ in leaves).strip("\n")
    return Text(told, next(leaf.locator for leaf in leaves if leaf.text.strip("\n"))) if told else None


def _leaves(node: Any, where: str) -> Iterator[Text]:
    """The texts of a tree; a paragraph ends a line."""
    if isinstance(node, list):
        for index, inner in enumerate(node):
            yield from _leaves(inner, f"{where}/{index}")
    elif isinstance(node, dict):
        if isinstance(node.get("text"), str):
            yield Text(node["text"], f"{where}/text")
        for key in ("root", "children"):
            yield from _leaves(node.get(key), f"{where}/{key}")
        if node.get("type") in ("paragraph", "linebreak"):
            yield Text("\n", where)


def _thoughts(bubble: dict[str, Any], where: str) -> list[Text]:
    thinking = bubble.get("thinking")
    text = thinking.get("text") if isinstance(thinking, dict) else thinking
    if isinstance(text, str) and text:
        return [Text(text, f"{where}/thinking")]
    blocks = bubble.get("allThinkingBlocks")
    found = [
        (index, block.get("text") or block.get("thinking"))
        for index, block in enumerate(blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict)
    ]
    return [
        Text(text, f"{where}/allThinkingBlocks/{index}")
        for index, text in found
        if isinstance(text, str) and text
    ]


def _arguments(tool: dict[str, Any]) -> Any:
    """What the model wrote (`rawArgs`); what Cursor made of it where that is missing or was cut while it streamed."""
    raw, params = tool.get("rawArgs"), tool.get("params")
    if raw is None or raw == "" or (isinstance(raw, str) and params and not _is_json(raw)):
        return params
    return raw


def _is_json(text: str) -> bool:
    try:
        loads(text)
        return True
    except NotJson:
        return False


def _answer(tool: dict[str, Any], call_id: str | None, where: str) -> Answered | None:
    """The call's result, with how it went as Cursor tells it; None while it runs or where none was logged."""
    status, result, error = text_or_none(tool.get("status")), tool.get("result"), tool.get("error")
    told = result if result not in (None, "") else error
    if told in (None, "") and (status in _OPEN or status is None):
        return None
    place = f"{where}/result" if result not in (None, "") else f"{where}/error" if told is not None else where
    text = told if isinstance(told, str) else "" if told is None else text_of(told)
    outcome = result if isinstance(result, dict) else _object(result)
    code = outcome.get("exitCode")
    failed: bool | None = None
    verdict: ResultStatus | None = None
    if status in _REFUSED or tool.get("userDecision") == "rejected" or outcome.get("rejected") is True:
        verdict = "refused"
    elif status == "error":
        failed = True
    elif isinstance(code, int) and not isinstance(code, bool):
        failed = code != 0
    elif status == "completed":
        failed = False
    return Answered(call_id, text, place, None, failed, verdict)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, str) or not value.startswith("{"):
        return {}
    try:
        return object_or_empty(loads(value))
    except NotJson:
        return {}


def described(composer: dict[str, Any]) -> str:
    """What a conversation's record tells beside its words; the keys of its encryption stay out."""
    keys = (
        "name",
        "subtitle",
        "unifiedMode",
        "forceMode",
        "isAgentic",
        "status",
        "totalLinesAdded",
        "totalLinesRemoved",
    )
    return canonical({key: composer[key] for key in keys if key in composer})


def parent_of(composer: dict[str, Any]) -> str | None:
    """The conversation whose sub-agent this one is."""
    info = object_or_empty(composer.get("subagentInfo"))
    return first_text(info, "parentComposerId") or first_text(composer, "parentComposerId")
