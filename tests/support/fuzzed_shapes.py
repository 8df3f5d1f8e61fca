"""The shapes whose logs are damaged: every connector with its fixtures, tables, mappings, and an export of several files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from logforge.connectors.detection import detect, registry
from logforge.connectors.mapping.connector import MappingConnector
from logforge.connectors.mapping.spec import parse_mapping
from logforge.connectors.records import json as jsontext
from logforge.connectors.records.base import Connector, Source
from logforge.connectors.records.sqlite import SQLITE, Database, open_database
from logforge.testing.variants import Raw, shape_of
from support.mutations import Input, Seed, Vocabulary, input_of
from support.places import ROOT, SAMPLES
from support.record_counts import BEGINS, count_records

DATA = ROOT / "tests" / "data"
EXPORT = DATA / "traces" / "langfuse_export"
TABLES = ("step_table", "langfuse")
"""Connectors that read their rows from CSV and Parquet too."""

CHAT = """
name: fuzzed_chat
skip: $.internal
episode:
  id: $.ticket
  session: [$.session_id, $.session]
  success: {path: $.state, values: {solved: true, unsolved: false}}
  score: $.score
  started: $.at
  tools: $.tools
  temperature: $.temperature
messages:
  path: $.turns[*]
  role: {path: $.by, values: {customer: user, bot: assistant, "*": same}}
  content: $.text
  thought: $.why
  time: $.at
  tokens_in: $.tokens
  reward: $.reward
  call_id: $.ref
  turn: $.turn
  calls: {path: "$.does[*]", name: $.fn, arguments: $.with, id: $.ref}
  results: {path: "$.got[*]", id: $.ref, content: $.text, error: $.failed, latency: $.took}
"""
CHATS = [
    {"ticket": f"T-{n}", "state": "solved", "score": 0.5, "at": "2024-05-01T10:00:00Z", "tools": ["find", {"name": "pay"}], "temperature": 0.1, "internal": False, "session_id": "s", "session": None, "mood": "glad", "turns": [
        {"by": "customer", "text": "Where is my order?", "at": 1714557600, "turn": 1},
        {"by": "bot", "why": "look", "turn": 2, "tokens": 7, "reward": 0.1, "does": [{"fn": "find", "with": {"order": n}, "ref": "a"}, {"fn": "pay", "with": '{"n": 1}', "ref": "b"}]},
        {"by": "shop", "got": [{"ref": "a", "text": "shipped", "took": 0.2}, {"ref": "b", "text": "no", "failed": True}]},
        {"by": "tool", "ref": "a", "text": "late"},
        {"by": "bot", "text": "It was shipped.", "reward": 1},
    ]} for n in range(3)
]  # fmt: skip
STEPS = """
name: fuzzed_steps
episode:
  id: $.run
  task: $.goal
  user: $.who
steps:
  order: $.n
  observation: $.screen
  action: {path: $.button, values: {speak: respond, "*": same}}
  arguments: $.args
  say: $.words
  result: $.after
  error: $.failed
  latency: $.took
  reward: $.points
  time: $.at
  turn: $.turn
  terminated: $.done
"""
ROWS = [
    {"run": f"r{n // 3}", "n": n % 3, "goal": "buy", "who": "u", "screen": "shop", "button": ["add", "speak", "pay"][n % 3], "args": '{"n": 1}' if n % 2 else None, "words": "Shall I?" if n % 3 == 1 else None, "after": "cart", "failed": None, "took": 0.5, "points": n / 2, "at": "2024-05-01T10:00:00Z", "turn": n, "done": n % 3 == 2}
    for n in range(9)
]  # fmt: skip

TALK = """
name: fuzzed_talk
episode:
  id: $.chat
  success: $.ok
  system: $.rules
messages:
  rows: episode
  order: $.n
  skip: {path: $.kind, values: {beat: true}}
  each:
    - {role: user, content: $.q, time: $.at}
    - role: {path: [$.kind, $.by], values: {result: tool, bot: assistant}}
      content: $.a
      call_id: $.ref
      calls: {name: $.tool, arguments: $.args, id: $.ref}
      results: {path: "$.got[*]", id: $.ref, content: $.out}
