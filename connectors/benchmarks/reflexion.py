"""Reflexion's logs: HotpotQA trials as text (a record is one question of one trial), and programming runs as JSON lines.

The text is a dump after each trial: tasks that are solved are not tried again, their transcripts are only printed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    close,
    content_id,
    failure_in,
    first_text,
    first_user_text,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.trajectories import Block, Run, looks_like_react, read_blocks
from logforge.schemas import Ending, Episode, Reading

_TRIAL = re.compile(rb"^BEGIN TRIAL \d+", re.MULTILINE)
_MODEL = re.compile(
    r"_(?P<strategy>reflexion|simple|immediate-\w+|test-acc|expert)_\d+_(?P<model>.+?)_pass_at_k"
)


class ReflexionText:
    """Reflexion's trials on questions."""

    name = "reflexion_text"
    version = 5
    record = "one question of one trial"
    fills = ("outcome", "thoughts")

    def sniff(self, head: Head) -> float:
        """A ReAct transcript under headings of trials."""
        return 0.95 if looks_like_react(head) and _TRIAL.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per question and trial; one that is printed again has the same id."""
        yield from read_blocks(source, self._block)

    def _block(self, block: Block, label: str) -> Iterator[Reading]:
        run = Run(block, label)
        # A solved task is never tried again: the same text in a later trial is the same run.
        trial = None if run.success else block.trial
        identity = content_id(self.name, [trial, run.said])
        yield from close(run.builder, run.episode(self.name, identity, _ending(run)))


def _ending(run: Run) -> tuple[Ending, str]:
    if run.success is not None:
        return "terminal", f"the answer was judged {'correct' if run.success else 'incorrect'}"
    if run.block.section == "HALTED" and run.reference is not None:  # else the text is cut off
        return "truncated", "halted: no answer within the step limit"
    return run.ending()


class ReflexionProg:
    """Reflexion's programming runs: a prompt, the final solution, and whether it passed the tests."""

    name = "reflexion_prog"
    version = 4
    record = "one task: a line"
    fills = ("outcome", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows with a prompt, a solution and a verdict on it."""
        fits = {"prompt", "solution", "is_solved"} <= head.top
        return 0.95 if fits and head.has_rows else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row."""
        name = source.place.name
        yield from read_rows(source, lambda row, locator: self._row(row, locator, name))

    def _row(self, row: Any, locator: str, name: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
            yield reject(locator, "no text `prompt`", "", row)
            return
        builder = EpisodeBuilder()
        builder.message("user", row["prompt"], at(locator, "/prompt"))
        solution = text_of(row.get("solution"))
        if solution:
            call = Call("submit", {"code": solution}, None, at(locator, "/solution"))
            builder.turn(None, [call], at(locator, "/solution"), thought=_reflections(row.get("reflections")))
        yield from close(builder, self._episode(builder, row, locator, name))

    def _episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str, name: str) -> Episode:
        told = read_outcome(row, locator, builder.rejects, success=("is_solved",), score=())
        outcome = told.void(failure_in(row))
        solved = outcome.success
        made = _MODEL.search(name)
        kept = ("prompt", "solution", "canonical_solution", "reflections")
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending="truncated" if solved is None else "terminal",
            ending_reason=outcome.unknown or "no verdict"
            if solved is None
            else f"the tests {'passed' if solved else 'failed'}",
            native_id=first_text(row, "name", "task_id"),
            task_id=first_text(row, "name", "task_id"),
            task=first_user_text(builder),
            group_id=task_group(row["prompt"]),
            policy_id=f"{made['model']}/{made['strategy']}" if made else None,
            model=made["model"] if made else None,
            **outcome.fields(),
            reference=text_or_none(row.get("canonical_solution")),
            metadata=canonical({key: value for key, value in row.items() if key not in kept}),
        )


def _reflections(listed: Any) -> str | None:
    """What the agent told itself after attempts that are not in the log, before this one."""
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return "\n".join(texts) or None
