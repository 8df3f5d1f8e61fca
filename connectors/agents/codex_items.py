"""The items of a Codex rollout (`response_item`): messages, reasoning, the kinds of calls, outputs, and token usage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from logforge.connectors.agents.codex_code import NAME as CODE
from logforge.connectors.agents.codex_code import CodeCalls, inner_call, ran
from logforge.connectors.episodes import (
    Absent,
    Answered,
    Call,
    Text,
    Transcript,
    bad_record,
    count_or_none,
    object_or_empty,
    place_of,
    read_content,
    text_of,
    text_or_none,
)
from logforge.connectors.records import NotJson, at, loads
from logforge.schemas import Reading, ResultStatus, Skip

_HEADER = re.compile(r"Exit code: |Chunk ID: |Wall time: |Process exited with code ")
_EXIT = re.compile(r"(?:\A|\n)(?:Exit code: |Process exited with code )(-?\d+)")
_WALL = re.compile(r"(?:\A|\n)Wall time: ([\d.]+) seconds")
_METADATA = re.compile(r'"metadata":\{"exit_code":(-?\d+),"duration_seconds":([\d.]+)\}\}\Z')
_REFUSED = re.compile(r"(?:[\w ]{1,40} )?(?:rejected|denied|declined) by (?:the )?user", re.IGNORECASE)
_IN_RESPONSE = frozenset({"web_search", "image_generation"})
"""Tools that the API itself runs within a response: no id, no output."""


def read_item(
    script: Transcript, item: dict[str, Any], where: str, time: int | None, code: CodeCalls | None = None
) -> Reading | None:
    """Take an item into the transcript, or say why not. Old lines do not say what they are: a role is a message.

    `code` knows the snippets that run.
    """
    kind = item.get("type") or ("message" if "role" in item else None)
    code = code or CodeCalls()
    if kind == "message":
        return _message(script, item, where, time)
    if kind == "reasoning":
        return _reasoning(script, item, where, time)
    if isinstance(kind, str) and kind.endswith("_output"):
        script.answer(_output(item, where, time, code.end(text_or_none(item.get("call_id")))))
        return None
    if isinstance(kind, str) and kind.endswith("_call"):
        code.begin(item)
        return _call(script, item, kind.removesuffix("_call"), where, time)
    if isinstance(kind, str):
        return Skip(reason="other_item")
    return bad_record(where, "item without a type or a role", "no_type", item)


def _message(script: Transcript, item: dict[str, Any], where: str, time: int | None) -> Reading | None:
    role, content = item.get("role"), item.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        known = "system, developer, user, assistant"
        return bad_record(where, f"message whose role is none of {known}", "unknown_role", item)
    if not isinstance(content, str | list):
        return bad_record(where, "content is neither text nor a list of parts", "bad_content", item)
    parts = read_content(content, at(where, "/content"))
    script.note(parts, decides=role == "assistant" or parts.decides)
    if role == "assistant":
        script.text(parts.texts, where, time)
    elif parts.texts:
        script.say(role, parts.text, parts.texts[0].locator, time)
    return None


def _reasoning(script: Transcript, item: dict[str, Any], where: str, time: int | None) -> Reading | None:
    """The reasoning itself where it is there, else its summary. Encrypted reasoning tells nothing."""
    for key in ("content", "summary"):
        parts = item.get(key)
        found = [
            Text(part["text"], at(where, f"/{key}/{index}"))
            for index, part in enumerate(parts if isinstance(parts, list) else ())
            if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"]
        ]
        if found:
            script.thought(found, where, time)
            return None
    return Skip(reason="encrypted_reasoning")


def _call(
    script: Transcript, item: dict[str, Any], kind: str, where: str, time: int | None
) -> Reading | None:
    name = kind if kind in _IN_RESPONSE or kind in ("local_shell", "tool_search") else item.get("name")
    if not isinstance(name, str) or not name:
        return bad_record(where, "tool call without a name", "nameless_call", item)
    inner = inner_call(item.get("input")) if kind == "custom_tool" and name == CODE else None
    name, arguments = inner or (name, _arguments(item, kind))
    call = Call(name, arguments, text_or_none(item.get("call_id")), where)
    script.call(call, where, time, alone=kind in _IN_RESPONSE)
    return None


def _arguments(item: dict[str, Any], kind: str) -> Any:
    """What a call was given. A custom tool takes free text, which is no damaged JSON. Codex writes the arguments of every
    call, so one without the key has lost them; what runs within a response may have none."""
    if kind == "custom_tool":
        return {"input": item["input"]} if "input" in item else Absent()
    if kind in ("local_shell", "web_search"):
        return item.get("action")
    if kind == "image_generation":
        return {"prompt": item["revised_prompt"]} if item.get("revised_prompt") else None
    if kind == "function":
        return item.get("arguments", Absent())
    return item.get("arguments")


def _output(item: dict[str, Any], where: str, time: int | None, inner: bool | None) -> Answered:
    """A result: text, a list of parts, or {content, success}. The text begins with the exit code and the time taken.

    `inner` says whether what a snippet called failed.
    """
    output, pointer, failed = item.get("output"), place_of(item, "output", where), None
    if isinstance(output, dict) and "content" in output:
        failed = output["success"] is False if isinstance(output.get("success"), bool) else None
        output = output["content"]
        pointer = at(pointer, "/content")
    text = text_of(output)
    code, seconds = _verdict(text or "")
    if code is not None:
        failed = code != 0
    if script := ran(text or ""):
        failed = script.failed or (_printed(output) if inner is None else inner)
        seconds = _number(script.seconds) if script.seconds else None
    status: ResultStatus | None = "refused" if _REFUSED.match(text or "") else None
    return Answered(text_or_none(item.get("call_id")), text, pointer, time, failed, status, seconds)


def _printed(output: Any) -> bool | None:
    """Whether a command failed whose whole result a snippet printed, exit code included."""
    last = output[-1] if isinstance(output, list) and output else None
    text = last.get("text") if isinstance(last, dict) else None
    if not isinstance(text, str) or not text.startswith("{"):
        return None
    try:
        code = object_or_empty(loads(text)).get("exit_code")
    except NotJson:
        return None
    return code != 0 if isinstance(code, int) and not isinstance(code, bool) else None


def _verdict(text: str) -> tuple[float | None, float | None]:
    """Exit code and seconds, from the lines before a command's output, or from the JSON text around it."""
    if text.startswith('{"output":') and (found := _METADATA.search(text, max(0, len(text) - 200))):
        return _number(found.group(1)), _number(found.group(2))
    if not _HEADER.match(text):
        return None, None
    head = text.partition("\nOutput:")[0][:400]
    code, wall = _EXIT.search(head), _WALL.search(head)
    return _number(code.group(1)) if code else None, _number(wall.group(1)) if wall else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