"""
TALKS = [
    {"chat": n // 4, "n": 10 - n, "ok": n % 2, "rules": "Be brief.", "at": "2024-05-01T10:00:00Z", **more}
    for n, more in enumerate(2 * [
        {"q": "Where is my order?", "a": "One moment.", "by": "bot"},
        {"by": "bot", "tool": "find", "args": {"order": 7}, "ref": "a"},
        {"kind": "result", "a": "shipped", "ref": "a", "got": [{"ref": "a", "out": "late"}]},
        {"kind": "beat", "a": None},
    ])
]  # fmt: skip


@dataclass(frozen=True)
class Fuzzed:
    """A shape: the connector that is to read it, the fixtures, and the files that lie beside each of them."""

    name: str
    connector: Connector
    words: Vocabulary
    beside: dict[str, bytes] = field(default_factory=dict)
    main: str | None = None
    count: Callable[[Path], int] | None = None

    def make(self, number: int) -> Input:
        """Damaged input number so and so."""
        return input_of(self.name, number, self.words)


@cache
def shapes() -> dict[str, Fuzzed]:
    """Every connector with its fixtures; tables also as CSV and Parquet, mappings, and an export of several files."""
    files: dict[str, list[Path]] = {name: [] for name in registry()}
    for folder in (DATA, SAMPLES):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".md", ".yaml") and path.name != "expect.json":
                for claim in detect(path)[:1]:
                    files[claim.connector.name].append(path)
    found = {}
    for name, connector in registry().items():
        seeds = [seed for path in files[name] for seed in seeds_of(path)]
        count = None if name in (*BEGINS, "inspect_eval") else count_records(name)
        found[name] = Fuzzed(name, connector, Vocabulary(seeds), count=count)
        if name in TABLES:
            rows = [seed for seed in seeds if seed.kind in ("lines", "array")]
            for kind in ("csv", "parquet"):
                tables = [Seed(f"{seed.name}.{kind}", kind, seed.pieces) for seed in rows]
                found[f"{name}.{kind}"] = Fuzzed(f"{name}.{kind}", connector, Vocabulary(tables))
    for text, pieces in ((CHAT, CHATS), (STEPS, ROWS), (TALK, TALKS)):
        mapping = MappingConnector(parse_mapping(text, "map.yaml"))
        for kind in ("lines", "array") if pieces is CHATS else ("lines", "csv", "parquet"):
            name = f"{mapping.name}.{kind}"
            found[name] = Fuzzed(name, mapping, Vocabulary([Seed(f"log.{kind}", kind, tuple(pieces))]))
    return found | {"langfuse_export": _export()}


def _export() -> Fuzzed:
    beside = {p.relative_to(EXPORT).as_posix(): p.read_bytes() for p in sorted(EXPORT.rglob("*.jsonl"))}
    seeds = [Seed(name, seed.kind, seed.pieces) for name in beside for seed in seeds_of(EXPORT / name)[:1]]
    main = next(name for name in beside if name.startswith("observations"))
    return Fuzzed("langfuse_export", registry()["langfuse"], Vocabulary(seeds), beside, main)


# --- fixtures -----------------------------------------------------------------------------------------------------

WHOLE = 9_000
"""A fixture of up to so many bytes is damaged as a whole; of a larger one, smaller versions are."""
ITEMS, TEXT = 7, 500


def seeds_of(path: Path) -> list[Seed]:
    """A file taken to pieces; of a large one several parts, long lists and texts in it cut."""
    if path.read_bytes().startswith(SQLITE):
        return [Seed(path.name, "sqlite", tuple(_rows_in(path)))]
    if path.suffix == ".parquet":
        return [Seed(path.name, "parquet", tuple(row for _, row in Source(path, "").records()))]
    shape, chance = shape_of(path), random.Random(path.name)
    pieces = [_piece(shape.kind, piece) for piece in shape.pieces]
    if path.stat().st_size <= WHOLE:
        return [Seed(path.name, shape.kind, tuple(pieces))]
    if shape.kind == "text":
        starts = range(0, len(pieces), 30)
        return [Seed(path.name, "text", tuple(pieces[start : start + 45])) for start in starts][:20]
    if shape.kind in ("lines", "array"):
        starts = [0, *(chance.randrange(max(1, len(pieces) - ITEMS)) for _ in range(5))]
        parts = [pieces[start : start + ITEMS] for start in starts]
    else:
        parts = [pieces] * 3
    return [Seed(path.name, shape.kind, tuple(cut(piece, chance) for piece in part)) for part in parts]


def _rows_in(path: Path) -> Iterator[list[Any]]:
    """Table and row of everything in a database; text that is JSON is parsed, so that what is in it is damaged too."""
    with open_database(Source(path, "")) as found:
        assert isinstance(found, Database)
        for table in found.tables:
            for _, row in found.rows(table):
                assert isinstance(row, dict)
                yield [table, {name: _parsed(value) for name, value in row.items()}]


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in "{[":
        with suppress(jsontext.NotJson):
            return jsontext.loads(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _piece(kind: str, piece: Any) -> Any:
    if kind == "zip":
        name, data = piece
        try:
            return [name, jsontext.loads(data)]
        except jsontext.NotJson:
            return [name, data.decode("utf-8", "replace")]
    if isinstance(piece, bytes):
        return piece.decode("utf-8", "replace").removesuffix("\n")
    return msgspec.Raw(piece.encode()) if isinstance(piece, Raw) else piece


def cut(value: Any, chance: random.Random) -> Any:
    """Of long lists the beginning and a part further on, of long texts both ends."""
    if isinstance(value, dict):
        return {key: cut(inner, chance) for key, inner in value.items()}
    if isinstance(value, list):
        start = chance.randrange(2, max(3, len(value) - ITEMS))
        return [
            cut(item, chance)
            for item in (value if len(value) <= ITEMS else value[:3] + value[start:][: ITEMS - 3])
        ]
    if isinstance(value, str) and len(value) > TEXT and value[:1] not in "{[":
        return value[: TEXT // 2] + value[-TEXT // 2 :]
    return value


def as_lines(rows: list[Any]) -> bytes:
    """Rows as JSON lines."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
