"""What a mapping makes of the sample that it was drafted from: how much it reads, and what speaks against it."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logforge.connectors.mapping import mapping_of
from logforge.connectors.records import Source
from logforge.inspecting.routes import is_dated, is_text, walk
from logforge.inspecting.samples import Sample
from logforge.schemas import Episode, Reject, Skip

MAPPING = "inspected.yaml"
_CALL_IN_TEXT = re.compile(
    r"```|</[a-z]+(?:_[a-z]+)+>|<(?:tool_call|function|invoke|execute)\b|^\s*Action(?: Input)?\s*:|^\s*\{\s*\"(?:name|tool|action|function)\"\s*:",
    re.MULTILINE,
)
"""How agents write calls into their words."""


@dataclass(frozen=True)
class Proof:
    """The sample as the mapping reads it. `words` is the share of all its words that are in messages, calls and results."""

    episodes: int = 0
    messages: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    calls: int = 0
    answered: int = 0
    outcomes: int = 0
    aside: dict[str, int] = field(default_factory=dict)
    words: float = 0.0
    both: float = 0.0
    """The share of episodes in which both sides speak."""
    empty: int = 0
    """Conversations without a message."""
    silent: int = 0
    """Messages of the agent that say nothing and call nothing."""
    in_text: int = 0
    """Messages of the agent whose text looks like a call."""
    repeated: float = 0.0
    """The share of messages that an earlier episode had at the same place already."""

    @property
    def score(self) -> float:
        """How well the mapping fits; more is better."""
        total = max(1, sum(self.messages.values()))
        bad = sum(self.aside.values()) / (total + sum(self.aside.values()))
        return self.words + self.both - 1.5 * bad - self.repeated

    @property
    def holds(self) -> bool:
        """It reads a talk: both sides speak, and most is read."""
        return (
            self.episodes > 0 and self.both >= 0.5 and sum(self.aside.values()) <= sum(self.messages.values())
        )


def prove(text: str, sample: Sample) -> Proof:
    """Read the sample by the mapping."""
    connector = mapping_of(text, MAPPING)
    if sample.head.container == "sqlite":
        return _proof(connector.read(Source(sample.path, sample.label)), sample)
    with tempfile.TemporaryDirectory(prefix="logforge-") as room:
        path = Path(room) / "sample.jsonl"
        with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
            for document in sample.documents:
                file.write(json.dumps(document, ensure_ascii=True, default=str) + "\n")
        return _proof(connector.read(Source(path, sample.label)), sample)


def _proof(readings: Iterator[Any], sample: Sample) -> Proof:
    roles: Counter[str] = Counter()
    aside: Counter[str] = Counter()
    seen: set[tuple[int, str, str]] = set()
    episodes = steps = calls = answered = outcomes = both = repeated = chars = empty = silent = in_text = 0
    for reading in readings:
        if isinstance(reading, Reject):
            aside[reading.rule] += 1
        if isinstance(reading, Skip) and reading.reason == "empty_conversation":
            empty += reading.records
        if not isinstance(reading, Episode):
            continue
        episodes += 1
        roles.update(message.role for message in reading.messages)
        steps += len(reading.steps)
        acted = {step.position for step in reading.steps if step.kind == "tool"}
        agent = [message for message in reading.messages if message.role == "assistant"]
        silent += sum(not (one.content or "").strip() and one.position not in acted for one in agent)
        in_text += sum(bool(_CALL_IN_TEXT.search(one.content or "")) for one in agent)
        tools = [step for step in reading.steps if step.kind == "tool"]
        calls += len(tools)
        answered += sum(step.result is not None for step in tools)
        outcomes += reading.success is not None
        spoken = {message.role for message in reading.messages}
        both += "assistant" in spoken and bool(spoken & {"user", "tool"})
        chars += sum(len(message.content or "") + len(message.thought or "") for message in reading.messages)
        chars += sum(len(step.arguments or "") for step in tools)
        places = {
            (message.position, message.role, message.content or "")
            for message in reading.messages
            if message.role in ("user", "assistant")
            and message.position > 0
            and len(message.content or "") > 12
        }
        repeated += len(places & seen)
        seen |= places
    total = _words(sample)
    spoken_messages = max(1, roles["user"] + roles["assistant"])
    return Proof(
        episodes, dict(sorted(roles.items())), steps, calls, answered, outcomes, dict(sorted(aside.items())),
        min(1.0, chars / total), both / max(1, episodes), empty, silent, in_text, repeated / spoken_messages,
    )  # fmt: skip


def _words(sample: Sample) -> int:
    """Characters of text with blanks in it, times left out, in the whole sample."""
    return max(
        1,
        sum(
            len(value)
            for document in sample.documents
            for _, value in walk(document)
            if is_text(value) and " " in value and not is_dated(value)
        ),
    )
