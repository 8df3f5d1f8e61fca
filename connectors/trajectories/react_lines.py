"""ReAct transcripts as text: lines that begin with `Thought:`, `Action:`, `Observation:` … cut into blocks, one per question.

Labels may be numbered (`Thought 3:`); in a numbered block only the numbers that come next count, so that text which
quotes such a line stays text. A prompt with its examples (`Here are some examples` to `(END OF EXAMPLES)`, or
LangChain's format instructions to `Begin!`) belongs to the block after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from logforge.connectors.records import BOM, Source

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(
    r"(Question|Task|Thought|Action Input|Action|Observation|Final Answer|Correct answer|Gold answer|Ground truth)"
    r"(?: (\d{1,6}))?:[ \t]?(.*)",
    re.DOTALL,
)
_KINDS = {"Task": "Question", "Gold answer": "Correct answer", "Ground truth": "Correct answer"}
_TRIAL = re.compile(r"BEGIN TRIAL (\d+)")
_SECTION = re.compile(r"-{3,} ?BEGIN (\w+) AGENTS ?-{3,}")
_RULE = re.compile(r"(?:#{10,}|={10,}|-{10,}|\*{10,})$|Trial summary:")
_CHAIN = re.compile(r"> (Entering new|Finished) .*chain")
_STOPPED = re.compile(r"Agent stopped due to (?:iteration|time|max)")
_REFLECTIONS = "You have attempted to answer"
_PROMPT_BEGINS = re.compile(
    r".*Here are some examples|Solve a question answering task|Use the following format|Answer the following questions as"
)
_PROMPT_ENDS = ("(END OF EXAMPLES)", "Begin!")


class Line(NamedTuple):
    """A line, its number from 1, and whether its bytes are UTF-8."""

    number: int
    text: str
    is_text: bool = True


@dataclass
class Segment:
    """A labelled piece of a block: what follows the label, which stands in line `begin`, up to the next one."""

    kind: str
    begin: int
    lines: list[str]

    @property
    def line(self) -> int:
        """The line in which the text begins: the label's own, or a later one when nothing follows the label."""
        return self.begin + next((i for i, text in enumerate(self.lines) if text.strip()), 0)

    @property
    def text(self) -> str:
        """The text without the blanks around it."""
        return "\n".join(self.lines).strip()


@dataclass
class Block:
    """One question and what was done about it. `trial` and `section` are those of the headings above it."""

    line: int
    trial: int | None = None
    section: str | None = None
    prompt: list[Line] = field(default_factory=list)
    before: list[Line] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    number: int | None = None
    closed: bool = False
    stopped: bool = False
    """The agent's program says that a limit stopped it."""
    is_text: bool = True

    @property
    def acted(self) -> bool:
        """More than a question is there."""
        return any(segment.kind != "Question" for segment in self.segments)


class Transcript(NamedTuple):
    """The blocks of a file, and the text that stands after the last of them (or instead of any)."""

    blocks: list[Block]
    rest: list[Line]


def read_transcript(source: Source) -> Transcript:
    """Cut a file into blocks. Only `\\n` ends a line; a BOM and colour codes are dropped."""
    return cut(source.content())


def cut(data: bytes) -> Transcript:
    """The same of what a file holds."""
    lines = _lines(data)
    reader = _Reader()
    prompt_until = _prompts(lines)
    end = 0
    for index, line in enumerate(lines):
        end = max(end, prompt_until.get(index, 0))
        reader.feed(line, in_prompt=index < end)
    return Transcript(reader.blocks, [line for line in reader.before if line.text.strip()])


def _lines(data: bytes) -> list[Line]:
    found = []
    pieces = data.removeprefix(BOM).split(b"\n")
    for number, piece in enumerate(pieces, 1):
        try:
            text, is_text = piece.decode("utf-8"), True
        except UnicodeDecodeError as error:
            torn = number == len(pieces) and error.reason == "unexpected end of data"
            text, is_text = piece[: error.start].decode("utf-8"), torn
        text = text.removesuffix("\r")
        found.append(Line(number, _ANSI.sub("", text) if "\x1b" in text else text, is_text))
    return found


