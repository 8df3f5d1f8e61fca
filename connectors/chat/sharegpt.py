"""ShareGPT rows with tools: `{"conversations": [{"from", "value"}, …], "tools": "…"}`. A record is one conversation.

`from` is human, gpt, function_call or observation (and their synonyms); the value of a function_call is JSON text. Calls
have no ids: an observation answers the turn before it. Sets such as Hermes and ToolACE write the calls into what gpt says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat.described_tools import functions_in
from logforge.connectors.chat.dialogue import answer_all, call_of
from logforge.connectors.chat.labelled_chat import labelled_chat
from logforge.connectors.chat.openai_turns import tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    place_of,
    read_rows,
    reject,
    said_calls,
    stopped_by,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, loads
from logforge.schemas import Reading

_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model"), "assistant"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
    **dict.fromkeys(("observation", "tool", "function", "function_response", "tool_response"), "tool"),
    "system": "system",
}


class ShareGPT:
    """ShareGPT conversations."""

    name = "sharegpt_tools"
    version = 5
    record = "one conversation (an array element, a line or the document)"
    fills = ("outcome", "tools")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows whose `conversations` have from and value, and no code of an agent that runs it (`<execute>`) in their texts."""
        fits = {"from", "value"} <= head.keys.get("conversations", set())
        if not fits or not head.has_rows:
            return 0.0
        return 0.0 if b"<execute>" in head.data else 0.9

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("conversations"), list):
            yield reject(locator, "no list of `conversations`", "", row)
            return
        offered = tool_names(row.get("tools"))
        if offered is None and (offered := functions_in(text_or_none(row.get("system")) or "")) is not None:
            row = row | {"tools": offered}
        chat = _Chat(offered)
        if text_or_none(row.get("system")):
            chat.builder.message("system", text_or_none(row["system"]), at(locator, "/system"))
        for index, turn in enumerate(row["conversations"]):
            chat.add(turn, at(locator, f"/conversations/{index}"))
        episode = labelled_chat(
            self.name, chat.builder, chat.ids, row, locator, ("conversations", "tools", "system")
        )
        yield from close(chat.builder, episode)


class _Chat:
    """Takes a conversation's turns in order."""

    def __init__(self, offered: list[str] | None) -> None:
        self.builder = EpisodeBuilder()
        self._offered = offered
        self.ids: list[str] = []
        self._asked: list[str] = []

    def add(self, turn: Any, where: str) -> None:
        """Take one turn."""
        said_by = turn.get("from") if isinstance(turn, dict) else None
        role = _ROLES.get(said_by) if isinstance(said_by, str) else None
        value = turn.get("value") if role is not None else None
        if role == "call":
            self._call(value, where, place_of(turn, "value", where))
        elif role == "tool":
            self.ids += answer_all(self.builder, self._asked, value, place_of(turn, "value", where))
            self._asked = []
        elif role == "assistant":
            self._said(value, place_of(turn, "value", where))
            self.builder.cut = stopped_by(turn)
        elif role is not None:
            self.builder.message(role, value, f"{where}/value" if value else where)
        else:
            known = ", ".join(_ROLES)
            self.builder.rejects.append(
                bad_part(where, f"turn whose `from` is none of {known}", "unknown_role", turn)
            )

    def _said(self, value: Any, place: str) -> None:
        """What gpt says: words, or calls that are written as text."""
        text = text_of(value)
        calls = said_calls(text, self._offered, place)
        self._asked = [call.name for call in calls or ()]
        if calls == []:
            self.builder.unparsed(text or "", place)
        else:
            self.builder.turn(text if calls else value, calls or [], place)

    def _call(self, value: Any, where: str, place: str) -> None:
        """A call, or a list of calls of one turn."""
        try:
            parsed = loads(value) if isinstance(value, str) else value
        except NotJson:
            parsed = value
        if isinstance(parsed, list):
            inner = f"{place}#" if isinstance(value, str) else place
            found = [call_of(item, f"{inner}/{i}", self.builder.rejects) for i, item in enumerate(parsed)]
        else:
            found = [call_of(value, place, self.builder.rejects)]
        calls = [call for call in found if call is not None]
        self._asked = [call.name for call in calls]
        if calls:
            self.builder.turn(None, calls, where)
        else:
            # It decided something that the log no longer tells; a `respond` step would be an invention.
            self.builder.message("assistant", value, place)
