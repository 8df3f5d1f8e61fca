"""Claude.ai's data export (`conversations.json`), and its conversations one by one as the web app loads them.

A message is a list of blocks: thinking, texts, calls and their results, of an assistant all in one message. Where messages name
their parents, the conversation is a tree: its path to the current leaf (else to the newest one) is the conversation's episode, and
a branch that was left is one of its own where the agent decided something in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.captures.trees import Branch, branch_id, branch_name, branches, left_branches
from logforge.connectors.chat import add_turn
from logforge.connectors.episodes import (
    EpisodeBuilder,
    Text,
    bad_part,
    close,
    first_user_text,
    keyed,
    micros,
    names_call,
    object_or_empty,
    read_content,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, canonical, pointer
from logforge.schemas import Ending, Reading

_MESSAGE = frozenset(
    {
        "uuid",
        "text",
        "content",
        "sender",
        "index",
        "created_at",
        "updated_at",
        "truncated",
        "attachments",
        "files",
    }
    | {
        "files_v2",
        "sync_sources",
        "parent_message_uuid",
        "stop_reason",
        "input_mode",
        "metadata",
        "chat_feedback",
    }
)
_NO_CONTENT = frozenset({"token_budget", "flag"})
"""Blocks that the app puts between others: nobody says them."""
_FILE = frozenset({"file_name", "file_uuid", "id", "file_kind"})
_STOPS = {
    "max_tokens": "the model's output limit",
    "user_canceled": "the user stopped the answer",
    "message_limit": "the user's message limit",
}


class ClaudeAi:
    """Conversations of Claude.ai."""

    name = "claude_ai"
    version = 1
    record = "one conversation (an array element, a line or the document)"
    fills = ("thoughts", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """`chat_messages` with a `sender`."""
        if head.container not in ("object", "array") or "chat_messages" not in head.top:
            return 0.0
        return 0.95 if "sender" in head.keys.get("chat_messages", set()) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation, and one per branch of it that was left."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        listed = row.get("chat_messages") if isinstance(row, dict) else None
        if not isinstance(listed, list):
            yield reject(locator, "no list `chat_messages`", "", row)
            return
        nodes = _nodes(listed, pointer(locator, "chat_messages"))
        parents = _parents(nodes)
        found = branches(parents, _current(row, nodes, parents)) or [Branch(())]
        extra = yield from left_branches(
            found, nodes, _decides, lambda branch: self._episode(row, locator, nodes, branch)
        )
        yield from self._episode(row, locator, nodes, found[0], extra)

    def _episode(
        self,
        row: dict[str, Any],
        locator: str,
        nodes: dict[str, _Node],
        branch: Branch,
        rejects: list[Any] | None = None,
    ) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        builder.rejects += rejects or []
        ids: dict[int, str] = {}
        for key in branch.path:
            begin = len(builder.messages)
            _add(builder, nodes[key])
            ids |= dict.fromkeys(range(begin, len(builder.messages)), key)
        ending, reason = _ending(builder, nodes[branch.path[-1]].message if branch.path else {})
        native, model = text_or_none(row.get("uuid")), text_or_none(row.get("model"))
        kept = {key: value for key, value in row.items() if key != "chat_messages"}
        episode = builder.finish(
            id=branch_id(self.name, native, row, branch),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=branch_name(native, branch),
            session_id=native,
            task=first_user_text(builder),
            model=model,
            policy_id=model,
            metadata=canonical(kept | ({"left_branch": True} if rejects is None else {})),
        )
        yield from keyed(close(builder, episode), ids)


def _decides(node: _Node) -> bool:
    return node.message.get("sender") != "human"


class _Node(NamedTuple):
    """A message, where it stands, and the message that it names as the one before it."""

    message: dict[str, Any]
    where: str
    parent: str | None
    whole: Any


def _nodes(listed: list[Any], place: str) -> dict[str, _Node]:
    """The messages by their ids; one without an id of its own by its place."""
    nodes: dict[str, _Node] = {}
    for index, whole in enumerate(listed):
        message = object_or_empty(whole)
        own = text_or_none(message.get("uuid"))
        key = f"#{index}" if own is None or own in nodes else own
        nodes[key] = _Node(
            message, f"{place}/{index}", text_or_none(message.get("parent_message_uuid")), whole
        )
    return nodes


def _parents(nodes: dict[str, _Node]) -> dict[str, str | None]:
    """Who each message follows: the one that it names, else, where no message names one, the one before it."""
    if not any(node.parent in nodes for node in nodes.values()):
        return dict(zip(nodes, [None, *nodes], strict=False))
    return {key: node.parent if node.parent in nodes else None for key, node in nodes.items()}


def _current(row: dict[str, Any], nodes: dict[str, _Node], parents: dict[str, str | None]) -> str | None:
    """The message that the conversation ends with: the named leaf, else the newest."""
    leaf = text_or_none(row.get("current_leaf_message_uuid"))
    if leaf in nodes:
        return leaf
    inner = set(parents.values())
    ends = [
        (micros(node.message.get("created_at")) or 0, i, key)
        for i, (key, node) in enumerate(nodes.items())
        if key not in inner
    ]
    return max(ends)[2] if ends else None


def _add(builder: EpisodeBuilder, node: _Node) -> None:
    message, where = node.message, node.where
    if not isinstance(node.whole, dict):
        builder.rejects.append(bad_part(where, "message is no object", "bad_message", node.whole))
        return
    sender, time = message.get("sender"), micros(message.get("created_at"))
    content, place = _content(message, where)
    for key, value in message.items():
        told = bool(value) and (content is None or (sender == "human" and isinstance(value, list)))
        if key not in _MESSAGE and (told or names_call(key, value)):
            builder.unknown(pointer(where, key), value, decides=sender != "human")
    if sender == "human":
        _add_human(builder, message, content, place, where, time)
    elif sender == "assistant":
        if content is not None:
            add_turn(builder, content, place, None, created_at=time)
    else:
        builder.unknown(where, message, decides=True)


def _content(message: dict[str, Any], where: str) -> tuple[Any, str]:
    """Its blocks, without those that nobody says; else its text, which repeats them where there are any."""
    content, text = message.get("content"), message.get("text")
    if isinstance(content, list) and content:
        return ["" if _is_note(block) else block for block in content], pointer(where, "content")
    return (content, pointer(where, "content")) if content else (text or None, pointer(where, "text"))


def _is_note(block: Any) -> bool:
    kind = object_or_empty(block).get("type")
    return isinstance(kind, str) and kind in _NO_CONTENT


def _add_human(
    builder: EpisodeBuilder, message: dict[str, Any], content: Any, place: str, where: str, time: int | None
) -> None:
    parts = read_content(content, place)
    builder.rejects += parts.rejects
    for answer in parts.answers:
        builder.result(answer.call_id, answer.text, answer.locator, failed=answer.failed, created_at=time)
    texts = parts.texts + _attached(builder, message, where)
    builder.note(parts.unknown, decides=not texts)
    for call in parts.calls:
        builder.rejects.append(
            bad_part(call.locator or where, "a call in a human's message", "bad_call", call.name)
        )
    if texts:
        builder.message("user", "\n".join(text for text, _ in texts), texts[0].locator, created_at=time)


def _attached(builder: EpisodeBuilder, message: dict[str, Any], where: str) -> list[Text]:
    """The text of what was attached; a mark for a file whose text the log does not have."""
    found = []
    for key in ("attachments", "files"):
        listed = message.get(key)
        if listed and not isinstance(listed, list):
            builder.unknown(pointer(where, key), listed, decides=False)
        for index, file in enumerate(listed if isinstance(listed, list) else ()):
            place = f"{pointer(where, key)}/{index}"
            text = object_or_empty(file).get("extracted_content")
            if isinstance(text, str) and text:
                found.append(Text(text, pointer(place, "extracted_content")))
            elif text == "" or (key == "files" and object_or_empty(file).keys() & _FILE):
                found.append(Text("[file]", place))
            else:
                builder.unknown(place, file, decides=False)
    return found


def _ending(builder: EpisodeBuilder, last: dict[str, Any]) -> tuple[Ending, str]:
    """Who had the last word, and why it ended where the message says so."""
    stop = text_or_none(last.get("stop_reason")) or ""
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if stop in _STOPS:
        return "truncated", _STOPS[stop]
    if builder.messages and builder.messages[-1].role == "assistant" and builder.messages[-1].content:
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"
