"""ToolEval results: one JSON document, the answers by their query id. A record is one entry.

An answer is a chain of nested nodes. A `tool` node holds call and result in one text, the repr of a Python dict, and in
the published files most of these texts are cut off after 100 characters: what can be seen of them is kept, marked, and
nothing is made up for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.benchmarks.toolbench import UNFINISHED, ended, group_of
from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    entry_keys,
    first_user_text,
    place_of,
    read_keyed,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Fields, Head, NotLiteral, Source, at, canonical, fields
from logforge.schemas import Reading


class _Node(NamedTuple):
    role: str | None
    message: Any
    where: str
    place: str
    """Of the message."""


class Tooleval:
    """ToolEval's converted answers."""

    name = "tooleval"
    version = 3
    record = "one entry of the document: an answer to a query"
    fills = ("tools",)

    def sniff(self, head: Head) -> float:
        """An object of entries with a query, the tools offered and an answer."""
        needed = {"query", "available_tools", "answer"}
        return 0.95 if any(needed <= keys for keys in entry_keys(head)) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per entry."""
        yield from read_keyed(source, self._entry)

    def _entry(self, key: str, entry: dict[str, Any], locator: str) -> Iterator[Reading]:
        answer = entry.get("answer")
        details = answer.get("answer_details") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(details, list):
            yield reject(locator, "no `answer` with a list `answer_details`", "", entry)
            return
        chain = _Chain(entry, answer, locator)
        chain.add_nodes(details)
        builder, method = chain.builder, text_or_none(answer.get("method"))
        episode = builder.finish(
            id=content_id(self.name, {key: entry}),
            format=self.name,
            locator=locator,
            ending="truncated",
            ending_reason=UNFINISHED,
            native_id=key,
            task_id=key,
            task=first_user_text(builder),
            group_id=group_of(text_of(entry.get("query"))),
            policy_id=method,
            model=method.partition("_")[0] if method else None,
            tools=tool_names(entry.get("available_tools")),
            metadata=canonical(
                {name: value for name, value in answer.items() if name != "answer_details"}
                | {"cut_messages": chain.cut}
            ),
        )
        yield from close(builder, ended(episode))


class _Chain:
    """Takes the nodes of an answer in order."""

    def __init__(self, entry: dict[str, Any], answer: dict[str, Any], locator: str) -> None:
        self.builder = EpisodeBuilder()
        self.query = text_of(entry.get("query"))
        self.final_answer = text_of(answer.get("final_answer")) or ""
        self.locator = locator
        self.cut = 0
        self._said: _Node | None = None

    def add_nodes(self, details: list[Any]) -> None:
        """Take the path that was followed to the end: at a fork the last branch; the others are set aside."""
        branches, where = details, at(self.locator, "/answer/answer_details")
        while branches:
            for index, branch in enumerate(branches[:-1]):
                self._reject(f"{where}/{index}", "branch beside the one taken last", "other_branch", branch)
            node, where = branches[-1], f"{where}/{len(branches) - 1}"
            if not isinstance(node, dict):
                self._reject(where, "node is no object", "bad_node", node)
                break
            self._add(
                _Node(
                    text_or_none(node.get("role")),
                    node.get("message"),
                    where,
                    place_of(node, "message", where),
                )
            )
            branches = node["next"] if isinstance(node.get("next"), list) else []
            where = f"{where}/next"
        self._flush()

    def _reject(self, where: str, reason: str, rule: str, found: Any) -> None:
        short = {k: v for k, v in found.items() if k != "next"} if isinstance(found, dict) else found
        self.builder.rejects.append(bad_part(where, reason, rule, short))

    def _add(self, node: _Node) -> None:
        if node.role == "tool":
            self._tool(node)
            return
        self._flush()
        text = text_of(node.message)
        if node.role == "assistant":
            self._said = node
        elif node.role == "user" and text and self.query and self.query.startswith(text):
            self.builder.message("user", self.query, at(self.locator, "/query"))
        elif node.role in ("system", "user"):
            if text:
                self.builder.message(node.role, text, node.place)
        else:
            reason = "node whose role is none of system, user, assistant, tool"
            self._reject(node.where, reason, "unknown_role", {"role": node.role, "message": node.message})

    def _flush(self) -> None:
        """What the agent said without calling a tool after it."""
        said, self._said = self._said, None
        if said is not None:
            self.builder.turn(said.message, [], said.place)

    def _tool(self, node: _Node) -> None:
        found = _fields(node.message)
        name = found.values.get("name") if found else None
        if found is None or found.cut == "name" or not isinstance(name, str) or not name:
            self._flush()
            self._reject(node.where, "tool node whose call cannot be read", "bad_call", node._asdict())
            return
        self.cut += found.cut is not None
        said, self._said = self._said, None
        call = Call(name, self._arguments(name, found) or node.message, None, node.where)
        text, place = (text_of(said.message), said.place) if said else (None, node.place)
        self.builder.turn(text, [call], place)
        result = text_of(found.values.get("response"))
        if result or (result is not None and found.cut is None):
            self.builder.result(None, result, node.place)

    def _arguments(self, name: str, found: Fields) -> Any:
        """Arguments that are cut off stay as they are; those of `Finish` stand whole in the final answer."""
        arguments = found.values.get("arguments")
        if found.cut is None:
            return arguments or "{}"
        if found.cut == "arguments" and name == "Finish" and self.final_answer.startswith(str(arguments)):
            return self.final_answer
        return arguments


def _fields(message: Any) -> Fields | None:
    if isinstance(message, dict):
        return Fields(message)
    try:
        return fields(message) if isinstance(message, str) else None
    except NotLiteral:
        return None
