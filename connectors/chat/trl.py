"""TRL's rows: `prompt` and `completion` (with KTO's `label`), or `chosen` and `rejected` with or without a `prompt`.

A record is one row. Texts are a user's and an assistant's; lists are OpenAI messages. The prompt is history: only what the
completion does is a decision. A preference is two episodes of one group, one for each answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from logforge.connectors.chat.dialogue import CALLS_IN_TEXT, add_history, chat_ending
from logforge.connectors.chat.openai_turns import add_message, tool_names
from logforge.connectors.episodes import (
    SCORE_KEYS,
    SUCCESS_KEYS,
    EpisodeBuilder,
    close,
    content_id,
    first_text,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Episode, Reading, Reject

_PAIR = ("chosen", "rejected")
_SCORES = {
    "completion": SCORE_KEYS,
    "chosen": ("score_chosen", "chosen_score", "chosen_rating"),
    "rejected": ("score_rejected", "rejected_score", "rejected_rating"),
}
_OTHERS = frozenset({"messages", "conversations", "example_id"})
"""Keys of rows that have a prompt and a completion among others; the last is that of verifiers' rollouts."""
_MESSAGES = frozenset({"role", "content"})


class Trl:
    """Rows for TRL's trainers."""

    name = "trl"
    version = 4
    record = "one row (a line, an array element or the document)"
    fills = ("outcome", "score", "tools")
    splittable = True

    def sniff(self, head: Head) -> float:
        """A prompt with a completion, or two answers to choose from; answers without a prompt must be messages."""
        if not head.has_rows or _OTHERS & head.top:
            return 0.0
        if not (set(_PAIR) <= head.top or {"prompt", "completion"} <= head.top):
            return 0.0
        if any(mark in head.data for mark in CALLS_IN_TEXT):
            return 0.0
        if set(_PAIR) <= head.top:
            listed = all(head.keys.get(side, set()) >= _MESSAGES for side in _PAIR)
            return 0.8 if "prompt" in head.top or listed else 0.0
        return 0.6

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per answer."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        given = [side for side in _SCORES if isinstance(row, dict) and _is_chat(row.get(side))]
        if "completion" not in given and not set(_PAIR) <= set(given):
            yield reject(locator, "neither a completion nor a chosen and a rejected answer", "", row)
            return
        sides = ["completion"] if "completion" in given else list(_PAIR)
        skipped = _repeated(row, sides)
        found = [list(self._answer(row, side, skipped, locator)) for side in sides]
        has_episode = [any(isinstance(item, Episode) for item in readings) for readings in found]
        first = has_episode.index(True) if True in has_episode else 0
        for index, readings in enumerate(found):
            yield from readings if index == first else _beside(readings)

    def _answer(self, row: dict[str, Any], side: str, skipped: int, locator: str) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        where, prompt, answer = at(locator, f"/{side}"), row.get("prompt"), row[side]
        if skipped:
            add_history(builder, answer[:skipped], where)
        elif isinstance(prompt, str):
            builder.message("user", prompt, at(locator, "/prompt"))
        elif isinstance(prompt, list):
            add_history(builder, prompt, at(locator, "/prompt"))
        task = next((m.content for m in builder.messages if m.role == "user"), None)
        if isinstance(answer, str):
            builder.turn(answer, [], where)
        else:
            for index in range(skipped, len(answer)):
                add_message(builder, answer[index], f"{where}/{index}")
        yield from close(builder, self._episode(builder, row, side, task, locator))

    def _episode(
        self, builder: EpisodeBuilder, row: dict[str, Any], side: str, task: str | None, locator: str
    ) -> Episode:
        pair = side in _PAIR
        verdicts = () if pair else SUCCESS_KEYS
        outcome = read_outcome(row, locator, builder.rejects, success=verdicts, score=_SCORES[side])
        ending, reason = chat_ending(builder, pair or outcome.known, row)
        kept = {k: v for k, v in row.items() if k not in ("prompt", "tools", *_SCORES)}
        return builder.finish(
            id=content_id(self.name, [row, side]),
            format=self.name,
            locator=at(locator, f"/{side}") if pair else locator,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "id", "prompt_id"),
            group_id=task_group(task),
            task=task,
            model=text_or_none(row.get("model")),
            policy_id=text_or_none(row.get("model")),
            tools=tool_names(row.get("tools")),
            **outcome.fields(),
            metadata=canonical(kept | ({"preference": side} if pair else {})),
        )


def _is_chat(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value))


def _repeated(row: dict[str, Any], sides: list[str]) -> int:
    """How many of an answer's first messages are the prompt over again: what both answers begin with, or the prompt itself."""
    prompt, answers = row.get("prompt"), [row[side] for side in sides]
    if not all(isinstance(answer, list) for answer in answers):
        return 0
    if isinstance(prompt, list):
        size = len(prompt)
        return size if all(answer[:size] == prompt and len(answer) > size for answer in answers) else 0
    size = 0
    while size < min(map(len, answers)) - 1 and all(answer[size] == answers[0][size] for answer in answers):
        size += 1
    said = [message.get("content") for message in answers[0][:size] if isinstance(message, dict)]
    alone = len(answers) == 1 and said[-1:] != [prompt]
    return 0 if alone or (prompt is not None and prompt not in said) else size


def _beside(readings: list[Reading]) -> Iterator[Reading]:
    """What a second answer of a row gives: the row, one record, is accounted for by the first."""
    for item in readings:
        if isinstance(item, Episode):
            yield msgspec.structs.replace(item, records=0)
        elif isinstance(item, Reject) and item.level == "part":
            yield item
