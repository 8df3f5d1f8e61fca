"""Generations that verl dumps while it trains or validates (`rollout_data_dir`): one prompt and one response a line, as text.

The texts were decoded from tokens without the special ones, so turns are told by the words of the chat template. A response
with calls in it is cut where the template of Qwen's models stands around a tool's response, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat import chat_ending
from logforge.connectors.episodes import (
    EpisodeBuilder,
    close,
    content_id,
    first_text,
    read_outcome,
    read_rows,
    reject,
    said_calls,
    task_group,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Reading

_COLUMNS = frozenset({"input", "output", "gts", "score", "step"})
_ANSWERED = re.compile(
    r"\n?user\n((?:<tool_response>\n(?:(?!\n</tool_response>).)*+\n</tool_response>\n?)++)\s*assistant\n",
    re.DOTALL,
)
_RESPONSE = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
_CALL = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)


class Verl:
    """verl's dumped generations."""

    name = "verl"
    version = 1
    record = "one generation (a line)"
    fills = ("score",)
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows with verl's own five columns."""
        return 0.95 if head.has_rows and head.top >= _COLUMNS else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per generation."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("output"), str):
            yield reject(locator, "no text under `output`", "", row)
            return
        builder = EpisodeBuilder()
        given = row.get("input")
        if isinstance(given, str):
            builder.message("user", given, at(locator, "/input"))
        _respond(builder, row["output"], at(locator, "/output"))
        task = given if isinstance(given, str) else None
        outcome = read_outcome(row, locator, builder.rejects, success=(), score=("score",))
        ending, reason = chat_ending(builder, outcome.known, row)
        gold = row.get("gts")
        episode = builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "request_id", "uid"),
            group_id=task_group(task),
            task=task,
            **outcome.fields(),
            reference=gold if isinstance(gold, str) else None if gold is None else canonical(gold),
            metadata=canonical({k: v for k, v in row.items() if k not in ("input", "output", "gts")}),
        )
        yield from close(builder, episode)


def _respond(builder: EpisodeBuilder, output: str, where: str) -> None:
    """The turns of a response, and what the tools answered between them."""
    place = 0
    for match in _ANSWERED.finditer(output):
        calls = _turn(builder, output[place : match.start()], where)
        answers = _RESPONSE.findall(match.group(1))
        if len(answers) == 1 and builder.result(None, answers[0], where):
            for _ in range(calls - 1):
                builder.also_answers(None)
        elif len(answers) > 1:
            for answer in answers:
                builder.result(None, answer, where)
        place = match.end()
    _turn(builder, output[place:], where)


def _turn(builder: EpisodeBuilder, text: str, where: str) -> int:
    """Adds a turn; returns how many calls it has. Words behind a call are another turn's, of a template that is not known."""
    calls = said_calls(text, None, where)
    if calls == [] or (calls and any(piece.strip() for piece in _CALL.split(text)[1:])):
        builder.unparsed(text, where)
        return 0
    builder.turn(text, calls or [], where)
    return len(calls or ())