Counts = tuple[int, int]
"""Input (cached input included) and output (reasoning included)."""


@dataclass
class Usage:
    """The running total of a session."""

    total: Counts | None = None
    counted: int = 0
    """How many responses the totals so far are of."""

    def count(self, info: Any, script: Transcript) -> None:
        """Take a `token_count`: what it adds is the usage of the response since the last one that added something.

        With several responses in between the sum cannot be shared out; then only the last one's own count is used.
        So it is where totals begin with a copied history or begin anew.
        """
        total = _counts(info, "total_token_usage")
        if total is None or total == self.total:
            return
        script.end_turn()
        turns = script.turns
        known = self.total if self.total is not None or self.counted or len(turns) != 1 else (0, 0)
        added = None if known is None else (total[0] - known[0], total[1] - known[1])
        last = _counts(info, "last_token_usage")
        if len(turns) - self.counted != 1 or added is None or min(added) < 0:
            added = last
        elif self.total is None and last is not None:
            added = last  # a resumed session's first total is of more than this response
        if added is not None and len(turns) > self.counted:
            turns[-1].tokens_in, turns[-1].tokens_out = map(count_or_none, added)
        self.total, self.counted = total, len(turns)


def _counts(info: Any, key: str) -> Counts | None:
    usage = info.get(key) if isinstance(info, dict) else None
    if not isinstance(usage, dict):
        return None
    asked, said = (count_or_none(usage.get(name)) for name in ("input_tokens", "output_tokens"))
    return None if asked is None or said is None else (asked, said)
