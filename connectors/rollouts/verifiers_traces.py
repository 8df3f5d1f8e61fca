"""Runs of verifiers 0.2 and later (`traces.jsonl`): an episode of the environment a line, with a trace for each agent.

A trace is a tree of messages. Each way from the root to a leaf is a conversation, and one episode here; what an earlier way
has told already is history in a later one, so that each response counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import chat_ending, tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    first_text,
    first_user_text,
    object_or_empty,
    read_rows,
    reject,
    task_group,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.rollouts.messages import Talk, one_record
from logforge.schemas import Ending, Episode, Reading

_TOLD = frozenset({"nodes", "calls", "tools"})


class VerifiersTraces:
    """Traces of verifiers' environments."""

    name = "verifiers_traces"
    version = 1
    record = "one episode of an environment (a line)"
    fills = ("score", "tools", "thoughts", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Lines with traces that are made of nodes."""
        mine = {"traces", "task"} <= head.top and {"nodes", "task"} <= head.keys.get("traces", set())
        return 0.95 if mine and head.has_rows else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation of a trace."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        traces = row.get("traces") if isinstance(row, dict) else None
        if not isinstance(traces, list) or not traces:
            yield reject(locator, "no list of `traces`", "", row)
            return
        if not all(isinstance(trace, dict) and isinstance(trace.get("nodes"), list) for trace in traces):
            yield reject(locator, "a trace without a list of `nodes`", "", row)
            return
        beside = {key: value for key, value in row.items() if key != "traces"}
        found = [
            readings
            for index, trace in enumerate(traces)
            for readings in self._trace(trace, beside, at(locator, f"/traces/{index}"))
        ]
        yield from one_record(found)

    def _trace(self, trace: dict[str, Any], beside: dict[str, Any], where: str) -> Iterator[list[Reading]]:
        told: set[int] = set()
        for way in _ways(trace["nodes"]) or [[]]:
            builder = EpisodeBuilder()
            talk = Talk(builder)
            for index in way:
                _add(talk, trace["nodes"][index], at(where, f"/nodes/{index}"), index not in told)
            told.update(way)
            identity = content_id(self.name, [trace, beside, way])
            yield list(close(builder, self._episode(builder, trace, beside, identity, where)))

    def _episode(
        self,
        builder: EpisodeBuilder,
        trace: dict[str, Any],
        beside: dict[str, Any],
        identity: str,
        where: str,
    ) -> Episode:
        score = None if trace.get("errors") else _score(trace.get("rewards"))
        ending, reason = _ending(builder, trace, score is not None)
        task, task_of = first_user_text(builder), object_or_empty(trace.get("task"))
        model = _model(trace)
        kept = {key: value for key, value in trace.items() if key not in _TOLD}
        return builder.finish(
            id=identity,
            format=self.name,
            locator=where,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(trace, "id"),
            task_id=first_text(task_of, "key", "hash"),
            group_id=task_group(task),
            task=task,
            model=model,
            policy_id=model,
            tools=tool_names(trace.get("tools") or None),
            score=score,
            metadata=canonical(kept | {"episode": beside}),
        )


def _ways(nodes: list[Any]) -> list[list[int]]:
    """Each way from a root to a leaf. A node names one before it as its parent; another name is no parent."""
    parents = [_parent(node, index) for index, node in enumerate(nodes)]
    inner = set(parents)
    found = []
    for leaf in (index for index in range(len(nodes)) if index not in inner):
        way: list[int] = []
        here: int | None = leaf
        while here is not None:
            way.append(here)
            here = parents[here]
        found.append(way[::-1])
    return found


def _parent(node: Any, index: int) -> int | None:
    parent = node.get("parent") if isinstance(node, dict) else None
    return (
        parent if isinstance(parent, int) and not isinstance(parent, bool) and 0 <= parent < index else None
    )


def _add(talk: Talk, node: Any, where: str, is_new: bool) -> None:
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        talk.builder.rejects.append(bad_part(where, "a node without a message", "bad_node", node))
        return
    timed = message | {"timestamp": node.get("timestamp")}
    talk.add(timed, f"{where}/message", decided=is_new and node.get("sampled") is True)


def _score(rewards: Any) -> float | None:
    """The sum of the rewards by their weights; None where none was given."""
    found = [reward for reward in object_or_empty(rewards).values() if isinstance(reward, dict)]
    pairs = [(reward.get("score"), reward.get("weight", 1.0)) for reward in found]
    known = [(score, weight) for score, weight in pairs if _is_number(score) and _is_number(weight)]
    return float(sum(score * weight for score, weight in known)) if known else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e150


def _model(trace: dict[str, Any]) -> str | None:
    calls = trace.get("calls")
    named = (
        call.get("model") for call in (calls if isinstance(calls, list) else ()) if isinstance(call, dict)
    )
    return next((model for value in named if (model := text_or_none(value)) is not None), None)


def _ending(builder: EpisodeBuilder, trace: dict[str, Any], judged: bool) -> tuple[Ending, str]:
    if trace.get("errors"):
        return "truncated", "an error stopped it"
    if trace.get("is_timeout") is True:
        return "truncated", "the time limit"
    if trace.get("is_completed") is False:
        return "truncated", "the log says that it was not completed"
    return chat_ending(builder, judged, trace)
