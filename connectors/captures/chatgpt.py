"""ChatGPT's data export (`conversations.json`), and its conversations one by one as the web app loads them.

A conversation is a tree of nodes (`mapping`), and `current_node` its end as the user left it. That path is the conversation's
episode. A branch that was left (an edited question, an answer that was asked for again) is an episode of its own where the
agent decided something in it. The decisions it shares with others have their messages' ids, by which they count once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.captures.chatgpt_messages import Node, add_path, decides
from logforge.connectors.captures.trees import Branch, branch_id, branch_name, branches, left_branches
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    first_text,
    keyed,
    micros,
    object_or_empty,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, canonical, pointer
from logforge.schemas import Ending, Reading

_LINKS = frozenset({"parent", "children"})
_STOPS = {
    "max_tokens": "the model's output limit",
    "length": "the model's output limit",
    "interrupted": "the user stopped the answer",
    "user_interruption": "the user stopped the answer",
}
_OPEN = {"in_progress": "still being written", "finished_partial_completion": "the answer is not whole"}


class ChatGPT:
    """Conversations of ChatGPT."""

    name = "chatgpt"
    version = 1
    record = "one conversation (an array element, a line or the document)"
    fills = ("thoughts", "latency", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """A `mapping` of nodes that have a message, a parent and children."""
        if head.container not in ("object", "array") or "mapping" not in head.top:
            return 0.0
        nodes = [keys for path, keys in head.keys.items() if path.startswith("mapping.")]
        linked = any("message" in keys and keys & _LINKS for keys in nodes)
        return 0.95 if linked and any({"author", "content"} <= keys for keys in nodes) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation, and one per branch of it that was left."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        mapping = row.get("mapping") if isinstance(row, dict) else None
        if not isinstance(mapping, dict):
            yield reject(locator, "no `mapping` of nodes", "", row)
            return
        place = pointer(locator, "mapping")
        nodes = {key: Node(key, value, pointer(place, key)) for key, value in mapping.items()}
        parents = _parents(nodes)
        named = text_or_none(row.get("current_node"))
        current = named if named in nodes else _newest(nodes, parents)
        found = branches(parents, current) or [Branch(())]
        extra = yield from left_branches(
            found, nodes, decides, lambda branch: self._episode(row, locator, nodes, branch)
        )
        if named is not None and named not in nodes:
            reason = "`current_node` names no node: the newest end is read"
            extra.append(bad_part(pointer(locator, "current_node"), reason, "bad_node", named))
        yield from self._episode(row, locator, nodes, found[0], extra)

    def _episode(
        self,
        row: dict[str, Any],
        locator: str,
        nodes: dict[str, Node],
        branch: Branch,
        rejects: list[Any] | None = None,
    ) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        builder.rejects += rejects or []
        path = [nodes[key] for key in branch.path]
        told = add_path(builder, path)
        ending, reason = _ending(builder, path)
        native = first_text(row, "conversation_id", "id")
        model = next((message.model for message in builder.messages if message.model), None)
        model = model or text_or_none(row.get("default_model_slug"))
        kept = {key: value for key, value in row.items() if key not in ("mapping", "current_node")}
        episode = builder.finish(
            id=branch_id(self.name, native, row, branch),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=branch_name(native, branch),
            session_id=native,
            task=told.task,
            model=model,
            policy_id=model,
            metadata=canonical(kept | ({"left_branch": True} if rejects is None else {})),
        )
        yield from keyed(close(builder, episode), told.ids)


def _parents(nodes: dict[str, Node]) -> dict[str, str | None]:
    """Who each node follows: its own word, else that of a node that names it among its children, the oldest child first."""
    named = {child: key for key, node in nodes.items() for child in node.children}
    age = {child: place for node in nodes.values() for place, child in enumerate(node.children)}
    return {
        key: nodes[key].parent if nodes[key].parent in nodes else named.get(key)
        for key in sorted(nodes, key=lambda key: age.get(key, 0))
    }


def _newest(nodes: dict[str, Node], parents: dict[str, str | None]) -> str | None:
    """The end that was written last, where nothing says which one is the current one."""
    inner = set(parents.values())
    ends = [key for key in nodes if key not in inner]
    times = {key: micros(nodes[key].message.get("create_time")) or 0 for key in ends}
    return max(ends, key=lambda key: times[key], default=None)


def _ending(builder: EpisodeBuilder, path: list[Node]) -> tuple[Ending, str]:
    """What the last message says of how it ended."""
    last: dict[str, Any] = next((node.message for node in reversed(path) if node.says_something), {})
    about = object_or_empty(last.get("metadata"))
    stop = text_or_none(object_or_empty(about.get("finish_details")).get("type")) or ""
    status = text_or_none(last.get("status")) or ""
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if stop in _STOPS:
        return "truncated", _STOPS[stop]
    if status in _OPEN:
        return "truncated", _OPEN[status]
    if (
        not builder.messages
        or builder.messages[-1].role != "assistant"
        or builder.messages[-1].content is None
    ):
        return "truncated", "the log stops before the agent's answer"
    if last.get("end_turn") is True:
        return "terminal", "the agent ended its turn"
    if last.get("end_turn") is False:
        return "truncated", "the agent's turn went on"
    return "terminal", "end of conversation"
