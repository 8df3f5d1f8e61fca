"""Logs in which one thing has another name, lies one level deeper, or is a block that nobody knows: what a format of tomorrow looks like."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from logforge.connectors.records import json as jsontext
from logforge.connectors.records.base import Connector, Source
from logforge.schemas import Episode, Reading, Reject, Skip

Path_ = tuple[str | int, ...]
PAYLOAD = "what it holds, nobody knows"
BLOCK = {"type": "mystery_block", "mystery": {"payload": PAYLOAD}}
SPEECH = {"messages", "content", "parts", "conversation", "conversations", "steps", "message", "thought"}
"""Lists under these keys hold what was said and done. (What tools were on offer, say, is no speech.)"""


@dataclass(frozen=True)
class Change:
    """One change of a log: how, and where (list positions are `*`)."""

    kind: str
    pattern: tuple[str, ...]
    path: Path_


def changes(records: list[Any], most: int) -> list[Change]:
    """One change of each kind at each place that differs from the others by more than positions: the first such place, and the last."""
    found: dict[tuple[str, tuple[str, ...]], list[Path_]] = {}
    for path, value in _places(records, ()):
        pattern = tuple("*" if isinstance(part, int) else part for part in path)
        if isinstance(path[-1], str):
            for kind in ("rename", "nest"):
                found.setdefault((kind, pattern), []).append(path)
        elif isinstance(value, dict) and len(path) > 1:
            found.setdefault(
                ("block", (*pattern, str(value.get("type")), str(value.get("role")))), []
            ).append(path)
    every = [
        Change(kind, pattern, path)
        for (kind, pattern), paths in found.items()
        for path in dict.fromkeys((paths[0], paths[-1]))
    ]
    step = max(1, -(-len(every) // most))
    return every[::step]


def _places(value: Any, path: Path_) -> Iterator[tuple[Path_, Any]]:
    if path:
        yield path, value
    if len(path) > 12:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*path, index))


def changed(records: list[Any], change: Change) -> list[Any]:
    """The records with the change made."""
    made = copy.deepcopy(records)
    holder: Any = made
    for part in change.path[:-1]:
        holder = holder[part]
    last = change.path[-1]
    if change.kind == "block":
        holder[last] = copy.deepcopy(BLOCK)
        return made
    items = list(holder.items())
    holder.clear()
    for key, value in items:
        if key != last:
            holder[key] = value
        elif change.kind == "rename":
            holder[f"zz{str(last)[::-1]}"] = value
        else:
            holder["wrapped"] = {last: value}
    return made


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value


@dataclass(frozen=True)
class Account:
    """What was read of a log: the utterances that are decisions, all texts, and how much was set aside."""

    spoken: Counter[str]
    texts: Counter[str]
    aside: frozenset[tuple[str, str]]
    """What was set aside: rules and places, and reasons to skip."""
    kept: str
    """Everything that was kept as text: messages, thoughts, arguments, results, and what the episode knows of itself."""

    def lost(self, later: Account, change: Change) -> list[str]:
        """The texts that another reading holds nowhere, although it set nothing more aside."""
        if later.aside - self.aside:
            return []
        if change.kind == "block":
            return [] if later.holds(PAYLOAD) or not SPEECH & set(change.pattern) else [PAYLOAD]
        return [text for text in self.texts - later.texts if not later.holds(text)]

    def holds(self, text: str) -> bool:
        """True when the text stands somewhere in what was kept, be it as a JSON string; of JSON text, all texts in it."""
        try:
            inner = list(_leaves(jsontext.loads(text))) if text[:1] in ("{", "[") else []
        except jsontext.NotJson:
            inner = []
        return all(
            leaf in self.kept or jsontext.canonical(leaf)[1:-1] in self.kept for leaf in inner or [text]
        )


def account(connector: Connector, path: Path) -> Account:
    """Read a log and say what came of it."""
    spoken: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    aside: Counter[tuple[str, str]] = Counter()
    kept: list[str] = []
    for reading in _readings(connector, path):
        if isinstance(reading, Episode):
            kept.append(jsontext.canonical(msgspec.to_builtins(reading)))
            kept += [text for text in (reading.metadata, *(step.arguments for step in reading.steps)) if text]
            by_position = {message.position: message.content or "" for message in reading.messages}
            texts.update(content for content in by_position.values() if content)
            spoken.update(
                by_position[step.position] for step in reading.steps if step.kind in ("respond", "clarify")
            )
        elif isinstance(reading, Reject):
            aside[reading.rule, reading.locator] += 1
        elif isinstance(reading, Skip):
            aside[reading.reason, str(aside[reading.reason, ""])] += 1
            aside[reading.reason, ""] += 1
    return Account(spoken, texts, frozenset(aside), "\n".join(kept))


def _readings(connector: Connector, path: Path) -> Iterator[Reading]:
    yield from connector.read(Source(path, path.name))


def written(records: list[Any], lines: bool, path: Path) -> Path:
    """Write records as JSON lines, or as the document that they are the only record of."""
    text = (
        "\n".join(jsontext.canonical(record) for record in records)
        if lines
        else jsontext.canonical(records[0])
    )
    path.write_text(text + "\n", "utf-8")
    return path