def _prompts(lines: list[Line]) -> dict[int, int]:
    """Where prompts begin, and the index after their end. A beginning without an end is no prompt."""
    found: dict[int, int] = {}
    begin: int | None = None
    for index, line in enumerate(lines):
        text = line.text.strip()
        if begin is None and _PROMPT_BEGINS.match(text):
            begin = index
        elif begin is not None and text in _PROMPT_ENDS:
            found[begin] = index + 1
            begin = None
    return found


class _Reader:
    """Takes a transcript's lines in order."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.before: list[Line] = []
        self._prompt: list[Line] = []
        self._trial: int | None = None
        self._section: str | None = None
        self._blank = True

    def feed(self, line: Line, *, in_prompt: bool) -> None:
        """Take one line."""
        block = self.blocks[-1] if self.blocks and not self.blocks[-1].closed else None
        blank = not line.text.strip()
        if in_prompt:
            self._close(block)
            self._prompt.append(line)
        elif blank or not self._heading(line.text, block):
            label = None if blank else _LABEL.match(line.text)
            if label is None or not self._labelled(line, label, block):
                self._text(line, block)
        self._blank = blank

    def _heading(self, text: str, block: Block | None) -> bool:
        """A line that is no part of any block: trial and section headings, rules between blocks, a chain's begin and end."""
        trial, section, chain = _TRIAL.match(text), _SECTION.match(text), _CHAIN.match(text)
        if trial:
            self._trial, self._section = int(trial[1][:9]), None
        elif section:
            self._section = section[1]
        elif block is not None and _STOPPED.match(text):
            block.stopped = True
        elif not chain and not (_RULE.match(text) and (block is None or text.startswith("#"))):
            return False
        if not (chain and block is not None and not block.acted):
            self._close(block)
        return True

    def _labelled(self, line: Line, label: re.Match[str], block: Block | None) -> bool:
        """Take a line that begins with a label, if the label can stand here."""
        kind, number = _KINDS.get(label[1], label[1]), int(label[2]) if label[2] else None
        if kind == "Question":
            if number is not None or not (block is None or self._blank or not block.acted):
                return False
            if block is None or block.segments:
                block = self._open(line)
        elif kind == "Correct answer":
            if block is None or number is not None:
                return False
            block.closed = True
        elif block is None or (kind != "Observation" and _answered(block)):
            block = self._open(line)
            block.number = number
        elif not _comes_next(block, kind, number):
            return False
        else:
            block.number = number if number is not None else block.number
        block.segments.append(Segment(kind, line.number, [label[3]]))
        block.is_text = block.is_text and line.is_text
        return True

    def _open(self, line: Line) -> Block:
        self._close(self.blocks[-1] if self.blocks else None)
        before = [kept for kept in self.before if kept.text.strip()]
        reflections = next(
            (i for i, kept in enumerate(before) if kept.text.startswith(_REFLECTIONS)), len(before)
        )
        block = Block(
            line.number, self._trial, self._section, self._prompt + before[reflections:], before[:reflections]
        )
        block.is_text = all(kept.is_text for kept in block.prompt)
        self.before, self._prompt = [], []
        self.blocks.append(block)
        return block

    def _close(self, block: Block | None) -> None:
        if block is not None:
            block.closed = True

    def _text(self, line: Line, block: Block | None) -> None:
        if block is None or not block.segments:
            self.before.append(line)
        else:
            block.segments[-1].lines.append(line.text)
            block.is_text = block.is_text and line.is_text


def _answered(block: Block) -> bool:
    return block.segments[-1].kind == "Final Answer"


def _comes_next(block: Block, kind: str, number: int | None) -> bool:
    """Numbers run on, and a block is numbered as a whole or not at all."""
    if not block.acted or kind == "Final Answer":
        return True
    if number is None or block.number is None:
        return number is None and block.number is None
    return (
        number == block.number
        if kind in ("Observation", "Action Input")
        else number in (block.number, block.number + 1)
    )
