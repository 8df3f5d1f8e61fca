"""Results of verifiers' environments (`results.jsonl`, or the same as a set on the Hub). A record is one rollout.

`prompt` is what the policy was given, `completion` what it said and what the environment answered: text or messages, whose
calls may be JSON texts. A rollout that an error stopped has a reward of 0 that judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import chat_ending, tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    Outcome,
    bad_part,
    close,
    content_id,
    failure_in,
    first_text,
    first_user_text,
    object_or_empty,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.rollouts.messages import Talk
from logforge.schemas import Ending, Episode, Reading

_OWN = frozenset(
    {"is_truncated", "stop_condition", "is_completed", "generation_ms", "timing", "metrics", "trajectory"}
)
"""Columns beside `example_id` of which most files have one."""
_TOLD = frozenset({"prompt", "completion", "tool_defs", "oai_tools", "answer", "trajectory"})
"""Columns that are told elsewhere; `trajectory` holds the same messages once more, request by request."""


class Verifiers:
    """Rollouts of verifiers' environments."""

    name = "verifiers"
    version = 1
    record = "one rollout (a line, an array element or the document)"
    fills = ("score", "tools", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows with a prompt, a completion, a reward and the id of the example."""
        if not head.has_rows or not {"prompt", "completion", "reward", "example_id"} <= head.top:
            return 0.0
        return 0.9 if _OWN & head.top else 0.7

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per rollout."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("completion"), str | list):
            yield reject(locator, "neither a text nor a list of messages under `completion`", "", row)
            return
        builder = EpisodeBuilder()
        talk = Talk(builder)
        _add(talk, row.get("prompt"), at(locator, "/prompt"), decided=False)
        task = first_user_text(builder)
        _add(talk, row["completion"], at(locator, "/completion"), decided=True)
        yield from close(builder, self._episode(builder, row, task, locator))

    def _episode(
        self, builder: EpisodeBuilder, row: dict[str, Any], task: str | None, locator: str
    ) -> Episode:
        told = read_outcome(row, locator, builder.rejects, success=(), score=("reward",))
        outcome = Outcome(unknown=failure_in(row) or "an error ended it") if row.get("error") else told
        ending, reason = _ending(builder, row, outcome.known)
        info = object_or_empty(row.get("info"))
        offered = next(
            (found for found in (row.get("tool_defs"), row.get("oai_tools"), info.get("oai_tools")) if found),
            None,
        )
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "trajectory_id", "rollout_id", "id"),
            task_id=first_text(row, "example_id"),
            group_id=task_group(task),
            task=task,
            model=text_or_none(row.get("model")),
            policy_id=text_or_none(row.get("model")),
            tools=tool_names(offered),
            **outcome.fields(),
            reference=text_or_none(row.get("answer")),
            metadata=canonical({key: value for key, value in row.items() if key not in _TOLD}),
        )


def _ending(builder: EpisodeBuilder, row: dict[str, Any], judged: bool) -> tuple[Ending, str]:
    if row.get("error"):
        return "truncated", "an error stopped it"
    if row.get("is_completed") is False:
        return "truncated", "the log says that it was not completed"
    return chat_ending(builder, judged, row)


def _add(talk: Talk, said: Any, where: str, *, decided: bool) -> None:
    if isinstance(said, str):
        if decided:
            talk.builder.turn(said, [], where)
        else:
            talk.builder.message("user", said, where)
    elif isinstance(said, list):
        for index, message in enumerate(said):
            talk.add(message, f"{where}/{index}", decided=decided)
    elif said is not None:
        talk.builder.rejects.append(
            bad_part(where, "neither a text nor a list of messages", "bad_content", said)
        )
