"""ToolBench answers (DFS or chain of thought): one JSON document with the search `tree` and the chain made of it.

The record is the document. The episode is the last chain of `train_messages` (the lists before it are its beginnings).
A search that ended without any chain is told by its tree: the path it took last is the episode, and it is truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from logforge.connectors.chat import add_message, tool_names
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    failure_in,
    first_user_text,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Episode, Reading, Step

UNFINISHED = "stopped before the agent called Finish"
"""Why an answer without `Finish` is truncated."""

_RETURN_TYPE = re.compile(r'"return_type"\s*:\s*"(\w{1,40})"')
_METHOD = re.compile(r"(?:^|.*?_)\d+_(?P<policy>(?P<model>[^_]+)_(?:DFS|CoT|BFS)[^.]*)", re.IGNORECASE)


class ToolbenchDfs:
    """ToolBench's answer files."""

    name = "toolbench_dfs"
    version = 4
    record = "one search: the document"
    fills = ("outcome", "tools")

    def sniff(self, head: Head) -> float:
        """A document with `win` and an answer, or with `win` and a search tree (the answer may lie beyond the head)."""
        tree = {"size", "max_length"} <= head.keys.get("tree", set())
        fits = "win" in head.top and ("answer_generation" in head.top or tree)
        return 0.95 if head.container == "object" and fits else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode."""
        name = source.place.name
        yield from read_rows(source, lambda row, locator: self._row(row, locator, name))

    def _row(self, row: Any, locator: str, name: str) -> Iterator[Reading]:
        answer = row.get("answer_generation") if isinstance(row, dict) else None
        if not isinstance(answer, dict):
            yield reject(locator, "no `answer_generation`", "", row)
            return
        builder = EpisodeBuilder()
        found = answer.get("train_messages")
        chains = found if isinstance(found, list) else []
        path = [] if chains else _last_path(row)
        if chains and isinstance(chains[-1], list):
            where = at(locator, f"/answer_generation/train_messages/{len(chains) - 1}")
            _add_chain(builder, chains[-1], where)
        elif path:
            _add_path(builder, path, answer, locator)
        else:
            yield reject(locator, "neither a chain of messages nor a tree with a path in it", "", row)
            return
        yield from close(builder, self._episode(builder, row, answer, locator, name))

    def _episode(
        self, builder: EpisodeBuilder, row: dict[str, Any], answer: dict[str, Any], locator: str, name: str
    ) -> Episode:
        method = _METHOD.match(name)
        query = text_of(answer.get("query"))
        calls, leaves = _size(row)
        told = read_outcome(row, locator, builder.rejects, success=("win",), score=())
        episode = builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending="truncated",
            ending_reason=UNFINISHED,
            task=query or first_user_text(builder),
            group_id=group_of(query),
            policy_id=method["policy"] if method else None,
            model=method["model"] if method else None,
            prompt_version=None,  # the prompt lists the APIs of its task, and the method says which prompt it is
            tools=tool_names(answer.get("function")),
            **told.void(failure_in(row, answer)).fields(),
            metadata=canonical(
                {
                    key: value
                    for key, value in answer.items()
                    if key not in ("train_messages", "function", "chain")
                }
                | {"forward_args": row.get("forward_args"), "tree_calls": calls, "tree_leaves": leaves}
            ),
        )
        return ended(episode)


def _add_chain(builder: EpisodeBuilder, messages: list[Any], pointer: str) -> None:
    """Read a chain. Only `Finish` reaches the user: a text right before it was heard by nobody and decides nothing."""
    for index, message in enumerate(messages):
        where = f"{pointer}/{index}"
        if _is_unheard(messages, index):
            builder.message("assistant", message.get("content"), where)
        else:
            add_message(builder, message, where)


def _is_unheard(messages: list[Any], index: int) -> bool:
    """True for a text without a call after which nothing but such texts comes until the call of `Finish`."""
    while _calls(messages[index]) == "" and index + 1 < len(messages):
        index += 1
        if _calls(messages[index]) == "Finish":
            return True
    return False


def _calls(message: Any) -> str | None:
    """The function that the agent's message calls, "" when it calls none; None when it is not the agent's."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    call = message.get("function_call") or message.get("tool_calls")
    return "" if not call else text_or_none(call.get("name")) if isinstance(call, dict) else None


