"""tau-bench's few-shot dialogues: JSON lines with the whole dialogue as one text. A record is one line.

The text has `role: words` for each turn, and a call is flattened to `assistant: None`: what was called is lost. Such a
dialogue is kept to be read, without steps: no call is made up, and what was decided around it is no transition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from logforge.connectors.episodes import (
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    first_user_text,
    read_rows,
    reject,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Reading

_TURN = re.compile(r"^(system|user|assistant|tool): ?", re.MULTILINE)
_LOST = "None"


class TauBenchFewshot:
    """tau-bench's `few_shot_data`."""

    name = "tau_bench_fewshot"
    version = 4
    record = "one line: a dialogue"
    fills: tuple[str, ...] = ()
    splittable = True

    def sniff(self, head: Head) -> float:
        """Lines with `messages_display` and no messages."""
        mine = head.container == "object" and "messages_display" in head.top and "messages" not in head.top
        return 0.95 if mine else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per line."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        text = row.get("messages_display") if isinstance(row, dict) else None
        if not isinstance(text, str):
            yield reject(locator, "no text `messages_display`", "", row)
            return
        builder, where = EpisodeBuilder(), at(locator, "/messages_display")
        turns = _turns(text)
        lost = _lost_calls(turns)
        for index, (role, words) in enumerate(turns):
            _add(builder, role, words, where, index in lost, bool(lost))
        ending, reason = _ending(turns)
        episode = builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            task=first_user_text(builder),
            metadata=canonical(
                {key: value for key, value in row.items() if key != "messages_display"}
                | {"lost_calls": len(lost)}
            ),
        )
        yield from close(builder, episode)


def _turns(text: str) -> list[tuple[str, str]]:
    """Role and words of each turn; no role for what stands before the first one."""
    before, *rest = _TURN.split(text)
    turns = [(role, words.removesuffix("\n")) for role, words in zip(rest[::2], rest[1::2], strict=True)]
    return [("", before), *turns] if before.strip() else turns


def _lost_calls(turns: list[tuple[str, str]]) -> set[int]:
    """The assistant's turns that called something: `None`, or words that a tool answers."""
    pairs = zip_longest(turns, turns[1:], fillvalue=("", ""))
    return {
        index
        for index, ((role, words), (following, _)) in enumerate(pairs)
        if role == "assistant" and (words == _LOST or following == "tool")
    }


def _add(builder: EpisodeBuilder, role: str, words: str, where: str, lost: bool, readable: bool) -> None:
    """`readable`: the dialogue is there to be read only, so no turn of it is a step."""
    if lost:
        reason = "a call whose name and arguments the log has lost"
        builder.rejects.append(bad_part(where, reason, "lost_call", words))
        builder.message("assistant", None if words == _LOST else words, where)
    elif not role:
        builder.rejects.append(bad_part(where, "words without a role", "unknown_role", words))
    elif role == "tool":
        # The store's tool messages answer a call; this one's is lost, and neither side of the dialogue said it.
        builder.message("system", words, where)
    elif role == "assistant" and not readable:
        builder.turn(words, [], where)
    else:
        builder.message(role, words, where)


def _ending(turns: list[tuple[str, str]]) -> tuple[Ending, str]:
    role, words = turns[-1] if turns else ("", "")
    if role == "user" and "###STOP###" in words:
        return "terminal", "the user ended it"
    if role == "tool" and words.startswith("Transfer successful"):
        return "terminal", "handed over to a human"
    return "truncated", "the log stops without an end"
