"""ReAct transcripts in plain text: `Thought:` / `Action:` / `Observation:`, LangChain's `Action Input:` and `Final Answer:`.

A record is one question with its steps (the text from one `Question:` or chain to the next).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    first_user_text,
    task_group,
)
from logforge.connectors.records import Head, NotJson, Source, canonical, loads
from logforge.connectors.trajectories.react_lines import Block, Segment, read_transcript
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

_ACTS = re.compile(rb"^Action(?: \d+)?:", re.MULTILINE)
_REASONS = re.compile(rb"^(?:Thought(?: \d+)?|Action Input):", re.MULTILINE)
_SEES = re.compile(rb"^(?:Observation(?: \d+)?|Final Answer):", re.MULTILINE)
_TRIALS = re.compile(rb"^BEGIN TRIAL \d+", re.MULTILINE)

_NAMED = re.compile(r"([A-Za-z_][\w .\-/]{0,80}?)\s*(?:\[(.*)\]|\((.*)\))\s*", re.DOTALL)
_FENCE = re.compile(r"\s*```(?:json)?\s*\n?(.*?)\n?\s*```\s*", re.DOTALL)
_VERDICT = re.compile(r"Answer is (CORRECT|INCORRECT)\b")
_REWARD = re.compile(r"Episode finished, reward = (\d{1,20}(?:\.\d{1,20})?)")
_MISSED = re.compile(
    r"Could not find \[|The last page Searched was not found|\S+ is not a valid tool, try|Invalid Format:"
)
_FINISH = ("finish", "final answer")


class ReactText:
    """Transcripts of ReAct agents."""

    name = "react_text"
    version = 5
    record = "one question and its steps"
    fills = ("outcome", "score", "thoughts")

    def sniff(self, head: Head) -> float:
        """Text with actions, with thoughts or inputs, and with observations or an answer; no page that only tells of them."""
        return 0.8 if looks_like_react(head) and not _TRIALS.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per question."""
        yield from read_blocks(source, self._block)

    def _block(self, block: Block, label: str) -> Iterator[Reading]:
        run = Run(block, label)
        yield from close(run.builder, run.episode(self.name, content_id(self.name, run.said), run.ending()))


def looks_like_react(head: Head) -> bool:
    """True for text in which an agent acts and sees; a markdown page that begins with a heading is none."""
    if head.container != "text" or re.match(rb"\s*#{1,6} \w", head.data):
        return False
    return all(pattern.search(head.data) for pattern in (_ACTS, _REASONS, _SEES))


def read_blocks(source: Source, read_block: Any) -> Iterator[Reading]:
    """Read a transcript block by block; text around the blocks is no episode."""
    transcript = read_transcript(source)
    for block in transcript.blocks:
        if block.is_text:
            yield from read_block(block, source.label)
        else:
            where = f"{source.label}:{block.line}"
            yield Reject(locator=where, reason="its text is not UTF-8", rule="malformed_record")
    if transcript.rest and transcript.blocks:
        yield Skip(reason="text_after_the_last_question")
    elif transcript.rest:
        first = transcript.rest[0]
        yield Reject(
            locator=f"{source.label}:{first.number}",
            reason="no question, thought or action in this text",
            rule="not_a_conversation",
            excerpt=first.text[:200],
        )


@dataclass(frozen=True)
class _Held:
    """An action whose input may follow."""

    action: Segment
    given: Segment | None = None