def group_of(query: str | None) -> str | None:
    """Answers of every method to one query share it."""
    return task_group(query)


def ended(episode: Episode) -> Episode:
    """The episode with its true ending: ToolBench's agents end by calling `Finish`, with an answer or to give up."""
    last = episode.steps[-1] if episode.steps else None
    if last is None or last.action != "Finish":
        return episode
    reason = f"Finish: {_return_type(last)}"
    return msgspec.structs.replace(episode, ending="terminal", ending_reason=reason)


def _return_type(step: Step) -> str:
    """What `Finish` was called for; arguments that are cut off or damaged still begin with it."""
    named = _RETURN_TYPE.search(step.arguments)
    return named[1] if named else "no return type"


class _Node(NamedTuple):
    kind: str | None
    text: str | None
    node: dict[str, Any]
    pointer: str


def _root(row: dict[str, Any]) -> dict[str, Any] | None:
    tree = row.get("tree")
    root = tree.get("tree") if isinstance(tree, dict) else None
    return root if isinstance(root, dict) else None


def _children(node: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    listed = node.get("children")
    found = enumerate(listed if isinstance(listed, list) else ())
    return [(index, child) for index, child in found if isinstance(child, dict)]


def _last_path(row: dict[str, Any]) -> list[_Node]:
    """The nodes from the root to the leaf that the depth-first search reached last: the last child at every fork."""
    node, pointer, path = _root(row), "/tree/tree", []
    while node is not None:
        path.append(
            _Node(text_or_none(node.get("node_type")), text_of(node.get("description")), node, pointer)
        )
        children = _children(node)
        if children:
            pointer = f"{pointer}/children/{children[-1][0]}"
        node = children[-1][1] if children else None
    return path[1:]


def _add_path(builder: EpisodeBuilder, path: list[_Node], answer: dict[str, Any], locator: str) -> None:
    query = text_of(answer.get("query"))
    if query:
        builder.message("user", query, at(locator, "/answer_generation/query"))
    thought: tuple[str | None, str] | None = None
    action: _Node | None = None
    for step in path:
        where = at(locator, step.pointer)
        if step.kind == "Thought":
            _say(builder, thought)
            thought = (step.text, f"{where}/description")
        elif step.kind == "Action":
            _no_input(builder, action, locator)
            action = step
        elif step.kind == "Action Input" and action is not None and action.text:
            call = Call(action.text, step.text, None, at(locator, action.pointer))
            text, place = thought or (None, f"{at(locator, action.pointer)}/description")
            builder.turn(text, [call], place)
            thought = action = None
            if (seen := text_of(step.node.get("observation"))) is not None:
                builder.result(None, seen, f"{where}/observation")
        else:
            builder.rejects.append(bad_part(where, "tree node out of place", "bad_node", _shallow(step.node)))
    _say(builder, thought)
    _no_input(builder, action, locator)


def _say(builder: EpisodeBuilder, thought: tuple[str | None, str] | None) -> None:
    if thought is not None:
        builder.turn(thought[0], [], thought[1])


def _no_input(builder: EpisodeBuilder, action: _Node | None, locator: str) -> None:
    if action is not None:
        reason = "action whose input the tree does not have"
        builder.rejects.append(
            bad_part(at(locator, action.pointer), reason, "cut_action", _shallow(action.node))
        )


def _shallow(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "children"}


def _size(row: dict[str, Any]) -> tuple[int, int]:
    """How many calls and leaves the tree has: what else was tried, of which only one path is an episode."""
    root = _root(row)
    waiting = [] if root is None else [root]
    calls = leaves = 0
    while waiting:
        node = waiting.pop()
        children = [child for _, child in _children(node)]
        calls += node.get("node_type") == "Action"
        leaves += not children
        waiting += children
    return calls, leaves