class Run:
    """A block as an episode: its builder, and what the text says of its outcome."""

    def __init__(self, block: Block, label: str) -> None:
        self.block, self.label = block, label
        self.builder = EpisodeBuilder()
        self.reference: str | None = None
        self.success: bool | None = None
        self.score: float | None = None
        self.finished = False
        self.said = [[segment.kind, segment.text] for segment in block.segments]
        self._thought: Segment | None = None
        self._held: _Held | None = None
        self._read()

    def episode(self, format: str, id: str, ending: tuple[Ending, str]) -> Episode:
        """The episode. `id` is its identity."""
        task = first_user_text(self.builder)
        block = self.block
        headings = {"trial": block.trial, "section": block.section}
        before = {"before": "\n".join(line.text for line in block.before)} if block.before else {}
        return self.builder.finish(
            id=id,
            format=format,
            locator=f"{self.label}:{block.line}",
            ending=ending[0],
            ending_reason=ending[1],
            task=task,
            group_id=task_group(task),
            success=self.success,
            score=self.score,
            outcome_from=None if self.success is None else "observation",
            reference=self.reference,
            metadata=canonical({k: v for k, v in headings.items() if v is not None} | before),
        )

    def ending(self) -> tuple[Ending, str]:
        """A final answer or `Finish` ends it; a limit, or a text that just stops, does not."""
        if self.block.stopped:
            return "truncated", "stopped by an iteration or time limit"
        if self.finished:
            return "terminal", "the agent gave its answer"
        return "truncated", "the log stops before an answer"

    def _read(self) -> None:
        if self.block.prompt:
            first = self.block.prompt[0]
            prompt = "\n".join(line.text for line in self.block.prompt).strip()
            self.builder.message("system", prompt, f"{self.label}:{first.number}")
        for segment in self.block.segments:
            self._segment(segment)
        self._act()

    def _segment(self, segment: Segment) -> None:
        where = f"{self.label}:{segment.line}"
        if segment.kind == "Action Input":
            if self._held is None or self._held.given is not None:
                self.builder.rejects.append(
                    bad_part(where, "input without an action", "orphan_input", segment.text)
                )
            else:
                self._held = _Held(self._held.action, segment)
            return
        if segment.kind != "Action" or self._held is not None:
            self._act(but_think=segment.kind in ("Final Answer", "Action"))
        if segment.kind == "Question":
            self.builder.message("user", segment.text, where)
        elif segment.kind == "Thought":
            self._thought = segment
        elif segment.kind == "Action":
            self._held = _Held(segment)
        elif segment.kind == "Observation":
            self._observation(segment.text, where)
        elif segment.kind == "Final Answer":
            self._answer(segment.text, where)
        else:
            self.reference = segment.text or None

    def _act(self, *, but_think: bool = False) -> None:
        """Take the decision that is complete now. `but_think`: a thought alone waits for the decision at hand."""
        held, self._held = self._held, None
        if held is None:
            if self._thought is not None and not but_think:
                where = f"{self.label}:{self._thought.line}"
                self.builder.message("assistant", None, where, thought=self._take_thought())
            return
        where = f"{self.label}:{held.action.line}"
        text, rest = _command(held)
        if rest:
            self.builder.rejects.append(bad_part(where, "text after an action", "text_after_action", rest))
        call = action_of(text, None if held.given is None else held.given.text)
        if call is None:
            self.builder.rejects.append(
                bad_part(where, "action without a name", "nameless_call", held.action.text)
            )
            self.builder.message("assistant", None, where, thought=self._take_thought())
        elif call.name.lower() == "final answer":
            self._answer(_answer_text(call.arguments), where)
        else:
            self.builder.turn(None, [call._replace(locator=where)], where, thought=self._take_thought())
            self.finished = self.finished or call.name.lower() in _FINISH

    def _take_thought(self) -> str | None:
        thought, self._thought = self._thought, None
        return (thought.text or None) if thought else None

    def _answer(self, text: str, where: str) -> None:
        self.builder.turn(text, [], where, kind="respond", thought=self._take_thought())
        self.finished = True

    def _observation(self, text: str, where: str) -> None:
        verdict, reward = _VERDICT.match(text), _REWARD.search(text)
        if verdict:
            self.success = verdict[1] == "CORRECT"
        if reward:
            self.score = float(reward[1])
            self.success = self.score == 1.0
        last = self.builder.messages[-1] if self.builder.messages else None
        if last is not None and last.role == "assistant" and not self.builder.ends_unanswered:
            self.builder.message("user", text, where)  # feedback on a turn that called nothing
        else:
            failed = True if _MISSED.match(text) else None
            self.builder.result(None, text, where, failed=failed)


def _command(held: _Held) -> tuple[str, str]:
    """The action, and what stands in lines below it when the first line is one already (`Search[x]`)."""
    first, _, rest = held.action.text.partition("\n")
    whole = held.given is not None or not _NAMED.fullmatch(first)
    return (held.action.text, "") if whole or _NAMED.fullmatch(held.action.text) else (first, rest)


def action_of(text: str, given: str | None) -> Call | None:
    """The call that an action's text (and its input, if there is one) makes; None when it names no tool.

    `Search[x]`, `search(x)`, LangChain's `{"action": …, "action_input": …}`, a tool's name with its input on a line of
    its own, or a command whose first word names it.
    """
    fenced = _FENCE.fullmatch(text)
    text = (fenced[1] if fenced else text).strip()
    if text.startswith("{") and given is None:
        blob = _object(text)
        name = blob.get("action") if blob else None
        if blob is None or not isinstance(name, str) or not name.strip():
            return None
        return Call(name.strip(), _input(blob.get("action_input")))
    if given is not None:
        return Call(text, _input(given)) if text else None
    named = _NAMED.fullmatch(text)
    if named:
        return Call(named[1], _input(named[2] if named[2] is not None else named[3]))
    name, _, rest = text.partition(" ")
    return Call(name, _input(rest.strip())) if name else None


def _input(given: Any) -> Any:
    """An object is the arguments; other text is the one argument `input`. Text that begins like an object stays text."""
    text = given.strip() if isinstance(given, str) else given
    if not isinstance(text, str):
        return {"input": given} if given is not None and not isinstance(given, dict) else given
    fenced = _FENCE.fullmatch(text)
    inner = fenced[1].strip() if fenced else text
    if inner.startswith("{"):
        return inner
    return {"input": text} if text else None


def _answer_text(arguments: Any) -> str:
    if isinstance(arguments, dict) and arguments.keys() == {"input"}:
        arguments = arguments["input"]
    return arguments if isinstance(arguments, str) else canonical(arguments)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = loads(text)
    except NotJson:
        return None
    return value if isinstance(value, dict) else None
